"""A job's thread: one at a time through a `Turnstile`, and never waiting for a browser.

    worker = Worker(turnstile, produce)
    for events in worker.rounds():
        ...

What the thread has to say goes into a buffer, and a run whose buffer nobody empties is ended.
"""

from __future__ import annotations

import contextvars
import threading
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any

from app.faults import explain
from app.jobs import Stop
from app.line import Turnstile, about

#: Says what a job is getting ready; empty where it is.
Note = Callable[[str], None]
#: Makes a job's events once it has its turn.
Produce = Callable[[Stop, Note], Iterator[Any]]

#: Events that a worker keeps for whoever takes them.
_BUFFER = 1024
#: Seconds that it waits for them to be taken, once there are so many.
_PATIENCE = 5.0
#: Seconds between two looks at a worker that says nothing.
_LOOK = 0.25


class Worker:
    """Runs a generator of events in a thread, in its turn; `take` gives what has come.

    `produce(stop, note)` makes the generator once it is the worker's turn: it may load a model
    first, and `note(text)` says so. What it raises is explained in `message`. Raises `BusyError`
    where the line is full.
    """

    def __init__(
        self,
        turnstile: Turnstile,
        produce: Produce,
        visitor: object = None,
    ) -> None:
        self.message: str | None = None
        self.note = ""
        self._turnstile = turnstile
        self._ticket = turnstile.join(visitor)
        self._produce = produce
        self._events: deque[Any] = deque()
        self._stopped = threading.Event()
        self._news = threading.Event()
        self._taken = threading.Event()
        # With the visitor's request in it, by which a platform that lends GPUs knows them.
        context = contextvars.copy_context()
        self._thread = threading.Thread(
            target=context.run, args=(self._work,), name="recap-run", daemon=True
        )
        self._thread.start()

    @property
    def alive(self) -> bool:
        return self._thread.is_alive()

    def status(self) -> str:
        """What the visitor waits for, in words; empty while steps come as they should."""
        line = self._turnstile
        ahead, stalled = line.ahead(self._ticket), line.stalled()
        if ahead and (what := line.what):
            words = f"Waiting: {what}"
            if stalled is not None:
                words += f", for {_seconds(stalled)} now"
            return f"{words}; {_runs(ahead - 1)} before yours." if ahead > 1 else f"{words}."
        if ahead:
            words = f"Waiting: {_runs(ahead)} before yours"
            if stalled is not None:
                what = "is still getting ready" if line.preparing else "is stuck in one step"
                return (
                    f"{words}. The first of them {what}, for {_seconds(stalled)} now; the line "
                    "goes on when it returns."
                )
            expected = line.expected(self._ticket)
            return f"{words}, {about(expected)} to wait." if expected else f"{words}."
        if stalled is not None and self.alive:
            if line.preparing:
                return f"{self.note.rstrip('…')}: {_seconds(stalled)} so far…"
            return (
                f"Stuck: this step has taken {_seconds(stalled)} so far. It cannot be interrupted; "
                "the run goes on, or stops, when it returns."
            )
        return self.note

    def rounds(self) -> Iterator[list[Any]]:
        """Events as they come, to the end; an empty list now and then where there are none."""
        while True:
            over = not self.alive  # asked first: what came before the end is still taken
            events = self.take(0 if over else _LOOK)
            if over and not events:
                return
            yield events

    def stop(self) -> None:
        """End after the pass that is going on."""
        self._stopped.set()
        self._taken.set()

    def take(self, timeout: float) -> list[Any]:
        """Events since the last call; waits for the first of them at most `timeout` seconds."""
        self._news.wait(timeout)
        self._news.clear()
        events = []
        while self._events:
            events.append(self._events.popleft())
        self._taken.set()
        return events

    def join(self, timeout: float | None = None) -> None:
        """Wait for the thread to end."""
        self._thread.join(timeout)

    def _work(self) -> None:
        measured = False
        try:
            if self._turnstile.wait(self._ticket, self._stopped.is_set):
                for event in self._produce(self._stopped.is_set, self._say):
                    self._turnstile.beat(self._ticket)
                    self._put(event)
                measured = not self._stopped.is_set()
        except BaseException as error:
            self.message = explain(error)
        finally:
            self._turnstile.leave(self._ticket, measured=measured)
            self._news.set()

    def _put(self, event: Any) -> None:
        """Keep an event for whoever takes it. Where nobody does, the run is ended."""
        if len(self._events) >= _BUFFER and not self._stopped.is_set():
            self._taken.clear()
            if len(self._events) >= _BUFFER and not self._taken.wait(_PATIENCE):
                self.stop()
        self._events.append(event)  # after a stop little comes any more
        self._news.set()

    def _say(self, text: str) -> None:
        self.note = text
        self._turnstile.beat(self._ticket, preparing=bool(text))
        self._news.set()


def _runs(count: int) -> str:
    return f"{count} {'run is' if count == 1 else 'runs are'}"


def _seconds(spent: float) -> str:
    """Whole seconds, by tens where there are many: a note that changes is sent to the page."""
    return f"{round(spent) if spent < 10 else 10 * int(spent / 10)} s"
