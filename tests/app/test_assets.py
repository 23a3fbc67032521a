"""What the page shows before anybody has asked anything."""

import pytest

from app import assets
from app.models import default_model
from app.record_traces import find


@pytest.fixture(scope="module")
def first():
    view = assets.first_view()
    assert view is not None, "record it: python -m app.record_traces"
    return view


def test_the_bundled_trace_is_of_the_bundled_model(first):
    if default_model() == "demo":
        assert first.trace.model == "demo"
    assert (assets.TRACES / "first-trace.json").stat().st_size < 2_000_000


def test_the_caption_tells_what_is_in_the_step(first):
    """It is made from the trace, so it cannot say anything else."""
    last = max(max(step.entries.request, default=0) for step in first.trace.steps)
    stories = find(first.example, first.trace, last)
    assert first.caption in [s.caption for s in stories if s.step.index == first.show]


def test_examples_have_their_pictures_and_prompts():
    examples = assets.examples()
    assert len(examples) > 5
    assert all(example.prompt for example in examples)


def test_scripts_cannot_close_their_own_element():
    assert "</script" not in assets.script(assets.PAGE_SCRIPTS)
