"""A run is a function of its arguments, and its memory comes back whatever happens."""

import pickle

import pytest

from app.runner import Closed, Opened, Passed, Prefilled, decode
from recap.decoding import Run, new_memory
from recap.errors import PromptError


def test_events_add_up_to_the_engines_run(target, ask):
    """The events carry the same tokens as a run of the engine."""
    expected = Run(target, target.prepare("Say something."), max_new_tokens=40).finish_all()
    events = list(decode(target, ask(), new_memory(target), lambda: False))
    assert [type(e) for e in events[:2]] == [Opened, Prefilled]
    assert isinstance(events[-1], Closed)
    assert events[-1].trace.token_ids == expected.token_ids
    assert events[-1].trace.text == expected.text
    steps = [event.step for event in events if isinstance(event, Passed)]
    assert [e.token for step in steps for e in step.emitted] == expected.token_ids[1:]


def test_events_can_cross_a_process_border(target, ask):
    """All of them pickle, so that a forked worker can send them."""
    for event in decode(target, ask(), new_memory(target), lambda: False):
        assert type(pickle.loads(pickle.dumps(event))) is type(event)


def test_memory_comes_back_also_when_stopped(target, ask):
    """Stop ends the run between two passes, and what was learnt is handed back."""
    memory = new_memory(target)
    seen = []
    events = []
    for event in decode(target, ask(), memory, lambda: len(seen) >= 3):
        events.append(event)
        if isinstance(event, Passed):
            seen.append(event)
    assert len(seen) == 3
    assert events[-1].trace.finish == "cancelled"
    assert events[-1].memory.entries()[1] > 0


def test_a_run_that_cannot_begin_says_why(target, ask):
    """An unusable prompt raises before any event; one that is too long ends the run with words."""
    with pytest.raises(PromptError):
        list(decode(target, ask(prompt=""), new_memory(target), lambda: False))
    *_, last = decode(target, ask(prompt="x" * 5000), new_memory(target), lambda: False)
    assert last.trace.finish == "context"
    assert "Shorten the prompt" in last.trace.message
