"""Several methods on one request, side by side: the engine's race, for the page.

The value grows like a run's: {"serial", "status", "note", "lanes": [...], "end"}; a lane is
{"name", "about", "first", "vocabulary", "steps", "clock", "end"} with the same compact steps.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from app.models import ModelShelf
from app.payload import RunPayload, describe, dumps
from app.runner import Asked, Turnstile, Worker, spell
from app.state import SessionState
from app.streaming import UPDATES_PER_SECOND, explain
from recap.drafters import METHODS
from recap.trace import Step, Trace

if TYPE_CHECKING:
    from recap.targets.base import Target


@dataclass(frozen=True)
class Lined:
    """The lanes have their traces; `unequal` says that their memories have unequal histories."""

    traces: dict[str, Trace]
    histories: dict[str, int]
    unequal: bool


@dataclass(frozen=True)
class Moved:
    """One lane made its prefill (`step` is None) or a pass."""

    lane: str
    step: Step | None
    clock: float


@dataclass(frozen=True)
class Raced:
    """The race is over."""

    comparison: dict[str, dict[str, Any]]
    finished: bool


def race_events(
    target: Target,
    asked: Asked,
    methods: Sequence[str],
    memories: dict[str, Any],
    cold: bool,
    stop: Callable[[], bool],
) -> Iterator[Lined | Moved | Raced]:
    """Race to the end, or until `stop()` says so between two passes."""
    from recap.race import Race

    own = {name: METHODS[name].settings() for name in methods}
    own[asked.method] = asked.settings
    race = Race(
        target,
        target.prepare(asked.prompt, asked.image),
        methods,
        memories=memories,
        settings={name: own[name] for name in methods},
        max_new_tokens=asked.max_new_tokens,
        cold=cold,
    )
    yield Lined(
        {lane.name: lane.run.trace for lane in race.lanes}, race.histories, race.unequal_histories
    )
    steps = race.steps()
    try:
        stopped = False
        for lane, step in steps:
            if step is None:
                trace = lane.run.trace
                trace.vocabulary.update(spell(target, trace.token_ids[0]))
            yield Moved(lane.name, step, lane.clock)
            if stopped := stop():
                break
    finally:
        steps.close()
    yield Raced(race.comparison(), not stopped)


class RaceState:
    """The value of a race as it grows."""

    def __init__(self, serial: int) -> None:
        self.serial = serial
        self.status, self.note = "waiting", ""
        self.traces: dict[str, Trace] = {}
        self.end: str | None = None
        self.curves: dict[str, list[tuple[float, int]]] = {}
        self.comparison: dict[str, dict[str, Any]] = {}
        self._payloads: dict[str, RunPayload] = {}
        self._abouts: dict[str, str] = {}
        self._clocks: dict[str, float] = {}
        self._unequal = False

    def take(self, event: Lined | Moved | Raced) -> None:
        """Add one event."""
        if isinstance(event, Lined):
            self.status, self.traces = "running", event.traces
            self._unequal = event.unequal
            for name, trace in event.traces.items():
                self._payloads[name] = RunPayload(self.serial)
                self._payloads[name].open(trace)
                about = {**describe(trace), "history": event.histories[name]}
                self._abouts[name] = dumps(about)
                self.curves[name] = []
        elif isinstance(event, Moved):
            payload, trace = self._payloads[event.lane], self.traces[event.lane]
            if event.step is None:
                payload.begin(trace)
            else:
                payload.add(trace, [event.step])
            self._clocks[event.lane] = event.clock
            done = 1 if event.step is None else event.step.position + event.step.accepted_length
            self.curves[event.lane].append((event.clock, done))
        else:
            self.close(None, event)

    def close(self, message: str | None, event: Raced | None = None) -> None:
        """The race is over, or it failed."""
        self.status, self.note = "done", ""
        if self.end is not None:
            return
        self.comparison = event.comparison if event else {}
        self.end = dumps(
            {
                "comparison": self.comparison,
                "finished": bool(event and event.finished),
                "message": message,
                "finish": {name: trace.finish for name, trace in self.traces.items()},
            }
        )

    def value(self) -> dict[str, Any]:
        """The value as it is now."""
        lanes = []
        for name, payload in self._payloads.items():
            value = payload.value()
            lanes.append(
                {
                    "name": name,
                    "about": self._abouts[name],
                    "first": value["first"],
                    "vocabulary": value["vocabulary"],
                    "steps": value["steps"],
                    "clock": self._clocks.get(name, 0.0),
                }
            )
        return {
            "serial": self.serial,
            "status": self.status,
            "note": self.note,
            "unequal": self._unequal,
            "lanes": lanes,
            "end": self.end,
        }


def stream_race(
    state: SessionState,
    asked: Asked,
    methods: Sequence[str],
    model: str,
    shelf: ModelShelf,
    turnstile: Turnstile,
    *,
    cold: bool,
) -> Iterator[RaceState]:
    """Race and yield the state as it grows. A run or race of this session that goes on is ended."""
    state.stop()
    race = RaceState(state.next_serial())

    def produce(
        stop: Callable[[], bool], note: Callable[[str], None]
    ) -> Iterator[Lined | Moved | Raced]:
        target = shelf.get(model, note)
        note("Warming every shape up, so that no lane pays for being the first…")
        memories = state.memories(target.name)
        return race_events(target, asked, methods, memories, cold, stop)

    worker = Worker(turnstile, produce)
    state.worker = worker
    try:
        while True:
            over = not worker.alive
            events = worker.take(0 if over else 0.25)
            for event in events:
                race.take(event)
            if race.status == "waiting" or not any(race.curves.values()):
                ahead = worker.ahead
                race.note = f"Waiting: {ahead} before yours." if ahead else worker.note
            else:
                race.note = ""
            if over and not events:
                break
            yield race
            worker.join(1 / UPDATES_PER_SECOND)
        race.close(explain(worker.error) if worker.error else "Stopped before it began.")
        yield race
    finally:
        worker.stop()
