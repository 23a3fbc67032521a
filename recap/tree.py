"""The candidate tree: verified in one pass, accepted by a walk.

Rows and nodes. A verification pass has one *row* per token: row 0 is the root (the last emitted
token), row i + 1 is node i. All lists here are by row; a row's parent always comes before it.

    tree = CandidateTree(root=42)
    tree.add(parent=0, token=7, fused=0.5, path=0.4)
    tree.ancestry()           # (rows, rows) bool: what each row may see of the tree
    accept(tree, choices)     # rows along the accepted path, root first

How RECAP grows one is `recap.search`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from recap.compiled import BOOL_TABLE, FLOATS, INTS, kernel
from recap.prediction import GAP, Hit, Predictions


class Suffix(NamedTuple):
    """A token that an earlier occurrence of the text's end supplied.

    The row that it was offered at, how many tokens matched, its share of the fused scores, and
    whether it is from the text of an earlier request.
    """

    row: int
    token: int
    match: int
    share: float
    carried: bool = False


class RunnerUp(NamedTuple):
    """The runners-up of the root, offered once more below it, and their share of its scores."""

    ids: tuple[int, ...] = ()
    probs: tuple[float, ...] = ()
    share: float = 0.0


NO_RUNNER_UP = RunnerUp()


def _no_ints() -> np.ndarray:
    return np.empty(0, np.int64)


@dataclass(slots=True)
class Lookups:
    """What the expanded rows of a tree had to offer: all that their children's scores came from.

    Enough to say afterwards where a node came from (`recap.provenance`) without spending time on it
    while drafting. `expanded` (rows,) are the rows that were looked up. One entry a hit, row by
    row, longest key first: `row`, `order`, `carried` (0 or 1), `weight`, and `entry`, the place of
    what was found in `entries`, where every prediction is once. A row's `suffix` and the root's
    `runner_up` take their share of its scores, each in turn; the rest is the memory's.
    """

    expanded: np.ndarray = field(default_factory=_no_ints)
    row: np.ndarray = field(default_factory=_no_ints)
    order: np.ndarray = field(default_factory=_no_ints)
    carried: np.ndarray = field(default_factory=_no_ints)
    entry: np.ndarray = field(default_factory=_no_ints)
    weight: np.ndarray = field(default_factory=lambda: np.empty(0, np.float64))
    entries: Predictions = field(default_factory=lambda: Predictions.empty(0, 0))
    suffix: list[Suffix] = field(default_factory=list)
    runner_up: RunnerUp = NO_RUNNER_UP

    def hits(self, row: int) -> list[Hit]:
        """What this row found, as plain data."""
        return [
            Hit(int(self.order[n]), bool(self.carried[n]), self.entries[self.entry[n]])
            for n in np.flatnonzero(self.row == row)
        ]

    def until(self, rows: int) -> Lookups:
        """Those of the first rows alone."""
        kept = self.row < rows
        used, entry = np.unique(self.entry[kept], return_inverse=True)
        return Lookups(
            self.expanded[self.expanded < rows],
            self.row[kept],
            self.order[kept],
            self.carried[kept],
            entry,
            self.weight[kept],
            self.entries.take(used),
            [found for found in self.suffix if found.row < rows],
            self.runner_up,
        )


#: Rows of what compiled code grows: a node's token, parent, depth, and the tokens before it.
TOKEN, PARENT, DEPTH, PREVIOUS, BEFORE = range(5)
FUSED, PATH = range(2)
_CONTEXT = [TOKEN, PREVIOUS, BEFORE]


class CandidateTree:
    """Tokens that one pass verifies, as parallel lists by row.

    `token`, `parent` (-1 for the root), `depth` (0 for the root), `fused` (score among siblings),
    `path` (estimated probability that the whole path is accepted; 1 for the root), and the two
    tokens before the row's own on its path, `previous` and `before`, of which its keys are made.
    Rows are added in the order of popping, so row - 1 is the pop order.

    `template` says that a fixed shape, not a search, placed the nodes. `reason` is a fixed word for
    why there is little or nothing here.
    """

    __slots__ = (
        "_ancestry",
        "_cut",
        "_grown",
        "_lookups",
        "before",
        "depth",
        "fused",
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
        self._grown: np.ndarray | None = None
        self._lookups: Lookups | Callable[[], Lookups] = Lookups()
        self._cut = False
        self.template = False
        self.reason: str | None = None
        self._ancestry: np.ndarray | None = None

    @classmethod
    def at(cls, text: Sequence[int]) -> CandidateTree:
        """A tree of the root alone, at the end of a text with `GAP` for placeholders."""
        return cls(text[-1], text[-2] if len(text) > 1 else GAP, text[-3] if len(text) > 2 else GAP)

    def fill(self, nodes: np.ndarray, scores: np.ndarray, lookups: Callable[[], Lookups]) -> None:
        """Take over what compiled code has grown, the root included.

        `nodes` (5, rows): token, parent, depth, previous, before; `scores` (2, rows): fused, path.
        `lookups` is called when somebody looks, which is when drafting is no longer on the clock.
        """
        self.token, self.parent, self.depth, self.previous, self.before = nodes.tolist()
        self.fused, self.path = scores.tolist()
        self._grown, self._lookups = nodes, lookups

    @property
    def lookups(self) -> Lookups:
        """What the expanded rows had to offer."""
        if not isinstance(self._lookups, Lookups):
            self._lookups = self._lookups()
        if self._cut:
            self._lookups, self._cut = self._lookups.until(len(self)), False
        return self._lookups

    def contexts(self) -> np.ndarray:
        """(3, rows) what rows' keys are made of: each one's token, the one before it, and so on."""
        if self._grown is None:
            return np.array([self.token, self.previous, self.before])
        return self._grown[_CONTEXT, : len(self)]

    def __len__(self) -> int:
        """Number of rows: the root and the nodes."""
        return len(self.token)

    @property
    def nodes(self) -> int:
        """Number of nodes, without the root."""
        return len(self.token) - 1

    def add(self, parent: int, token: int, fused: float, path: float) -> int:
        """Append a node under a row. Returns the node's row."""
        self._grown = None
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
        self._cut = True

    def ancestry(self) -> np.ndarray:
        """(rows, rows) bool: entry [i, j] says that row j is row i or one of its ancestors.

        Worked out once for a tree of this size.
        """
        if self._ancestry is None or len(self._ancestry) != len(self.token):
            self._ancestry = _ancestry(np.array(self.parent, np.int64))
        return self._ancestry


