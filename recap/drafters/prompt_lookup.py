"""Prompt lookup: one chain, copied from where the text last ended like this.

Speculation without predictions: what followed an earlier occurrence of the current suffix, in the
prompt or in what was emitted, is proposed again. Text that repeats itself is all it can use.
"""

from __future__ import annotations

from collections.abc import Sequence

from recap.drafters.base import Learned, Outcome
from recap.memory import PersistentMemory
from recap.settings import Settings
from recap.suffix import SuffixIndex
from recap.tree import CandidateTree, Lookup


class PromptLookupDrafter:
    """A chain of at most `max_depth` tokens from the longest suffix match."""

    seed_rows = 0

    def __init__(
        self,
        persistent: PersistentMemory,
        settings: Settings,
        ends: frozenset[int] = frozenset(),
    ) -> None:
        del persistent, ends
        self.settings = settings
        self._index = SuffixIndex(settings.suffix_max_match, settings.suffix_occurrence)

    def propose(self, text: Sequence[int], limit: int) -> CandidateTree:
        """See `Drafter.propose`."""
        settings = self.settings
        self._index.extend(text[len(self._index.text) :])
        match, continuation = self._index.propose(
            settings.suffix_min_match, min(settings.max_depth, settings.budget, limit)
        )
        tree = CandidateTree.at(text)
        for row, token in enumerate(continuation):
            tree.lookups[row] = Lookup((), (), token, match + row, 1.0)
            tree.add(row, token, 1.0, tree.path[row] * settings.depth_factor)
        if not tree.nodes:
            tree.reason = "no-hit" if settings.budget else "off"
        return tree

    def observe(self, outcome: Outcome) -> Learned:
        """Nothing but the text, which the next proposal brings."""
        return Learned()

    def memory_entries(self) -> dict[str, int]:
        """No memory."""
        return {}

    def memory_bytes(self) -> dict[str, int]:
        """No memory."""
        return {}
