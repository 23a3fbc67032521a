"""A run is a function of its arguments; the worker takes turns and stops."""

import pickle
import threading

import pytest

from app.line import Turnstile
from app.runner import Closed, Opened, Passed, Prefilled, Worker, decode
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


def test_who_waits_for_the_first_model_is_told_so(monkeypatch):
    """It is no run that is stuck, however long it takes."""
    turnstile = Turnstile(stall=60)
    loading = turnstile.join(what="the model is being loaded")
    assert turnstile.wait(loading, lambda: False)
    turnstile.beat(loading, preparing=True)
    workers = [Worker(turnstile, lambda stop, note: iter(())) for _ in range(3)]
    said = ["", "; 1 run is before yours", "; 2 runs are before yours"]
    assert [w.status() for w in workers] == [
        f"Waiting: the model is being loaded{more}." for more in said
    ]
    monkeypatch.setattr(turnstile, "stalled", lambda: 90.0)
    assert workers[0].status() == "Waiting: the model is being loaded, for 90 s now."
    turnstile.leave(loading, measured=False)
    for worker in workers:
        worker.join(10)
        assert not worker.alive


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


def test_the_turnstile_keeps_the_order_of_arrival():
    """One at a time, first come first served, and everybody knows how many are before them."""
    turnstile, done = Turnstile(), []
    gate = threading.Event()

    def wait(number):
        def produce(stop, note):
            gate.wait(5)
            done.append(number)
            yield number

        return produce

    workers = [Worker(turnstile, wait(number)) for number in range(3)]
    assert [worker.status() for worker in workers] == [
        "", "Waiting: 1 run is before yours.", "Waiting: 2 runs are before yours.",
    ]  # fmt: skip
    gate.set()
    for worker in workers:
        worker.join(5)
    assert done == [0, 1, 2]


def test_a_waiting_worker_can_be_stopped():
    """Stop takes effect while waiting in the line, and the line moves on."""
    turnstile = Turnstile()
    ticket = turnstile.join()
    worker = Worker(turnstile, lambda stop, note: iter(["never"]))
    worker.stop()
    worker.join(5)
    assert not worker.alive
    assert worker.take(0) == []
    turnstile.leave(ticket)
    assert turnstile.wait(turnstile.join(), lambda: False)


def test_a_workers_error_is_explained():
    """An exception ends the worker, is kept, and frees the line."""
    turnstile = Turnstile()

    def produce(stop, note):
        yield 1
        raise RuntimeError("broken")

    worker = Worker(turnstile, produce)
    worker.join(5)
    assert worker.take(0) == [1]
    assert "RuntimeError" in worker.message
    assert turnstile.ahead(turnstile.join()) == 0
