"""Token Recycling (arXiv 2408.08696): one adjacency matrix and a fixed tree of ranks.

The matrix holds, for every token, the latest top-8 next tokens that the target predicted after it;
every verified row writes to it, accepted or not, and it persists across requests. A fixed shape of
80 nodes says how many of them to follow where. The prefill's predictions are discarded, and a token
never seen has no children.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import replace
from functools import cache

from recap.drafters.base import Learned, Outcome, give_reason
from recap.memory import PersistentMemory, RequestMemory
from recap.prediction import SEED_STEP, predictions_from_rows
from recap.settings import Settings
from recap.tree import CandidateTree, Lookup

#: Children of each node of the full tree, depth by depth in breadth-first order (a fact of the
#: method's public code). The k-th child of a node follows its k-th ranked prediction.
CHILDREN_BY_DEPTH: tuple[tuple[int, ...], ...] = (
    (8,),
    (8, 4, 3, 2, 1, 1, 1, 1),
    (8, 3, 2, 1, 1, 1, 1, 1, 2, 1, 0, 0, 1, 0, 0, 1, 0, 1, 1, 0, 0),
    (5, 2, 1, 1, 1, 0, 0, 0, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0, 1, 0, 0, 1, 1, 0, 0),
    (3, 1, 1, 0, 0, 1, 0, 0, 0, 0, 1, 0, 1, 0, 0),
    (2, 0, 0, 1, 0, 0, 0, 0),
)
FULL_TREE_NODES = 80
FULL_TREE_DEPTH = 6


@cache
def template(budget: int) -> tuple[tuple[int, int], ...]:
    """(parent row, rank) of each node, parents first, for at most `budget` nodes.

    A smaller tree is the part of the full one that is likeliest to be accepted, closed under
    prefixes; `rank_trust` estimates it from rank and depth alone.
    """
    full: list[tuple[int, int]] = []
    frontier, estimate = [0], [1.0]
    for counts in CHILDREN_BY_DEPTH:
        following = []
        for row, count in zip(frontier, counts, strict=True):
            for rank in range(count):
                full.append((row, rank))
                estimate.append(estimate[row] * rank_trust(rank))
                following.append(len(full))
        frontier = following
    if budget >= len(full):
        return tuple(full)
    # Every factor is below one, so a node never beats its parent and the best are prefix-closed.
    best = heapq.nlargest(budget, range(1, len(full) + 1), key=lambda row: (estimate[row], -row))
    kept = {0: 0} | {row: new for new, row in enumerate(sorted(best), start=1)}
    return tuple((kept[full[row - 1][0]], full[row - 1][1]) for row in sorted(best))


def rank_trust(rank: int) -> float:
    """Chance that the prediction of this rank is what the target wants next, before any data."""
    return 0.6 / (rank + 1) ** 1.6


class TokenRecyclingDrafter:
    """Token Recycling on one request; `persistent` is the session's adjacency matrix."""

    seed_rows = 0

    def __init__(
        self,
        persistent: PersistentMemory,
        settings: Settings,
        ends: frozenset[int] = frozenset(),
    ) -> None:
        del ends  # the shape is what the method has, also behind the end of an answer
        # Whatever else is set: one order, overwritten by every row, is what the method has.
        settings = replace(settings, orders=(1,), blend=0.0, carry=0.0)
        self.memory = RequestMemory(persistent, settings)
        self._template = template(settings.budget)

    def propose(self, text: Sequence[int], limit: int) -> CandidateTree:
        """Fill the template from the matrix; what has no prediction is left out."""
        tree = CandidateTree.at(text)
        tree.template = True
        # Template row -> row of this tree, for the nodes that could be filled.
        filled = {0: 0}
        for place, (parent, rank) in enumerate(self._template, start=1):
            row = filled.get(parent)
            if row is None or tree.depth[row] >= limit:
                continue
            found = tree.lookups.get(row)
            if found is None:
                hits = self.memory.lookup(tree.token[row], tree.previous[row], tree.before[row])
                found = tree.lookups[row] = Lookup(hits, [1.0] * len(hits))
            if found.hits and rank < len(found.hits[0].prediction.ids):
                prediction = found.hits[0].prediction
                path = tree.path[row] * rank_trust(rank)
                filled[place] = tree.add(row, prediction.ids[rank], prediction.probs[rank], path)
        return give_reason(tree, len(self._template), self.memory_entries())

    def observe(self, outcome: Outcome) -> Learned:
        """Every row overwrites its token's predictions; among equals the last row wins."""
        if outcome.step == SEED_STEP:
            return Learned()  # the prefill's predictions are discarded
        rows = outcome.rows
        predictions = predictions_from_rows(rows.ids, rows.probs, self.memory.request, outcome.step)
        writes = self.memory.write(
            outcome.own, outcome.previous, outcome.before, predictions, range(len(predictions))
        )
        return Learned(writes)

    def memory_entries(self) -> dict[str, int]:
        """See `Drafter.memory_entries`."""
        return self.memory.entries()

    def memory_bytes(self) -> dict[str, int]:
        """See `Drafter.memory_bytes`."""
        return self.memory.nbytes()
