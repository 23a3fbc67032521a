"""The candidate tree: built best-first, verified in one pass, accepted by a walk.

Rows and nodes. A verification pass has one *row* per token: row 0 is the root (the last emitted
token), row i + 1 is node i. All lists here are by row; a row's parent always comes before it.

    tree = CandidateTree(root=42)
    best_first(tree, expand, floors=Floors.fixed(63), max_depth=10, trust=trust)
    tree.ancestry()           # (rows, rows) bool: what each row may see of the tree
    accept(tree, choices)     # rows along the accepted path, root first
"""

from __future__ import annotations

import math
from bisect import insort
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from recap.calibration import LEVEL
from recap.fusion import Ranked
from recap.prediction import GAP, Hit


class Lookup(NamedTuple):
    """What one expanded row had to offer: everything that its children's scores came from.

    `share` is the part that the suffix and the runner-up take of a fused score, each in turn; the
    rest is the memory's. Enough to say afterwards where a node came from (`recap.provenance`)
    without spending time on it while drafting.
    """

    hits: Sequence[Hit]
    weights: Sequence[float]
    suffix_token: int = -1
    suffix_match: int = 0
    suffix_share: float = 0.0
    runner_up: Sequence[tuple[int, float]] = ()
    runner_up_share: float = 0.0


class CandidateTree:
    """Tokens that one pass verifies, as parallel lists by row.

    `token`, `parent` (-1 for the root), `depth` (0 for the root), `fused` (score among siblings),
    `path` (estimated probability that the whole path is accepted; 1 for the root), and the two
    tokens before the row's own on its path, `previous` and `before`, of which its keys are made.
    Rows are added in the order of popping, so row - 1 is the pop order.

    `lookups` maps an expanded row to its `Lookup`. `template` says that a fixed shape, not a
    search, placed the nodes. `reason` is a fixed word for why there is little or nothing here.
    """

    __slots__ = (
        "_ancestry",
        "before",
        "depth",
        "fused",
        "lookups",
        "parent",
        "path",
        "previous",
        "reason",
        "template",
        "token",
    )

    def __init__(self, root: int, previous: int = GAP, before: int = GAP) -> None:
        self.token = [root]
        self.parent = [-1]
        self.depth = [0]
        self.fused = [1.0]
        self.path = [1.0]
        self.previous = [previous]
        self.before = [before]
        self.lookups: dict[int, Lookup] = {}
        self.template = False
        self.reason: str | None = None
        self._ancestry: np.ndarray | None = None

    @classmethod
    def at(cls, text: Sequence[int]) -> CandidateTree:
        """A tree of the root alone, at the end of a text with `GAP` for placeholders."""
        return cls(text[-1], text[-2] if len(text) > 1 else GAP, text[-3] if len(text) > 2 else GAP)

    def __len__(self) -> int:
        """Number of rows: the root and the nodes."""
        return len(self.token)

    @property
    def nodes(self) -> int:
        """Number of nodes, without the root."""
        return len(self.token) - 1

    def add(self, parent: int, token: int, fused: float, path: float) -> int:
        """Append a node under a row. Returns the node's row."""
        self.token.append(token)
        self.parent.append(parent)
        self.depth.append(self.depth[parent] + 1)
        self.fused.append(fused)
        self.path.append(path)
        self.previous.append(self.token[parent])
        self.before.append(self.previous[parent])
        return len(self.token) - 1

    def cut(self, nodes: int) -> None:
        """Keep the first nodes only. They are closed under prefixes, since parents come first."""
        rows = nodes + 1
        if rows >= len(self.token):
            return
        for column in (self.token, self.parent, self.depth, self.fused, self.path):
            del column[rows:]
        del self.previous[rows:], self.before[rows:]
        self.lookups = {row: found for row, found in self.lookups.items() if row < rows}

    def ancestry(self) -> np.ndarray:
        """(rows, rows) bool: entry [i, j] says that row j is row i or one of its ancestors.

        Each row's ancestors are one integer's bits: its parent's and its own. Worked out once for
        a tree of this size.
        """
        rows = len(self.token)
        if self._ancestry is not None and len(self._ancestry) == rows:
            return self._ancestry
        width = (rows + 7) // 8
        seen = [1]
        for row in range(1, rows):
            seen.append(seen[self.parent[row]] | 1 << row)
        packed = b"".join([bits.to_bytes(width, "little") for bits in seen])
        square = np.frombuffer(packed, np.uint8).reshape(rows, width)
        self._ancestry = np.unpackbits(square, axis=1, count=rows, bitorder="little").view(bool)
        return self._ancestry


