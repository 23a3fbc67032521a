"""What belongs to one browser session: memories, its latest trace, its current run.

Gradio keeps one of these for each session and drops it some time after the tab is closed. Sessions
share nothing but the model's weights.
"""

from __future__ import annotations

import time
from collections import OrderedDict
from typing import TYPE_CHECKING, Any

from app.runner import Worker
from recap.memory import PersistentMemory
from recap.trace import Trace

if TYPE_CHECKING:
    from recap.targets.base import Target

#: Models whose memories a session keeps; the one used longest ago goes first.
_MAX_MODELS = 3


class SessionState:
    """One browser session."""

    def __init__(self) -> None:
        self.serial = 0
        self.worker: Worker | None = None
        self.trace: Trace | None = None
        #: The step to go to in the next run, where a link named one.
        self.pending_step: int | None = None
        self._epoch = 0
        self._memories: OrderedDict[str, dict[str, PersistentMemory]] = OrderedDict()

    def __deepcopy__(self, memo: dict[int, Any]) -> SessionState:
        """Gradio copies the initial value for every session: each starts empty."""
        return SessionState()

    def next_serial(self) -> int:
        """The number of the next thing shown; the browser drops what is older than it has.

        It goes by the clock, so that a page stays usable where its session was lost meanwhile.
        """
        self.serial = max(self.serial + 1, time.time_ns() // 1_000_000)
        return self.serial

    def take_pending_step(self) -> int | None:
        """The step that a link named, once."""
        step, self.pending_step = self.pending_step, None
        return step

    def stop(self) -> None:
        """End the current run, if there is one; its trace so far stays."""
        if self.worker is not None:
            self.worker.stop()

    def memory(self, target: Target, method: str) -> PersistentMemory:
        """This session's memory of a method on a model; empty at first."""
        held = self._memories.setdefault(target.name, {})
        self._memories.move_to_end(target.name)
        while len(self._memories) > _MAX_MODELS:
            self._memories.popitem(last=False)
        if method not in held:
            from recap.decoding import new_memory

            held[method] = new_memory(target)
        return held[method]

    @property
    def epoch(self) -> int:
        """How often everything was forgotten; a run notes it when it starts."""
        return self._epoch

    def keep(
        self, target: Target, method: str, memory: PersistentMemory, epoch: int | None = None
    ) -> None:
        """Take a memory back from a run, unless it was forgotten in the meantime."""
        if epoch is None or epoch == self._epoch:
            self._memories.setdefault(target.name, {})[method] = memory

    def memories(self, model: str) -> dict[str, PersistentMemory]:
        """This session's memories on a model, by method."""
        return dict(self._memories.get(model, {}))

    def clear(self) -> None:
        """Forget everything that was learnt."""
        self._memories.clear()
        self._epoch += 1

    def size(self) -> tuple[int, int]:
        """(entries, bytes) over all memories."""
        every = [memory for held in self._memories.values() for memory in held.values()]
        return (
            sum(sum(memory.entries().values()) for memory in every),
            sum(sum(memory.nbytes().values()) for memory in every),
        )
