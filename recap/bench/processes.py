"""Data-parallel runs: `accelerate launch -m recap bench …` gives every process its share.

Each process has the whole model on a device of its own and takes every n-th prompt; the first one
gathers what all have measured. A run that was not started by accelerate is one process, and needs
no accelerate.
"""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, TypeVar

from recap.errors import RecapError

#: How long the first to finish waits for the last: shares may take hours.
_PATIENCE = timedelta(days=2)

T = TypeVar("T")


@dataclass(frozen=True)
class Processes:
    """This process among all; `device` is where its model shall be, None where it may choose."""

    rank: int = 0
    count: int = 1
    device: str | None = None

    def share(self, items: Sequence[T]) -> list[T]:
        """What this process takes."""
        return list(items[self.rank :: self.count])

    def gather(self, part: Sequence[T]) -> list[T]:
        """All parts in the order of `share`'s input. Every process must call it."""
        if self.count == 1:
            return list(part)
        from accelerate.utils import gather_object

        ranked: list[tuple[int, int, T]] = gather_object(
            [(place, self.rank, value) for place, value in enumerate(part)]
        )
        return [value for *_, value in sorted(ranked, key=lambda entry: entry[:2])]


def join_processes(device: str) -> Processes:
    """This process's place; `device` is what the user asked for. Raises `RecapError`."""
    if int(os.environ.get("WORLD_SIZE", "1")) < 2:
        return Processes()
    if importlib.util.find_spec("accelerate") is None:
        raise RecapError("Several processes need the package accelerate: pip install accelerate")
    from accelerate import PartialState

    on_cpu = device == "cpu" or os.environ.get("ACCELERATE_USE_CPU", "").lower() == "true"
    options: dict[str, Any] = {"cpu": on_cpu, "timeout": _PATIENCE}
    state = PartialState(**options)
    chosen = str(state.device) if device in ("auto", "cuda", "cpu") else device
    return Processes(state.process_index, state.num_processes, chosen)


def leave_processes() -> None:
    """Close what `join_processes` has opened."""
    if int(os.environ.get("WORLD_SIZE", "1")) > 1:
        from accelerate import PartialState

        PartialState().destroy_process_group()
