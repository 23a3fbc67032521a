"""The worker takes turns, stops, and says what it waits for."""

import threading

from app.line import Turnstile
from app.worker import Worker


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
