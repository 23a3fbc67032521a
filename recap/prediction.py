"""A prediction: what the target said at one row, and the arithmetic on many of them.

Its concentration and confidence are what entropy-confidence weighting looks at (`recap.fusion`);
blending two of them is RECAP+'s way to let an entry remember that its continuations differ.

Many predictions are one table (`Predictions`), which compiled code reads and writes. A `Prediction`
is one of them as plain Python data, made where somebody wants to look at it.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
from numba import types

from recap.compiled import INT, INT_TABLE, VOID, inline, kernel

#: Stands for a token that no key may contain.
GAP = -1
#: `Prediction.step` of an entry that a prompt row wrote.
SEED_STEP = -1


class Prediction(NamedTuple):
    """What the target said at one row: its top-K next tokens, most probable first.

    Probabilities are under the softmax over the full vocabulary, so they sum to at most one; the
    missing mass is the tail's. `concentration` is 1 - H(q) / log K for q = probs normalised, in
    [0, 1]; `confidence` is the largest probability. `request` and `step` say who wrote it.
    """

    ids: tuple[int, ...]
    probs: tuple[float, ...]
    concentration: float
    confidence: float
    request: int
    step: int


class Hit(NamedTuple):
    """One entry that a lookup found: its order, and whether an earlier request left it."""

    order: int
    carried: bool
    prediction: Prediction


class Predictions:
    """The predictions of many rows, as one table.

    `ints` (rows, K + 2) int64 holds the ids, then request and step; `floats` (rows, K + 1) float64
    the probabilities, then the concentration. Both are views of `table`, which compiled code reads.
    A row of fewer than K predictions ends in ids of -1 with probability 0. Rows that come from a
    prompt have `SEED_STEP` for a step.
    """

    __slots__ = ("table",)

    def __init__(self, table: np.ndarray) -> None:
        self.table = table

    @property
    def columns(self) -> int:
        """K."""
        return (self.table.shape[1] - 3) // 2

    @property
    def ints(self) -> np.ndarray:
        """(rows, K + 2) ids, request, step."""
        return self.table[:, : self.columns + 2]

    @property
    def floats(self) -> np.ndarray:
        """(rows, K + 1) probabilities, concentration."""
        return self.table[:, self.columns + 2 :].view(np.float64)

    def __len__(self) -> int:
        return len(self.table)

    def __getitem__(self, row: int) -> Prediction:
        count = self.columns
        ints, floats = self.ints[row].tolist(), self.floats[row].tolist()
        request, step, concentration = ints[count], ints[count + 1], floats[count]
        if ints[count - 1] < 0:
            count = ints.index(-1)
        ids, probs = tuple(ints[:count]), tuple(floats[:count])
        # Half the time of the named tuple's own constructor.
        return tuple.__new__(Prediction, (ids, probs, concentration, probs[0], request, step))

    def __iter__(self) -> Iterator[Prediction]:
        return (self[row] for row in range(len(self)))

    @classmethod
    def empty(cls, rows: int, columns: int) -> Predictions:
        """Rows to be filled in."""
        return cls(np.empty((rows, 2 * columns + 3), np.int64))

    @classmethod
    def of_arrays(
        cls, ids: np.ndarray, probs: np.ndarray, concentration: np.ndarray, writer: np.ndarray
    ) -> Predictions:
        """From (rows, K) ids and probabilities, (rows,) concentration, (rows, 2) request, step."""
        made = cls.empty(*ids.shape)
        made.ints[:, :-2], made.ints[:, -2:] = ids, writer
        made.floats[:, :-1], made.floats[:, -1] = probs, concentration
        return made

    def take(self, rows: Sequence[int] | np.ndarray) -> Predictions:
        """A copy of these rows."""
        return Predictions(self.table[rows])

    def widened(self, columns: int) -> Predictions:
        """The same, padded to at least so many columns."""
        if columns <= self.columns:
            return self
        wide = Predictions.empty(len(self), columns)
        wide.ints[:, :-2], wide.floats[:, :-1] = -1, 0.0
        wide.ints[:, : self.columns] = self.ints[:, :-2]
        wide.floats[:, : self.columns] = self.floats[:, :-1]
        wide.ints[:, -2:], wide.floats[:, -1] = self.ints[:, -2:], self.floats[:, -1]
        return wide


# Compiled code reads a table by row and column, its numbers through a view of the same memory. It
# takes no slices of rows, which are slow to compile.


@inline
def columns_of(table):
    """K: how many predictions a row of a `Predictions` table has room for."""
    return (table.shape[1] - 3) // 2


@inline
def length_of(table, row):
    """How many of a row's columns hold a prediction; the rest is padding."""
    count = columns_of(table)
    while count and table[row, count - 1] < 0:
        count -= 1
    return count


