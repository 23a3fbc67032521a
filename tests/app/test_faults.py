"""Whatever fails: words for the visitor, nothing for the others, and the next run works."""

import errno
import gc
import io
import json
import shutil
import threading
import weakref
from pathlib import Path

import pytest
import torch

from app.assets import ROOT
from app.exports import EXPORTS, parcel
from app.faults import explain
from app.hosting import Host
from app.line import BusyError, Turnstile
from app.models import ModelShelf
from app.racing import stream_race
from app.state import SessionState
from app.streaming import stream
from app.worker import Worker
from recap.targets import load_target


def run(state, asked, shelf, turnstile, model="any"):
    """Run to the end; what the page then says of it."""
    *_, last = stream(state, asked, model, shelf, turnstile)
    return json.loads(last["end"])


@pytest.fixture
def after(shelf, turnstile, ask):
    """A session that has run before the fault; afterwards it must be as well as ever."""
    state = SessionState()
    end = run(state, ask(), shelf, turnstile)
    assert end["message"] is None
    text, size = state.trace.text, state.size()
    yield state
    assert state.size() == size
    end = run(state, ask(), shelf, turnstile)
    assert end["message"] is None
    assert state.trace.text == text


@pytest.mark.skipif(not (ROOT / "assets/demo-vlm/config.json").is_file(), reason="no model")
@pytest.mark.parametrize("kept", [0, 1000, 0.5])
def test_weights_that_end_half_way(target, turnstile, ask, tmp_path, kept):
    """The message says which file; the model that was there stays, and so does its visitor."""
    broken = tmp_path / "broken"
    shutil.copytree(ROOT / "assets" / "demo-vlm", broken)
    weights = broken / "model.safetensors"
    content = weights.read_bytes()
    weights.write_bytes(content[: int(len(content) * kept) if kept < 1 else int(kept)])
    shelf = ModelShelf(
        lambda name: load_target(name, device="cpu") if name == str(broken) else target
    )
    state, other = SessionState(), SessionState()
    run(other, ask(), shelf, turnstile)
    message = run(state, ask(), shelf, turnstile, str(broken))["message"]
    assert "damaged or incomplete" in message
    assert shelf.current is target
    assert run(other, ask(), shelf, turnstile)["message"] is None
    assert run(state, ask(), shelf, turnstile)["message"] is None


def test_loading_that_fails_half_way_leaves_nothing_behind(turnstile, ask, target):
    """Tensors that a failed load had made already are given back, though its error is explained."""
    made = []

    def load(name):
        if name != "half":
            return target
        half = torch.zeros(1000, 1000)
        made.append(weakref.ref(half))
        raise RuntimeError("[enforce fail at alloc_cpu.cpp:117] not enough memory: you tried to")

    shelf, state = ModelShelf(load), SessionState()
    message = run(state, ask(), shelf, turnstile, "half")["message"]
    assert message.startswith("Out of memory")
    assert made[0]() is None
    assert run(state, ask(), shelf, turnstile)["message"] is None


def test_out_of_memory_in_the_prefill(after, shelf, turnstile, ask, monkeypatch):
    """The cache of the second layer cannot be had: what the first one took is given back."""
    allocate, buffers = torch.Tensor.new_empty, []

    def fail(self, *size, **options):
        if len(buffers) >= 2:
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 MiB.")
        buffer = allocate(self, *size, **options)
        buffers.append(weakref.ref(buffer))
        return buffer

    state = SessionState()
    with monkeypatch.context() as patched:
        patched.setattr(torch.Tensor, "new_empty", fail)
        end = run(state, ask(), shelf, turnstile)
    assert end["finish"] == "error"
    assert end["message"].startswith("Out of memory. Use a smaller picture")
    gc.collect()
    assert len(buffers) == 2
    assert not any(buffer() is not None for buffer in buffers)
    assert run(state, ask(), shelf, turnstile)["message"] is None


