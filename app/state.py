"""What belongs to one browser session: memories, its latest trace, its current run.

Gradio keeps one of these for each session and drops it some time after the tab is closed. Sessions
share nothing but the model's weights.
"""

from __future__ import annotations

import threading
import time
import weakref
from collections import OrderedDict
from typing import TYPE_CHECKING, Any

from app.worker import Worker
from recap.trace import Trace

if TYPE_CHECKING:
    from recap.memory import PersistentMemory
    from recap.targets.base import Target

#: Models whose memories a session keeps; the one used longest ago goes first.
_MAX_MODELS = 3
#: What a trace's objects take, over its JSON: 4.8 for the bundled one, and what Gradio keeps of it.
_IN_MEMORY = 6


class SessionState:
    """One browser session."""

    def __init__(self) -> None:
        self.serial = 0
        #: Whose turn a run takes in the line: the address, or the name of who has logged in.
        self.visitor: object = None
        self.worker: Worker | None = None
        self.trace: Trace | None = None
        #: The serial of the run or loaded trace that the page shows; `trace` is its own.
        self.shown = 0
        #: Why the latest "run" or "race" could not begin.
        self.refused: dict[str, str] = {}
        #: Tokens over time of a race that is over, by lane, until its chart is drawn.
        self.curves: dict[str, list[tuple[float, int]]] | None = None
        #: The step to go to in the next run, where a link named one.
        self.pending_step: int | None = None
        #: Entries that had to go because the memories had become too large.
        self.dropped = 0
        #: Whether this session had been here before, and what it had is gone.
        self.lost = False
        #: Whether the trace had to make room for others'.
        self.gone = False
        self._epoch = 0
        # A run's thread keeps and bounds memories while the page clears, counts and reads them.
        self._lock = threading.RLock()
        self._memories: OrderedDict[str, dict[str, PersistentMemory]] = OrderedDict()

    def __deepcopy__(self, memo: dict[int, Any]) -> SessionState:
        """Gradio copies the initial value for every session: each starts empty."""
        return SessionState()

    def next_serial(self) -> int:
        """The serial of the next thing shown; the browser drops what is older than it has.

        It goes by the clock, so that a page stays usable where its session was lost meanwhile.
        """
        self.serial = max(self.serial + 1, time.time_ns() // 1_000_000)
        return self.serial

    def take_pending_step(self) -> int | None:
        """The step that a link named, once."""
        step, self.pending_step = self.pending_step, None
        return step

    def begin(self, worker: Worker) -> int:
        """Take a run's or race's worker; the serial of what it will show.

        A session has one of them at a time: whoever presses Run again wants the new answer and not
        two, so the one before ends.
        """
        self.stop()
        self.worker = worker
        return self.next_serial()

    def stop(self) -> None:
        """End the current run, if there is one; its trace so far stays."""
        if self.worker is not None:
            self.worker.stop()

    def memory(self, target: Target, method: str) -> PersistentMemory:
        """This session's memory of a method on a model; empty at first."""
        with self._lock:
            held = self._memories.setdefault(target.name, {})
            self._memories.move_to_end(target.name)
            while len(self._memories) > _MAX_MODELS:
                self._memories.popitem(last=False)
            if method not in held:
                from recap.decoding import new_memory

                held[method] = new_memory(target)
            held[method] = held.pop(method)  # the latest is last
            return held[method]

    @property
    def epoch(self) -> int:
        """How often everything was forgotten; a run notes it when it starts."""
        return self._epoch

    def keep(self, target: Target, method: str, memory: PersistentMemory, epoch: int) -> None:
        """Take a memory back from a run that began in `epoch`, unless all was forgotten since."""
        with self._lock:
            if epoch == self._epoch:
                self._memories.setdefault(target.name, {})[method] = memory

    def memories(self, model: str) -> dict[str, PersistentMemory]:
        """This session's memories on a model, by method."""
        with self._lock:
            return dict(self._memories.get(model, {}))

    def clear(self) -> None:
        """Forget everything that was learnt."""
        with self._lock:
            self._memories.clear()
            self.dropped, self.lost = 0, False
            self._epoch += 1

    def bound(self, limit: int) -> None:
        """Let the memories take no more than `limit` bytes: the oldest entries go first.

        Whole memories, the one used longest ago first; of the last one, what was written longest
        ago.
        """
        with self._lock:
            every = self._oldest_first()
            for model, method in every:
                self._memories[model][method].settle()
            while len(every) > 1 and self.size()[1] > limit:
                model, method = every.pop(0)
                self.dropped += sum(self._memories[model].pop(method).entries().values())
                if not self._memories[model]:
                    del self._memories[model]
            for model, method in every:
                self.dropped += self._memories[model][method].shrink(limit)

    def _oldest_first(self) -> list[tuple[str, str]]:
        """(model, method) of every memory, the one used longest ago first."""
        return [(model, name) for model, held in list(self._memories.items()) for name in held]

    def size(self) -> tuple[int, int]:
        """(entries, bytes) over all memories."""
        with self._lock:
            every = [memory for held in self._memories.values() for memory in held.values()]
            return (
                sum(sum(memory.entries().values()) for memory in every),
                sum(sum(memory.nbytes().values()) for memory in every),
            )


class Shown:
    """The traces of all sessions, bounded together: what was shown longest ago goes first."""

    def __init__(self) -> None:
        self._sizes: weakref.WeakKeyDictionary[SessionState, int] = weakref.WeakKeyDictionary()
        self._lock = threading.Lock()

    def keep(self, state: SessionState, size: int, most: int) -> None:
        """This session shows a trace of so many bytes of JSON; all take `most` bytes, about."""
        with self._lock:
            self._sizes.pop(state, None)
            self._sizes[state] = size * _IN_MEMORY
            over = sum(self._sizes.values()) - most
            for other, taken in [*self._sizes.items()]:
                if over <= 0 or other is state:  # the last one
                    break
                other.trace, other.gone = None, True
                del self._sizes[other]
                over -= taken


SHOWN = Shown()
