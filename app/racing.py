"""Several methods on one request, side by side: the engine's race, for the page.

The value grows like a run's: {"serial", "status", "note", "unequal", "lanes": [...], "end"}; a lane
is {"name", "about", "first", "vocabulary", "steps", "clock"} with the same compact steps.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from app.hosting import Host
from app.jobs import Asked, Memories, NewWords, Stop, Words, bare, full, spell, trace_bytes
from app.line import Turnstile
from app.models import ModelShelf
from app.payload import RunPayload, describe, dumps
from app.state import SessionState
from app.streaming import UPDATES_PER_SECOND
from app.worker import Note, Worker
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
    """One lane made its prefill (`step` is None) or a pass; the words that are new with it."""

    lane: str
    step: Step | None
    prefill: dict[str, Any] | None
    words: Words
    clock: float


@dataclass(frozen=True)
class Raced:
    """The race is over. `message`: why it was ended, where nobody stopped it."""

    comparison: dict[str, dict[str, Any]]
    finished: bool
    finishes: dict[str, str | None]
    message: str | None = None


RaceEvent = Lined | Moved | Raced


@dataclass(frozen=True)
class RaceJob:
    """A race as a job."""

    asked: Asked
    methods: tuple[str, ...]
    cold: bool

    @property
    def tokens(self) -> int:
        return self.asked.max_new_tokens * len(self.methods)

    def events(
        self, target: Target, memories: Memories, stop: Stop, host: Host
    ) -> Iterator[RaceEvent]:
        from recap.race import Race

        asked = self.asked
        own = {name: METHODS[name].settings() for name in self.methods}
        own[asked.method] = asked.settings
        race = Race(
            target,
            asked.prepare(target, host),
            self.methods,
            memories=memories,
            settings={name: own[name] for name in self.methods},
            max_new_tokens=asked.max_new_tokens,
            cold=self.cold,
        )
        yield Lined(
            {lane.name: bare(lane.run.trace) for lane in race.lanes},
            race.histories,
            race.unequal_histories,
        )
        new, size, message = {name: NewWords() for name in self.methods}, 0, None
        most = host.max_file_mb * 1_000_000 * len(self.methods)
        steps = race.steps()
        try:
            stopped = False
            for lane, step in steps:
                trace = lane.run.trace
                if step is None:
                    words = spell(target, trace.token_ids[0])
                else:
                    words = new[lane.name].of(trace)
                    size += trace_bytes(step)
                yield Moved(lane.name, step, None if step else trace.prefill, words, lane.clock)
                if size > most:
                    message = full(host)
                if stopped := stop() or message is not None:
                    break
        finally:
            steps.close()
        finishes = {lane.name: lane.run.trace.finish for lane in race.lanes}
        yield Raced(race.comparison(), not stopped, finishes, message)


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

    def take(self, event: RaceEvent) -> None:
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
            trace.vocabulary.update(event.words)
            if event.step is None:
                trace.prefill = event.prefill or trace.prefill
                payload.begin(trace)
            else:
                payload.add(trace, [event.step])
            self._clocks[event.lane] = event.clock
            done = 1 if event.step is None else event.step.position + event.step.accepted_length
            self.curves[event.lane].append((event.clock, done))
        else:
            self.close(event.message, event)

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
                "finish": event.finishes if event else {},
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
    """Race and yield the state as it grows. A run or race of this session that goes on is ended.

    Raises `BusyError`, which leaves everything as it was.
    """
    job = RaceJob(asked, tuple(methods), cold)

    def produce(stop: Stop, note: Note) -> Iterator[Any]:
        target = shelf.get(model, note)
        note("Warming every shape up, so that no lane pays for being the first…")
        return shelf.events(job, target, state.memories(target.name), stop)

    worker = Worker(turnstile, produce, state.visitor)
    race = RaceState(state.begin(worker))
    try:
        for events in worker.rounds():
            for event in events:
                race.take(event)
            race.note = worker.status()
            if race.note == worker.note and any(race.curves.values()):
                race.note = ""  # what was being prepared is done
            yield race
            worker.join(1 / UPDATES_PER_SECOND)
        race.close(worker.message or "Stopped before it began.")
        yield race
    finally:
        worker.stop()