def test_out_of_memory_in_a_verification(after, shelf, turnstile, ask, monkeypatch):
    """The mask of the third tree cannot be had: the answer so far and what it taught stay."""
    allocate, trees = torch.zeros, []

    def fail(*size, **options):
        if len(size) == 1 and isinstance(size[0], tuple) and len(size[0]) == 4:
            trees.append(size)
            if len(trees) == 3:
                raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.")
        return allocate(*size, **options)

    state = SessionState()
    with monkeypatch.context() as patched:
        patched.setattr("recap.targets.base.torch.zeros", fail)
        end = run(state, ask(tokens=60), shelf, turnstile)
    assert end["finish"] == "error"
    assert end["message"].startswith("Out of memory")
    kept = list(state.trace.token_ids)
    assert len(kept) > 1
    assert state.size()[0] > 0
    assert run(state, ask(tokens=60), shelf, turnstile)["message"] is None
    assert state.trace.token_ids[: len(kept)] == kept


def test_a_device_that_is_gone_after_the_start(turnstile, ask, monkeypatch):
    """The run fails in words, and the next one loads the model anew."""
    loads = []

    def load(name):
        loads.append(name)
        return load_target("tiny-random", device="cpu", dtype="float32")

    shelf, state, other = ModelShelf(load), SessionState(), SessionState()
    run(other, ask(), shelf, turnstile)
    size = other.size()

    def gone(*arguments, **options):
        raise RuntimeError("CUDA error: unspecified launch failure\nCompile with `TORCH_USE_CUDA_")

    monkeypatch.setattr(shelf.current, "verify", gone)
    end = run(state, ask(), shelf, turnstile)
    assert "does not answer any more" in end["message"]
    assert loads == ["any"]
    assert other.size() == size
    for session in (state, other):
        assert run(session, ask(), shelf, turnstile)["message"] is None
    assert loads == ["any", "any"]
    assert state.trace.text == other.trace.text


def test_exports_need_no_room_on_the_disk(trace, monkeypatch):
    """They are made in memory and saved by the browser; a file that does not fit says so."""

    def full(*arguments, **options):
        raise OSError(errno.ENOSPC, "No space left on device")

    for kind in EXPORTS:  # scripts and styles are read once
        parcel(trace, kind)
    monkeypatch.setattr("builtins.open", full)
    monkeypatch.setattr(io, "open", full)
    monkeypatch.setattr(Path, "write_text", full)
    for kind in EXPORTS:
        assert parcel(trace, kind)["text"]


def test_what_nobody_expected_is_logged_and_not_shown(caplog):
    """No traceback and no message reaches the page; the log has the place and no message."""
    try:
        raise KeyError("what a visitor typed")
    except KeyError as error:
        words = explain(error)
    assert words == "Something went wrong inside the program (KeyError); see its log."
    assert "test_faults.py" in caplog.text
    assert "what a visitor typed" not in caplog.text


def test_a_stuck_step_is_told_to_its_visitor_and_to_those_who_wait(target, shelf, ask, monkeypatch):
    """A step cannot be interrupted; the line says so, and goes on when it returns."""
    turnstile = Turnstile(stall=0.3)
    held, entered = threading.Event(), threading.Event()
    verify = target.verify

    def slow(*arguments, **options):
        if not entered.is_set():
            entered.set()
            held.wait(30)
        return verify(*arguments, **options)

    monkeypatch.setattr(target, "verify", slow)
    notes: dict[str, list[str]] = {"first": [], "second": []}
    ends, states = {}, {name: SessionState() for name in notes}

    def visit(name):
        for value in stream(states[name], ask(), "any", shelf, turnstile):
            notes[name].append(value["note"])
        ends[name] = json.loads(value["end"])

    threads = [threading.Thread(target=visit, args=(name,)) for name in notes]
    threads[0].start()
    assert entered.wait(30)
    threads[1].start()
    for name, words in (("first", "cannot be interrupted"), ("second", "stuck in one step")):
        while not any(words in note for note in notes[name]):
            assert not held.wait(0.05)
            assert threads[0].is_alive()
    held.set()
    for thread in threads:
        thread.join(30)
    assert {end["finish"] for end in ends.values()} == {"length"}
    assert states["first"].trace.text == states["second"].trace.text
    assert turnstile.stalled() is None


