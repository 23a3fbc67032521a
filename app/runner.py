"""A run: a request and a memory in, events out, the memory handed back at the end.

`decode` is a plain generator without hidden state: what it needs are its arguments, and all that it
yields is CPU data. The memory comes back also when the run is stopped or fails.

    for event in decode(target, asked, memory, stop=lambda: False):
        ...
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from app.hosting import Host
from app.jobs import Asked, Memories, NewWords, Stop, Words, bare, full, spell, trace_bytes
from recap.errors import RecapError
from recap.trace import Step, Trace

if TYPE_CHECKING:  # torch and transformers take seconds to import, and the page need not wait
    from recap.memory import PersistentMemory
    from recap.targets.base import Target


@dataclass(frozen=True)
class Opened:
    """The run has its trace, still without steps."""

    trace: Trace


@dataclass(frozen=True)
class Prefilled:
    """The prompt is read, and the first token is there."""

    prefill: dict[str, Any]
    words: Words
    text: str


@dataclass(frozen=True)
class Passed:
    """One verification pass, and the words that are new with it."""

    step: Step
    words: Words
    text: str


@dataclass(frozen=True)
class Closed:
    """The run is over. `trace` is the whole without its steps; `memory` is what it learnt."""

    trace: Trace
    memory: PersistentMemory


Event = Opened | Prefilled | Passed | Closed


def decode(
    target: Target,
    asked: Asked,
    memory: PersistentMemory,
    stop: Stop,
    host: Host | None = None,
) -> Iterator[Event]:
    """Decode to the end, or until `stop()` says so between two passes.

    `memory` is changed and handed back in `Closed`, also after Stop and after an error, which is
    raised behind it. Raises `RecapError` where the run cannot begin.
    """
    from recap.decoding import Run

    host = host or Host()
    run = Run(
        target,
        asked.prepare(target, host),
        asked.method,
        settings=asked.settings,
        memory=memory,
        max_new_tokens=asked.max_new_tokens,
    )
    yield Opened(bare(run.trace))
    steps = run.steps()
    fault: Exception | None = None
    try:
        run.prefill()
        first = spell(target, run.trace.prefill["first_token"])
        yield Prefilled(run.trace.prefill, first, run.trace.text)
        new, size = NewWords(), 0
        while not stop():
            step = next(steps, None)
            if step is None:
                break
            yield Passed(step, new.of(run.trace), run.trace.text)
            size += trace_bytes(step)
            if size > host.max_file_mb * 1_000_000:
                run.cancel()
                run.trace.message = full(host)
        run.cancel()
    except RecapError:
        if run.trace.finish is None:
            raise
    except Exception as error:
        fault = error
    finally:
        steps.close()
    yield Closed(bare(run.trace), memory)
    if fault is not None:
        raise fault


@dataclass(frozen=True)
class RunJob:
    """A run as a job."""

    asked: Asked

    @property
    def tokens(self) -> int:
        return self.asked.max_new_tokens

    def events(self, target: Target, memories: Memories, stop: Stop, host: Host) -> Iterator[Event]:
        from recap.decoding import new_memory

        held = memories.get(self.asked.method)
        memory = new_memory(target) if held is None else held
        return decode(target, self.asked, memory, stop, host)
