"""The loop: closing it anywhere, what it refuses, what it says about itself."""

from __future__ import annotations

import gc

import pytest
import torch
from transformers.generation.logits_process import SuppressTokensLogitsProcessor

from recap.cost import CostCurve
from recap.decoding import Run, new_memory
from recap.detokenize import decode
from recap.drafters import METHODS
from recap.errors import MemoryMismatchError, SettingsError
from recap.memory import PersistentMemory
from recap.processors import RowProcessors
from recap.session import Session
from recap.targets.cache import TreeCache
from recap.trace import Trace
from tests.recap.reference import METHOD_NAMES, generate, picture, tiny_target

#: Where the point is that there are nodes.
MANY = {"settings": METHODS["recap"].settings(budget=63)}


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


@pytest.mark.parametrize("where", ["propose", "observe"])
def test_ctrl_c_in_a_step_leaves_a_whole_trace(monkeypatch, where):
    """The file that the command line saves then must load."""
    target = tiny_target("llama", 2)
    run = Run(target, request_of(target), "recap", max_new_tokens=40, **MANY)
    steps = run.steps()
    next(steps)

    def interrupted(*arguments):
        raise KeyboardInterrupt

    monkeypatch.setattr(run._drafter, where, interrupted)
    with pytest.raises(KeyboardInterrupt):
        next(steps)
    assert run.trace.finish == "cancelled"
    assert Trace.loads(run.trace.dumps()) == run.trace
    assert run.trace.text == decode(target.tokenizer, run.trace.token_ids)


def test_a_prefill_that_fails_ends_the_run(monkeypatch):
    """With the reason in the trace."""
    target = tiny_target("llama", 2)
    run = Run(target, request_of(target), "recap", max_new_tokens=40, **MANY)

    def full(*arguments, **options):
        raise MemoryError("full")

    monkeypatch.setattr(target, "_hidden", full)
    with pytest.raises(MemoryError):
        run.prefill()
    assert (run.trace.finish, run.trace.message) == ("error", "full")
    assert Trace.loads(run.trace.dumps()) == run.trace


def test_a_memory_of_another_model_is_refused():
    """Its ids may not even exist here."""
    target = tiny_target("llama", 2)
    for memory in (PersistentMemory(9), PersistentMemory(target.vocabulary, "other words")):
        with pytest.raises(MemoryMismatchError):
            Run(target, request_of(target), memory=memory)


def test_what_a_processor_rules_out_can_be_saved():
    """Only one token is allowed: the second-best log-probability is minus infinity."""
    target = tiny_target("llama", 2)
    only = SuppressTokensLogitsProcessor([i for i in range(target.vocabulary) if i != 70])
    run = Run(target, request_of(target), processors=RowProcessors([only]), max_new_tokens=9)
    trace = run.finish_all()
    assert trace.token_ids == [70] * 9
    assert Trace.loads(trace.dumps()) == trace


def test_the_traces_memory_is_what_the_run_could_look_up():
    """Entries and bytes by the same names."""
    target = tiny_target("llama", 2)
    for method in ("recap", "recap-plus", "token-recycling"):
        end = Run(target, request_of(target), method, max_new_tokens=30).finish_all().memory["end"]
        assert end["entries"].keys() == end["bytes"].keys()
        assert all((end["entries"][n] > 0) == (end["bytes"][n] > 0) for n in end["entries"])


def test_a_closed_run_leaves_nothing_behind():
    """No cache survives the run and its request."""
    target = tiny_target("llama", 1)
    gc.collect()
    before = sum(type(o) is TreeCache for o in gc.get_objects())
    run = Run(target, request_of(target), "recap", max_new_tokens=40, **MANY)
    steps = run.steps()
    next(steps)
    steps.close()
    del run, steps
    gc.collect()
    assert sum(type(o) is TreeCache for o in gc.get_objects()) == before


def test_inference_mode_is_off_between_steps():
    """It is entered inside a step: around a `yield` it would leak to whoever runs next."""
    target = tiny_target("llama", 1)
    run = Run(target, request_of(target), "recap", max_new_tokens=20, **MANY)
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


@pytest.mark.parametrize("budget", [16, "adaptive"])
@pytest.mark.parametrize("method", METHOD_NAMES)
def test_a_model_whose_numbers_overflow_ends_cleanly(method, budget, tmp_path):
    """Half of the logits, or all of them, are no numbers: no traceback, and a trace that loads."""
    for every in (1, 2):
        target = tiny_target("llama", 1)
        target.model.lm_head.weight.data[::every] = float("nan")
        trace = Run(
            target,
            target.prepare("go go go"),
            method,
            settings=METHODS[method].settings(budget=budget),
            max_new_tokens=12,
            cost=CostCurve(((1, 1e-3), (16, 1e-3))),
        ).finish_all()
        assert (trace.finish, len(trace.token_ids)) == ("length", 12)
        trace.save(tmp_path / "trace.json")
        assert Trace.load(tmp_path / "trace.json").token_ids == trace.token_ids


@pytest.mark.parametrize("persist", [True, False])
def test_a_session_remembers_what_was_gained(persist):
    """The next request's lessons go by it, unless nothing is to be kept."""
    target = tiny_target("qwen2_5_vl", seed=3)
    memory = new_memory(target)
    options = METHODS["recap"].settings(persist=persist)
    run = Run(target, request_of(target), settings=options, memory=memory, max_new_tokens=40)
    run.finish_all()
    assert (memory.counts.gained != 0.0) == persist
    assert memory.copy().counts.gained == memory.counts.gained
    again = new_memory(target)
    again.load_state_dict(memory.state_dict())
    assert again.counts.gained == memory.counts.gained
    # What is not kept begins with request 1 every time; so say its predictions, too.
    run = Run(target, request_of(target), settings=options, memory=memory, max_new_tokens=8)
    assert run.finish_all().request == (2 if persist else 1)
    written = {number for step in run.trace.steps for number in step.entries.request}
    assert written
    assert written <= ({1, 2} if persist else {1})