@inline
def copy_row(source, row, table, to):
    """Copy a row of one table of predictions into another that may have more columns."""
    columns, room = columns_of(source), columns_of(table)
    for n in range(columns):
        table[to, n] = source[row, n]
        table[to, room + 2 + n] = source[row, columns + 2 + n]
    for n in range(columns, room):
        table[to, n] = -1
        table[to, room + 2 + n] = 0  # 0.0 is all zeros too
    for n in range(2):  # request and step
        table[to, room + n] = source[row, columns + n]
    table[to, 2 * room + 2] = source[row, 2 * columns + 2]  # concentration


@inline
def concentration_of(numbers, row, start, count):
    """1 - H(q) / log K of a row's K = `count` probabilities from column `start`; 1 if K = 1.

    With T their sum, H(q) = log T - (sum of p log p) / T: no need to normalise first.
    """
    if count < 2:
        return 1.0
    total = inner = 0.0
    for n in range(count):
        p = max(numbers[row, start + n], 1e-300)
        total += p
        inner += p * math.log(p)
    entropy = math.log(total) - inner / total
    # Rounded like the probabilities, so that logarithms of different machines break no tie.
    return np.rint(min(max(1.0 - entropy / math.log(count), 0.0), 1.0) * 1e8) / 1e8


@kernel(VOID(types.int32[:, :], types.float32[:, :], INT, INT, INT_TABLE))
def _read_rows(ids, probs, request, step, table):
    columns, numbers = columns_of(table), table.view(np.float64)
    start = columns + 2
    for row in range(len(ids)):
        for n in range(columns):
            table[row, n] = ids[row, n]
            # Eight digits are more than the fusion can tell apart, and keep saved traces short.
            p = np.rint(np.float64(probs[row, n]) * 1e8) / 1e8
            # Not a number: of a model whose numbers have overflown. It predicts nothing.
            numbers[row, start + n] = 0.0 if math.isnan(p) else p
        table[row, columns], table[row, columns + 1] = request, step
        numbers[row, start + columns] = concentration_of(numbers, row, start, columns)


def predictions_from_rows(
    ids: np.ndarray, probs: np.ndarray, request: int, step: int
) -> Predictions:
    """Predictions of all rows of a pass. `ids` (rows, K) int32, `probs` (rows, K) float32."""
    made = Predictions.empty(*ids.shape)
    _read_rows(ids, probs, request, step, made.table)
    return made


@inline
def blend_row(old, row, new, new_row, keep):
    """Make of a row of a table the average with a row of another: `keep` of the old.

    The union of ids, the K most probable kept, K being the longer of the two. So an entry remembers
    that its continuations differ. Among equals the newer's order stands, then the older's; the
    result is the newer's writer's. Both tables have the same columns.
    """
    columns = columns_of(old)
    start = columns + 2
    old_numbers, new_numbers = old.view(np.float64), new.view(np.float64)
    fresh, held = length_of(new, new_row), length_of(old, row)
    ids, mixed = np.empty(2 * columns, np.int64), np.empty(2 * columns, np.float64)
    count = 0
    for n in range(fresh):
        ids[n], mixed[n] = new[new_row, n], (1.0 - keep) * new_numbers[new_row, start + n]
        count += 1
    for n in range(held):
        count = add_score(ids, mixed, count, old[row, n], keep * old_numbers[row, start + n])
    sort_ranked(ids, mixed, count)
    longest = max(fresh, held)
    for n in range(longest):
        old[row, n], old_numbers[row, start + n] = ids[n], mixed[n]
    old[row, columns], old[row, columns + 1] = new[new_row, columns], new[new_row, columns + 1]
    old_numbers[row, start + columns] = concentration_of(old_numbers, row, start, longest)


@inline
def add_score(tokens, scores, count, token, score):
    """Add to a token's score among the first `count`, or the token behind them. Returns how many
    there are."""
    for n in range(count):
        if tokens[n] == token:
            scores[n] += score
            return count
    tokens[count], scores[count] = token, score
    return count + 1


@inline
def sort_ranked(tokens, scores, count):
    """Put the first `count` candidates in order, best first; equals stay as they were."""
    for n in range(1, count):
        token, score = tokens[n], scores[n]
        at = n
        while at and scores[at - 1] < score:
            tokens[at], scores[at] = tokens[at - 1], scores[at - 1]
            at -= 1
        tokens[at], scores[at] = token, score