@kernel(BOOL_TABLE(INTS))
def _ancestry(parent):
    rows = len(parent)
    seen = np.zeros((rows, rows), np.bool_)
    for row in range(rows):
        above = parent[row]
        if above >= 0:
            for column in range(above + 1):
                seen[row, column] = seen[above, column]
        seen[row, row] = True
    return seen


#: The floor behind the last node that may be had.
STOP = math.inf


class Floors(NamedTuple):
    """How probable a node must be to be worth having.

    `next[n]`: what its path probability must exceed where the tree has n nodes already. The last
    is infinite, so there are at most len(next) - 1 nodes. `ever[n]` is the least of these from n
    on: what is not above it will not be wanted however large the tree grows.
    """

    next: np.ndarray
    ever: np.ndarray

    @classmethod
    def of(cls, values: np.ndarray) -> Floors:
        """From the floors for each number of nodes."""
        return cls(values, _least_behind(values))

    @classmethod
    def fixed(cls, nodes: int) -> Floors:
        """Everything is worth having until there are so many nodes."""
        return cls.of(np.array([-1.0] * nodes + [STOP]))

    @property
    def most(self) -> int:
        """Nodes that there may be."""
        return len(self.next) - 1


@kernel(FLOATS(FLOATS))
def _least_behind(values):
    least = values.copy()
    for n in range(len(values) - 2, -1, -1):
        least[n] = min(values[n], least[n + 1])
    return least


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
