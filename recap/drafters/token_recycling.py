"""Token Recycling (arXiv 2408.08696): one adjacency matrix and a fixed tree of ranks.

The matrix holds, for every token, the latest top-8 next tokens that the target predicted after it;
every verified row writes to it, accepted or not, and it persists across requests. A fixed shape of
80 nodes says how many of them to follow where. The prefill's predictions are discarded, and a token
never seen has no children. Within an adaptive budget the nodes of that shape come by their chance
to be accepted, which is learnt by rank and depth.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cache

from recap.calibration import Calibration
from recap.drafters.base import Learned, Outcome, give_reason
from recap.memory import PersistentMemory, RequestMemory
from recap.prediction import SEED_STEP, Prediction, predictions_from_rows
from recap.settings import ADAPTIVE, Settings
from recap.tree import CandidateTree, Floors, Lookup

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
FULL_TREE_DEPTH = len(CHILDREN_BY_DEPTH)


def rank_trust(rank: int) -> float:
    """Chance that the prediction of this rank is what the target wants next, before any data.

    Those of all ranks sum to less than one.
    """
    return 0.54 / (rank + 1) ** 1.6


_PRIORS = tuple(rank_trust(rank) for rank in range(max(CHILDREN_BY_DEPTH[0])))


@cache
def full_template() -> tuple[tuple[int, int, int], ...]:
    """(parent row, rank, depth of the parent) of each node of the full tree, breadth-first."""
    full: list[tuple[int, int, int]] = []
    frontier = [0]
    for depth, counts in enumerate(CHILDREN_BY_DEPTH):
        following = []
        for row, count in zip(frontier, counts, strict=True):
            for rank in range(count):
                full.append((row, rank, depth))
                following.append(len(full))
        frontier = following
    return tuple(full)


def ranked_template(rates: Sequence[Sequence[float]]) -> list[tuple[int, float]]:
    """(row, chance) of the full tree's nodes, likeliest first, parents before children.

    `rates[depth][rank]` is the chance that the prediction of this rank is what the target wants
    after an accepted row of this depth; a node's is the product along its path.
    """
    chances = [1.0]
    for parent, rank, depth in full_template():
        chances.append(chances[parent] * rates[depth][rank])
    # No rate exceeds one, and rows ascend with depth: among equals the parent still comes first.
    rows = sorted(range(1, len(chances)), key=lambda row: (-chances[row], row))
    return [(row, chances[row]) for row in rows]


@cache
def template(budget: int) -> list[tuple[int, float]]:
    """(row of the full tree, chance) of each node of a tree of fixed size, breadth-first.

    A smaller tree is the part of the full one that is likeliest to be accepted, closed under
    prefixes, as `rank_trust` estimates it.
    """
    ranked = ranked_template([_PRIORS] * FULL_TREE_DEPTH)
    return sorted(ranked[:budget])


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
        self._calibration = Calibration(self.memory.counts, FULL_TREE_DEPTH, _PRIORS)
        adaptive = settings.budget == ADAPTIVE
        self._fixed = None if adaptive else template(settings.most_nodes)
        # Of the last proposal: row -> (depth, prediction), of every row that was looked up.
        self._families: dict[int, tuple[int, Prediction]] = {}

    def propose(self, text: Sequence[int], limit: int, floors: Floors) -> CandidateTree:
        """Fill the template from the matrix; what has no prediction is left out."""
        tree = CandidateTree.at(text)
        tree.template = True
        families = self._families = {}
        shape = full_template()
        # Row of the full tree -> row of this one, for the nodes that could be filled.
        filled = {0: 0}
        nodes = self._fixed
        if nodes is None:
            nodes = ranked_template(self._calibration.factors())
        for place, path in nodes:
            parent, rank, depth = shape[place - 1]
            row = filled.get(parent)
            if row is None or tree.depth[row] >= limit:
                continue
            found = tree.lookups.get(row)
            if found is None:
                hits = self.memory.lookup(tree.token[row], tree.previous[row], tree.before[row])
                found = tree.lookups[row] = Lookup(hits, [1.0] * len(hits))
                if hits:
                    families[row] = depth, hits[0].prediction
            if found.hits and rank < len(found.hits[0].prediction.ids):
                if path <= floors.next[tree.nodes]:
                    tree.reason = None if tree.nodes else "does-not-pay"
                    break
                prediction = found.hits[0].prediction
                filled[place] = tree.add(row, prediction.ids[rank], prediction.probs[rank], path)
        return give_reason(tree, floors, self.memory_entries())

    def observe(self, outcome: Outcome) -> Learned:
        """Every row overwrites its token's predictions; among equals the last row wins."""
        if outcome.step == SEED_STEP:
            return Learned()  # the prefill's predictions are discarded
        rows = outcome.rows
        families, self._families = self._families, {}
        for row in outcome.path[: len(outcome.emitted)]:
            if row in families:
                depth, prediction = families[row]
                ids, choice = prediction.ids, rows.choice[row]
                ranks = [(rank, 1.0) for rank in range(min(len(ids), len(_PRIORS)))]
                right = ids.index(choice) if choice in ids else -1
                self._calibration.learn(depth, ranks, right)
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
