"""From a run's events to values for the page: throttled, complete at the end, cancelled with it.

for value in stream(state, asked, "demo", shelf, turnstile):
    ...                                  # at most `UPDATES_PER_SECOND`, the last one whole
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

from app.jobs import Asked, Stop, trace_bytes
from app.line import Turnstile
from app.models import ModelShelf
from app.payload import RunPayload
from app.runner import Closed, Event, Opened, Passed, Prefilled, RunJob
from app.state import SHOWN, SessionState
from app.worker import Note, Produce, Worker
from recap.trace import Step, Trace

UPDATES_PER_SECOND = 10
#: Share of an update's time that may go to the second channel while the run goes on.
_DETAIL_SHARE = 0.02
#: Seconds after which a value is sent also where nothing changed. A visitor who has gone is only
#: noticed when something is sent.
_SILENCE = 1.0


class Collector:
    """Puts a run's events together: the trace so far, and its value for the page."""

    def __init__(self, payload: RunPayload) -> None:
        self.payload = payload
        self.trace: Trace | None = None
        self.begun = False
        self._fresh: list[Step] = []

    def take(self, event: Event) -> None:
        """Add one event."""
        if isinstance(event, Opened):
            self.trace = event.trace
            self.payload.open(event.trace)
            return
        trace = self.trace
        assert trace is not None, "a run opens first"
        if isinstance(event, Prefilled):
            trace.prefill, trace.text = event.prefill, event.text
            trace.vocabulary.update(event.words)
            trace.token_ids.append(event.prefill["first_token"])
            self.payload.begin(trace)
            self.begun = True
        elif isinstance(event, Passed):
            trace.vocabulary.update(event.words)
            trace.steps.append(event.step)
            trace.token_ids += [emitted.token for emitted in event.step.emitted]
            trace.text = event.text
            self._fresh.append(event.step)
        elif isinstance(event, Closed):
            for name in ("finish", "message", "text", "token_ids", "memory", "vocabulary"):
                setattr(trace, name, getattr(event.trace, name))

    def encode(self, seconds: float) -> None:
        """Encode the steps that came, and details of earlier ones for about so many seconds."""
        if self.trace is None:
            return
        self.payload.add(self.trace, self._fresh)
        self._fresh = []
        until = time.perf_counter() + seconds
        while self.payload.details < len(self.trace.steps) and time.perf_counter() < until:
            self.payload.add_details(self.trace.steps[self.payload.details], self.trace)

    def close(self, message: str | None = None) -> None:
        """The run is over; `message` says what went wrong."""
        self.encode(0)
        if self.trace is None:
            self.payload.fail(message or "Stopped before it began.")
            return
        if message and self.trace.finish in (None, "error"):
            self.trace.finish, self.trace.message = "error", message
        self.payload.close(self.trace)


def stream(
    state: SessionState,
    asked: Asked,
    model: str,
    shelf: ModelShelf,
    turnstile: Turnstile,
    *,
    remember: bool = True,
    show: int | None = None,
) -> Iterator[dict[str, Any]]:
    """Run what was asked and yield the page's value as it grows.

    A run or race of this session that goes on is ended. Raises `BusyError`, which leaves everything
    as it was.
    """
    worker = Worker(turnstile, _producer(state, asked, model, shelf, remember), state.visitor)
    state.shown = serial = state.begin(worker)
    collector = Collector(RunPayload(serial, show=show))
    payload = collector.payload
    interval = 1 / UPDATES_PER_SECOND
    try:
        sent, when = None, 0.0
        for events in worker.rounds():
            for event in events:
                collector.take(event)
            collector.encode(interval * _DETAIL_SHARE)
            if collector.trace is not None and state.shown == serial:
                state.trace = collector.trace  # else something newer is shown already
            payload.note = worker.status()
            reading = payload.status == "running" and not collector.begun
            if reading and not payload.note:
                payload.note = "Reading the prompt…"
            look = (payload.status, payload.note, payload.steps, payload.details, len(events))
            if look != sent or time.monotonic() - when > _SILENCE:
                sent, when = look, time.monotonic()
                yield payload.value()
                worker.join(interval)  # at most so many updates a second, but no late end
        collector.close(worker.message)
        yield payload.value()
        if collector.trace is not None:
            if state.trace is collector.trace:
                size = sum(map(trace_bytes, collector.trace.steps))
                SHOWN.keep(state, size, shelf.host.traces_mb * 1_000_000)
            collector.encode(float("inf"))
            yield payload.value()
    finally:
        worker.stop()


def _producer(
    state: SessionState, asked: Asked, model: str, shelf: ModelShelf, remember: bool
) -> Produce:
    def produce(stop: Stop, note: Note) -> Iterator[Event]:
        target = shelf.get(model, note)
        epoch = state.epoch
        held = {asked.method: state.memory(target, asked.method)} if remember else {}
        for event in shelf.events(RunJob(asked), target, held, stop):
            if isinstance(event, Closed) and remember:
                state.keep(target, asked.method, event.memory, epoch)
                state.bound(shelf.host.session_mb * 1_000_000)
            yield event

    return produce
