"""A GPU that is lent for one call, as Hugging Face's ZeroGPU lends it.

`spaces.GPU` runs a function in a forked process that has the GPU: arguments and everything yielded
are pickled, and what changes in there never comes back by itself. So a job goes in with its
memories as plain CPU data, and its events come out with the memory as plain CPU data.

    lent = Lent(shelf)                     # decorates; needs the package `spaces`, or `gpu=`
    for event in lent.events(job, target, memories, stop=lambda: False):
        ...                                # the same events as `job.events`
"""

from __future__ import annotations

import itertools
import mmap
import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from app.faults import FaultError, explain, is_device_lost
from app.jobs import Job, Memories, Stop

if TYPE_CHECKING:
    from app.models import ModelShelf
    from recap.targets.base import Target

#: Seconds asked for besides those of the tokens: the fork, moving the weights, the prefill.
_START_SECONDS = 15.0
#: A slow pace for the models that are worth a GPU; no answer is slower than one token a pass.
_SECONDS_PER_TOKEN = 0.06
_LOST = "The GPU that was lent does not answer any more. Run again: a fresh GPU is lent."


@dataclass(frozen=True)
class _Failed:
    """An error of the forked process, explained there: not every exception can be pickled."""

    message: str
    device: bool


class Lent:
    """Does jobs through `gpu`, a decorator with the interface of `spaces.GPU`."""

    def __init__(self, shelf: ModelShelf, gpu: Callable[..., Any] | None = None) -> None:
        if gpu is None:
            import spaces

            gpu = spaces.GPU
        self._most = shelf.host.gpu_seconds
        self._numbers = itertools.count(1)
        # One number in memory that the forked process shares: the job that is to stop. There is
        # one job at a time, and closing the call instead would lose what it has learnt.
        self._stopped = mmap.mmap(-1, 8)

        def work(number: int, job: Job, states: dict[str, Any]) -> Iterator[Any]:
            target = shelf.current
            assert target is not None, "the model is loaded before the fork"
            try:
                for event in job.events(
                    target, _from_states(states, target), lambda: self._to_stop(number), shelf.host
                ):
                    yield _packed(event)
            except Exception as error:
                words, lost = explain(error), is_device_lost(error)
                yield _Failed(_LOST if lost else words, lost)

        self._call = gpu(duration=self.duration)(work)

    def events(self, job: Job, target: Target, memories: Memories, stop: Stop) -> Iterator[Any]:
        """The events of a job that a forked process does."""
        number = next(self._numbers)
        states = {name: memory.state_dict() for name, memory in memories.items()}
        for event in self._lent(number, job, states):
            if isinstance(event, _Failed):
                raise FaultError(event.message, event.device)
            yield _unpacked(event, target)
            if stop():
                self._stopped[:] = struct.pack("q", number)

    def _lent(self, *arguments: Any) -> Iterator[Any]:
        """The call itself. What the platform says (quotas, a process that died) is marked as such.

        It has a visitor's request from the context of the thread that this runs in.
        """
        try:
            yield from self._call(*arguments)
        except Exception as error:
            raise FaultError(f"ZeroGPU says: {explain(error)}") from None

    def duration(self, number: int, job: Job, states: dict[str, Any]) -> int:
        """Seconds to ask for; a visitor's quota is checked against them before the call."""
        return min(self._most, round(_START_SECONDS + job.tokens * _SECONDS_PER_TOKEN))

    def _to_stop(self, number: int) -> bool:
        return struct.unpack("q", self._stopped[:])[0] == number


def _from_states(states: dict[str, Any], target: Target) -> Memories:
    from recap.memory import PersistentMemory

    memories = {}
    for name, state in states.items():
        memories[name] = PersistentMemory(target.vocabulary, target.tokenizer_id)
        memories[name].load_state_dict(state)
    return memories


def _packed(event: Any) -> Any:
    """An event as CPU data: a memory becomes its state."""
    memory = getattr(event, "memory", None)
    return replace(event, memory=memory.state_dict()) if memory is not None else event


def _unpacked(event: Any, target: Target) -> Any:
    state = getattr(event, "memory", None)
    if state is None:
        return event
    return replace(event, memory=_from_states({"": state}, target)[""])
