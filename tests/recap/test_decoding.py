"""The loop: closing it anywhere, the reasons it gives, what it costs to record."""

from __future__ import annotations

import gc

import pytest
import torch

from recap.decoding import Run, new_memory
from recap.drafters import METHODS
from recap.errors import SettingsError
from recap.session import Session
from recap.targets.cache import TreeCache
from tests.recap.reference import METHOD_NAMES, generate, picture, tiny_target


def request_of(target, seed=1):
    image = picture(seed) if target.family == "qwen2_5_vl" else None
    return target.prepare("tell me", image)


@pytest.mark.parametrize("method", METHOD_NAMES)
@pytest.mark.parametrize("after", [0, 1, 4])
def test_a_run_can_be_closed_at_any_point(method, after):
    """What was emitted stays, the memory is whole, the target decodes on as if nothing was."""
    target = tiny_target("qwen2_5_vl", 2)
    wanted = generate(target, request_of(target), 40)
    memory = new_memory(target)
    run = Run(target, request_of(target), method, memory=memory, max_new_tokens=40)
    steps = run.steps()
    for _ in range(after):
        next(steps)
    if not after:
        run.prefill()
    steps.close()
    if not after:
        run.cancel()
    trace = run.trace
    assert trace.finish == "cancelled"
    assert len(trace.steps) == after
    assert trace.token_ids == wanted[: len(trace.token_ids)]
    assert trace.memory["end"] is not None
    state = memory.state_dict()
    restored = new_memory(target)
    restored.load_state_dict(state)
    for store in (memory, restored):
        again = Run(target, request_of(target), method, memory=store, max_new_tokens=40)
        assert again.finish_all().token_ids == wanted


def test_a_closed_run_leaves_nothing_behind():
    """No cache survives the run and its request."""
    target = tiny_target("llama", 1)
    gc.collect()
    before = sum(isinstance(o, TreeCache) for o in gc.get_objects())
    run = Run(target, request_of(target), "recap", max_new_tokens=40)
    steps = run.steps()
    next(steps)
    steps.close()
    del run, steps
    gc.collect()
    assert sum(isinstance(o, TreeCache) for o in gc.get_objects()) == before


def test_inference_mode_is_off_between_steps():
    """It is entered inside a step: around a `yield` it would leak to whoever runs next."""
    target = tiny_target("llama", 1)
    run = Run(target, request_of(target), "recap", max_new_tokens=20)
    for _ in run.steps():
        assert not torch.is_inference_mode_enabled()
    assert not torch.is_inference_mode_enabled()


def test_reasons_for_speculating_nothing():
    """One fixed word for each."""
    target = tiny_target("llama", 3)
    off = Run(target, request_of(target), "autoregressive", max_new_tokens=4).finish_all()
    assert [step.budget["reason"] for step in off.steps] == ["off", "off", "limit"]
    settings = METHODS["token-recycling"].settings()
    cold = Run(target, request_of(target), "token-recycling", settings=settings, max_new_tokens=9)
    assert cold.finish_all().steps[0].budget["reason"] == "cold"
    last = Run(target, request_of(target), "recap", max_new_tokens=2).finish_all().steps[-1]
    assert last.budget["reason"] == "limit"
    assert len(last.nodes) == 0


@pytest.mark.parametrize(
    ("options", "field"),
    [
        ({"max_new_tokens": 0}, "max_new_tokens"),
        ({"max_new_tokens": 1.5}, "max_new_tokens"),
        ({"max_new_tokens": 10**9}, "max_new_tokens"),
        ({"stop": [""]}, "stop"),
        ({"method": "greedy"}, "method"),
    ],
)
def test_bad_options_name_their_field(options, field):
    """Before anything runs."""
    target = tiny_target("llama", 1)
    with pytest.raises(SettingsError, match=field):
        Run(target, request_of(target), **options)


def test_a_session_keeps_a_memory_for_each_method():
    """And forgets on request."""
    session = Session(tiny_target("qwen2_5_vl", 1))
    first = session.run("go", picture(1), "recap-plus", max_new_tokens=30).finish_all()
    second = session.run("go", picture(2), "recap-plus", max_new_tokens=30).finish_all()
    assert first.memory["start"]["entries"]["1"] == 0
    assert second.memory["start"]["entries"]["1"] > 0
    assert second.memory["start"]["entries"]["carried-2"] > 0
    assert any(request == 1 for step in second.steps for request in step.entries.request)
    session.clear()
    third = session.run("go", picture(1), "recap-plus", max_new_tokens=30).finish_all()
    assert third.memory["start"]["entries"]["1"] == 0


def test_repeating_a_request_is_faster_the_second_time():
    """In passes, not in seconds: the memory of the first run is worth something."""
    for seed in range(3):
        session = Session(tiny_target("llama", seed, scale=0.3))
        passes = [
            session.run("go", None, "recap-plus", max_new_tokens=60).finish_all().passes
            for _ in range(2)
        ]
        assert passes[1] < passes[0]


def test_the_image_is_described_not_kept():
    """A digest and a size; never the pixels."""
    target = tiny_target("qwen2_5_vl", 1)
    trace = Run(target, request_of(target), "recap", max_new_tokens=5).finish_all()
    assert trace.image["width"] == 90
    assert trace.image["height"] == 60
    assert len(trace.image["sha256"]) == 64
    assert trace.image_tokens == request_of(target).image_tokens