def test_a_run_that_nobody_listens_to_ends(monkeypatch):
    """The buffer is bounded, and a browser that takes nothing does not hold the device."""
    monkeypatch.setattr("app.worker._BUFFER", 50)
    monkeypatch.setattr("app.worker._PATIENCE", 0.2)
    turnstile = Turnstile()

    def produce(stop, note):
        while not stop():
            yield "step"

    worker = Worker(turnstile, produce)
    worker.join(30)
    assert not worker.alive
    assert len(worker.take(0)) == 51
    assert turnstile.ahead(turnstile.join()) == 0


def test_a_slow_listener_loses_nothing(monkeypatch):
    """A full buffer waits a little for whoever empties it."""
    monkeypatch.setattr("app.worker._BUFFER", 5)
    worker = Worker(Turnstile(), lambda stop, note: iter(range(200)))
    taken = []
    while worker.alive or not taken or taken[-1] != 199:
        taken += worker.take(0.01)
        worker.join(0.001)
    assert taken == list(range(200))


def test_a_recording_that_is_too_large_ends_the_run(target, turnstile, ask, monkeypatch):
    """What came so far stays, and the page says why there is no more."""
    monkeypatch.setattr("app.jobs._STEP_BYTES", 400_000)
    shelf, state = ModelShelf(lambda name: target, Host(max_file_mb=1)), SessionState()
    end = run(state, ask("autoregressive", 300), shelf, turnstile)
    assert "has reached 1 MB" in end["message"]
    assert len(state.trace.steps) == 3
    assert end["finish"] == "cancelled"


def test_the_size_of_a_recording_is_estimated_well_enough(traces):
    """Within a factor of two of the JSON that it becomes, for every method."""
    from app.jobs import trace_bytes

    for trace in traces.values():
        real = len(json.dumps(trace.to_json()["steps"], separators=(",", ":")))
        assert 0.5 < sum(map(trace_bytes, trace.steps)) / real < 2


def test_a_prompt_longer_than_the_host_takes(target, turnstile, ask):
    shelf = ModelShelf(lambda name: target, Host(max_prompt_tokens=16))
    end = run(SessionState(), ask(prompt="word " * 40), shelf, turnstile)
    assert "this app takes 16" in end["message"]


def test_a_full_memory_drops_its_oldest_entries_and_says_so(target, turnstile, ask):
    """Methods used longest ago go first, then the entries written longest ago."""
    from app.events import _size

    shelf = ModelShelf(lambda name: target, Host(session_mb=1))
    state = SessionState()
    for method in ("token-recycling", "recap", "recap-plus"):
        for number in range(8):
            run(state, ask(method, 200, f"Say {number}."), shelf, turnstile)
            assert state.size()[1] <= 1_000_000
    assert state.dropped > 0
    assert "oldest" in _size(state)["text"]
    assert "recap-plus" in state.memories(target.name)
    state.clear()
    assert "oldest" not in _size(state)["text"]


def test_a_full_line_is_told_at_once(target, shelf, ask):
    """And it changes nothing: a run of the same visitor that is in the line already stays there."""
    turnstile = Turnstile(length=1)
    ticket, state = turnstile.join(), SessionState()
    values = stream(state, ask(), "any", shelf, turnstile)
    serial = next(values)["serial"]
    with pytest.raises(BusyError, match="Too many are waiting"):
        next(stream(state, ask(), "any", shelf, turnstile))
    with pytest.raises(BusyError, match="Too many are waiting"):
        next(stream_race(state, ask(), ["recap", "autoregressive"], "any", shelf, turnstile,
                         cold=False))  # fmt: skip
    assert state.serial == serial
    turnstile.leave(ticket)
    *_, last = values
    assert json.loads(last["end"])["finish"] == "length"