#: The floor behind the last node that may be had.
STOP = math.inf


class Floors(NamedTuple):
    """How probable a node must be to be worth having.

    `next[n]`: what its path probability must exceed where the tree has n nodes already. The last
    is infinite, so there are at most len(next) - 1 nodes. `ever[n]` is the least of these from n
    on: what is not above it will not be wanted however large the tree grows.
    """

    next: Sequence[float]
    ever: Sequence[float]

    @classmethod
    def of(cls, values: np.ndarray) -> Floors:
        """From the floors for each number of nodes."""
        return cls(values.tolist(), np.minimum.accumulate(values[::-1])[::-1].tolist())

    @classmethod
    def fixed(cls, nodes: int) -> Floors:
        """Everything is worth having until there are so many nodes."""
        return cls.of(np.array([-1.0] * nodes + [STOP]))

    @property
    def most(self) -> int:
        """Nodes that there may be."""
        return len(self.next) - 1


#: Ranked continuations of a row: (token, fused score), best first.
Expand = Callable[[int], Ranked]
#: A family's next candidate that waits: (minus path probability, rank, parent, family, factors).
Waiting = tuple[float, int, int, Ranked, Sequence[float]]
#: Factors by level of score (`recap.calibration`) for an expanded row's children, in [0, 1].
Trust = Callable[[int], Sequence[float]]


def best_first(
    tree: CandidateTree,
    expand: Expand,
    *,
    floors: Floors,
    max_depth: int,
    trust: Trust,
    width: int = 8,
    ceiling: float = 1.0,
) -> None:
    """Grow the tree by its most probable candidates for as long as they are above the floors.

    `expand(row)` is called at most once for a row, right after it was added; its scores are
    non-increasing and sum to at most one. A child's path probability is its parent's times its
    score times the factor that `trust(row)` has for such a score, and not above its better
    sibling's; no factor exceeds `ceiling`, which is at most one. So no child beats its parent, and
    the result is the most probable of all paths, closed under prefixes. Ties go to the lower rank
    among siblings, then to the parent that was added first.

    Only the next sibling of each family waits in the queue: a family's other candidates cannot come
    before it. Says on a tree without nodes that nothing paid, if there was something.
    """
    # Sorted, most probable first. A heap is no faster at a hundred candidates, and could not say in
    # one look how many of them are more probable than something else.
    queue: list[Waiting] = []
    level, add, depth = LEVEL, tree.add, tree.depth
    most, (wanted, ever) = floors.most, floors
    row = 0
    while True:
        bound = tree.path[row] * ceiling
        # The root is looked up whatever it is worth: its choice shows what the guess was worth.
        if (
            most
            and depth[row] < max_depth
            and (not row or (bound > ever[row] and _may_matter(bound, queue, most - row)))
        ):
            ranked = expand(row)
            if ranked:
                score = ranked[0][1]
                factors = trust(row)
                path = tree.path[row] * factors[level[int(64.0 * score)]] * score
                insort(queue, (-path, 0, row, ranked, factors))
        if not queue:
            return
        negative, rank, parent, ranked, factors = queue.pop(0)
        if -negative <= wanted[row]:
            if not row and most:
                tree.reason = "does-not-pay"
            return
        token, fused = ranked[rank]
        row = add(parent, token, fused, -negative)
        rank += 1
        if rank < len(ranked) and rank < width:
            score = ranked[rank][1]
            path = -tree.path[parent] * factors[level[int(64.0 * score)]] * score
            insort(queue, (path if path > negative else negative, rank, parent, ranked, factors))


def _may_matter(bound: float, queue: Sequence[Waiting], remaining: int) -> bool:
    """Whether a child of at most this probability could be among the nodes that are wanted.

    Not if enough candidates wait that are more probable: towards the end of the search that spares
    a third of the lookups, and changes nothing.
    """
    if remaining > len(queue):
        return remaining > 0
    return remaining > 0 and queue[remaining - 1][0] >= -bound


def accept(tree: CandidateTree, choices: Sequence[int]) -> list[int]:
    """Rows of the accepted path, root first: follow the child whose token is the row's choice.

    `choices` is the target's greedy choice at each row. The choice of the last row on the path is
    the bonus token. One pass suffices, since parents come before children and siblings differ.
    """
    path = [0]
    current, wanted = 0, choices[0]
    for row in range(1, len(tree)):
        if tree.parent[row] == current and tree.token[row] == wanted:
            path.append(row)
            current, wanted = row, choices[row]
    return path
