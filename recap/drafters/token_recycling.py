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

import numpy as np

from recap.calibration import Calibration
from recap.compiled import FLOAT_TABLE, FLOATS, INT, INT_TABLE, INTS, floats, kernel
from recap.drafters.base import Learned, Outcome, give_reason
from recap.fusion import ENTRY
from recap.memory import MOST_READERS, READERS, PersistentMemory, RequestMemory, look_up
from recap.prediction import SEED_STEP, columns_of, length_of, predictions_from_rows
from recap.search import FOUND, Found, add_node, note_hit, start_growing, trim
from recap.settings import ADAPTIVE, Settings
from recap.tree import BEFORE, DEPTH, PREVIOUS, TOKEN, CandidateTree, Floors

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
MOST_RANKS = max(CHILDREN_BY_DEPTH[0])


def rank_trust(rank: int) -> float:
    """Chance that the prediction of this rank is what the target wants next, before any data.

    Those of all ranks sum to less than one.
    """
    return 0.54 / (rank + 1) ** 1.6


_PRIORS = tuple(rank_trust(rank) for rank in range(MOST_RANKS))


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


@cache
def _full_shape() -> np.ndarray:
    """(rows, 3) parent row, rank and depth of the parent, by row; the root's are zeros."""
    return np.array([(0, 0, 0), *full_template()])


@kernel(FLOATS(INT_TABLE, FLOAT_TABLE))
def _chances(shape, rates):
    chances = np.ones(len(shape), np.float64)
    for row in range(1, len(shape)):
        chances[row] = chances[shape[row, 0]] * rates[shape[row, 2], shape[row, 1]]
    return chances


def ranked_template(rates: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Rows of the full tree's nodes and their chances, likeliest first, parents before children.

    `rates[depth][rank]` is the chance that the prediction of this rank is what the target wants
    after an accepted row of this depth; a node's is the product along its path.
    """
    chances = _chances(_full_shape(), floats(rates))
    # No rate exceeds one, and rows ascend with depth: among equals the parent still comes first.
    rows = 1 + np.argsort(-chances[1:], kind="stable")
    return rows, chances[rows]


@cache
def template(budget: int) -> tuple[np.ndarray, np.ndarray]:
    """Rows of the full tree in a tree of fixed size, and their chances, breadth-first.

    A smaller tree is the part of the full one that is likeliest to be accepted, closed under
    prefixes, as `rank_trust` estimates it.
    """
    rows, chances = ranked_template(np.tile(_PRIORS, (FULL_TREE_DEPTH, 1)))
    rows, chances = rows[:budget], chances[:budget]
    breadth_first = np.argsort(rows)
    return rows[breadth_first], chances[breadth_first]


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
        self._found: Found | None = None  # by the last proposal

    def propose(self, text: Sequence[int], limit: int, floors: Floors) -> CandidateTree:
        """Fill the template from the matrix; what has no prediction is left out."""
        tree = CandidateTree.at(text)
        tree.template = True
        places, chances = self._fixed or ranked_template(self._calibration.factors())
        found = self._found = _fill(
            np.array([tree.token[0], tree.previous[0], tree.before[0]]),
            self.memory.readers(),
            _full_shape(),
            places,
            chances,
            floors.next,
            limit,
        )
        tree.fill(found.nodes, found.scores, found.lookups)
        if found.stopped:
            tree.reason = "does-not-pay"
        return give_reason(tree, floors, self.memory_entries())

    def observe(self, outcome: Outcome) -> Learned:
        """Every row overwrites its token's predictions; among equals the last row wins."""
        if outcome.step == SEED_STEP:
            return Learned()  # the prefill's predictions are discarded
        rows = outcome.rows
        self._judge(outcome)
        predictions = predictions_from_rows(rows.ids, rows.probs, self.memory.request, outcome.step)
        writes = self.memory.write(outcome.contexts, predictions, range(len(predictions)))
        return Learned(writes)

    def _judge(self, outcome: Outcome) -> None:
        """Learn what the ranks at the accepted rows were worth."""
        found, self._found = self._found, None
        if found is None:
            return
        families = {row: family for family, row in enumerate(found.expanded.tolist())}
        for row in outcome.path[: len(outcome.emitted)]:
            family = families.get(row)
            if family is not None:
                ids = found.tokens[family, : found.counts[family]].tolist()
                choice = outcome.rows.choice[row]
                right = ids.index(choice) if choice in ids else -1
                group, ranks = int(found.groups[family]), range(len(ids))
                self._calibration.learn(group, ranks, [1.0] * len(ids), right)

    def memory_entries(self) -> dict[str, int]:
        """See `Drafter.memory_entries`."""
        return self.memory.entries()

    def memory_bytes(self) -> dict[str, int]:
        """See `Drafter.memory_bytes`."""
        return self.memory.nbytes()


@kernel(FOUND(INTS, READERS, INT_TABLE, INTS, FLOATS, FLOATS, INT))
def _fill(root, readers, shape, places, chances, floors, limit):
    """Fill these places of the full tree, in this order, for as long as chances are above floors.

    `shape` is `_full_shape`; `floors[n]` is for a tree of n nodes. What has no prediction, or lies
    deeper than `limit`, is left out. In what is found, a family is what one row predicts, by rank.
    """
    most = min(len(places), len(floors) - 1)
    columns = columns_of(readers.tables[0])
    made = start_growing(root, most, min(columns, MOST_RANKS), columns)
    nodes, scores, entries = made.nodes, made.scores, made.entries
    numbers = entries.view(np.float64)
    expanded, groups, counts = made.expanded, made.groups, made.counts
    tokens, fused = made.tokens, made.fused
    codes = np.empty(len(made.hits), np.int64)
    found = np.empty((MOST_READERS, 2), np.int64)
    filled = np.full(len(shape), -1)  # row of the full tree -> row of this one
    families_of = np.full(most + 1, -1)  # row -> its family
    filled[0] = 0
    families = hit_count = entry_count = row = 0
    stopped = False
    for n in range(len(places)):
        place = places[n]
        parent, rank, depth = filled[shape[place, 0]], shape[place, 1], shape[place, 2]
        if parent < 0 or nodes[DEPTH, parent] >= limit:
            continue
        family = families_of[parent]
        if family < 0:
            family = families_of[parent] = families
            families += 1
            expanded[family], groups[family] = parent, depth
            own = nodes[TOKEN, parent]
            if look_up(readers, own, nodes[PREVIOUS, parent], nodes[BEFORE, parent], found):
                entry_count = note_hit(
                    readers, 0, found[0, 1], parent, made, hit_count, codes, entry_count
                )
                entry = made.hits[hit_count, ENTRY]
                hit_count += 1
                counts[family] = min(length_of(entries, entry), tokens.shape[1])
                for n_rank in range(counts[family]):
                    tokens[family, n_rank] = entries[entry, n_rank]
                    fused[family, n_rank] = numbers[entry, columns + 2 + n_rank]
        if rank < counts[family]:
            if chances[n] <= floors[row]:
                stopped = row == 0
                break
            row += 1
            add_node(
                nodes, scores, row, parent, tokens[family, rank], fused[family, rank], chances[n]
            )
            filled[place] = row
    return trim(made, row + 1, families, hit_count, entry_count, 0, stopped)
