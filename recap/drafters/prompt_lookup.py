"""Prompt lookup: one chain, copied from where the text last ended like this.

Speculation without predictions: what followed an earlier occurrence of the current suffix, in the
prompt or in what was emitted, is proposed again. Text that repeats itself is all it can use.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from recap.calibration import Calibration, Counts
from recap.drafters.base import Learned, Outcome
from recap.memory import PersistentMemory
from recap.settings import ADAPTIVE, Settings
from recap.suffix import SuffixIndex
from recap.tree import CandidateTree, Floors, Suffix


class PromptLookupDrafter:
    """A chain of at most `max_depth` tokens from the longest suffix match."""

    seed_rows = 0

    def __init__(
        self,
        persistent: PersistentMemory,
        settings: Settings,
        ends: frozenset[int] = frozenset(),
    ) -> None:
        del persistent, ends  # it keeps nothing, not even what its copies were worth
        self.settings = settings
        self._index = SuffixIndex(settings.suffix_max_match, settings.suffix_occurrence)
        longest = settings.suffix_max_match + settings.max_depth
        # A copied token is trusted by how long a match led to it.
        self._calibration = Calibration(Counts(), 1, [settings.depth_factor] * (longest + 1))
        self._flat = None if settings.budget == ADAPTIVE else [settings.depth_factor] * longest
        # Of the last proposal: the length of its match, and what followed it.
        self._proposed: tuple[int, list[int]] = (0, [])

    def propose(self, text: Sequence[int], limit: int, floors: Floors) -> CandidateTree:
        """See `Drafter.propose`."""
        settings = self.settings
        self._index.extend(text[len(self._index.text) :])
        match, continuation = self._index.propose(
            settings.suffix_min_match, min(settings.max_depth, floors.most, limit)
        )
        self._proposed = match, continuation
        factors = self._flat or self._calibration.factors()[0].tolist()
        tree = CandidateTree.at(text)
        for row, token in enumerate(continuation):
            path = tree.path[row] * factors[match + row]
            if path <= floors.next[row]:
                break
            tree.lookups.suffix.append(Suffix(row, token, match + row, 1.0))
            tree.add(row, token, 1.0, path)
        tree.lookups.expanded = np.arange(tree.nodes)
        if not tree.nodes:
            nothing = "does-not-pay" if continuation else "no-hit"
            tree.reason = nothing if floors.most else "off"
        return tree

    def observe(self, outcome: Outcome) -> Learned:
        """What copies were worth; the text itself comes with the next proposal."""
        (match, continuation), self._proposed = self._proposed, (0, [])
        for row in outcome.path[: len(outcome.emitted)]:
            if row < len(continuation):
                right = -1 if outcome.rows.choice[row] != continuation[row] else 0
                self._calibration.learn(0, [match + row], [1.0], right)
        return Learned()

    def memory_entries(self) -> dict[str, int]:
        """No memory."""
        return {}

    def memory_bytes(self) -> dict[str, int]:
        """No memory."""
        return {}
