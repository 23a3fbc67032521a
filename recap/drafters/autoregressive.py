"""Plain greedy decoding: one row a pass. The baseline that every speed-up is measured against."""

from __future__ import annotations

from collections.abc import Sequence

from recap.drafters.base import Learned, Outcome
from recap.memory import PersistentMemory
from recap.settings import Settings
from recap.tree import CandidateTree, Floors


class AutoregressiveDrafter:
    """Proposes nothing and learns nothing."""

    seed_rows = 0

    def __init__(
        self,
        persistent: PersistentMemory,
        settings: Settings,
        ends: frozenset[int] = frozenset(),
    ) -> None:
        del persistent, settings, ends

    def propose(self, text: Sequence[int], limit: int, floors: Floors) -> CandidateTree:
        """The root alone."""
        tree = CandidateTree.at(text)
        tree.reason = "off"
        return tree

    def observe(self, outcome: Outcome) -> Learned:
        """Nothing to learn."""
        return Learned()

    def memory_entries(self) -> dict[str, int]:
        """No memory."""
        return {}

    def memory_bytes(self) -> dict[str, int]:
        """No memory."""
        return {}
