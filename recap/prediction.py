"""A prediction: what the target said at one row, and the arithmetic on many of them.

Its concentration and confidence are what entropy-confidence weighting looks at (`recap.fusion`);
blending two of them is RECAP+'s way to let an entry remember that its continuations differ.

Many predictions are one table (`Predictions`): a pass writes a hundred of them, and array
arithmetic on all at once costs a tenth of a loop over tuples. A `Prediction` is one of them as
plain Python data, made where a lookup wants to read it.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

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
    the probabilities, then the concentration. Both are views of `table`, so that a row is moved at
    once. A row of fewer than K predictions ends in ids of -1 with probability 0. `seeds` are the
    rows that come from a prompt.
    """

    __slots__ = ("columns", "floats", "ints", "seeds", "table")

    def __init__(self, table: np.ndarray, seeds: frozenset[int] = frozenset()) -> None:
        self.table, self.seeds = table, seeds
        self.columns = (table.shape[1] - 3) // 2
        self.ints = table[:, : self.columns + 2]
        self.floats = table[:, self.columns + 2 :].view(np.float64)

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

    def __reduce__(self) -> tuple[Any, ...]:
        """Copies and pickles: else the two views would become arrays of their own."""
        return Predictions, (self.table, self.seeds)

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
        return cls(made.table, _seeds(made))

    def take(self, rows: Sequence[int]) -> Predictions:
        """A copy of these rows."""
        taken = Predictions(self.table[rows])
        taken.seeds = _seeds(taken)
        return taken

    def widened(self, columns: int) -> Predictions:
        """The same, padded to at least so many columns."""
        if columns <= self.columns:
            return self
        wide = Predictions.empty(len(self), columns)
        wide.ints[:, :-2], wide.floats[:, :-1] = -1, 0.0
        wide.ints[:, : self.columns] = self.ints[:, :-2]
        wide.floats[:, : self.columns] = self.floats[:, :-1]
        wide.ints[:, -2:], wide.floats[:, -1] = self.ints[:, -2:], self.floats[:, -1]
        wide.seeds = self.seeds
        return wide


def _seeds(predictions: Predictions) -> frozenset[int]:
    return frozenset(np.flatnonzero(predictions.ints[:, -1] == SEED_STEP).tolist())


def concentrations(probs: np.ndarray, counts: np.ndarray | int) -> np.ndarray:
    """1 - H(q) / log K of each row of (rows, columns) probabilities; 1 if K = 1.

    `counts` are the rows' own K, where the last columns are padding. With T the sum of a row, H(q)
    = log T - (sum of p log p) / T: no need to normalise first.
    """
    # Few operations: behind a pass nothing is in the cache, and each costs several microseconds.
    positive = np.maximum(probs, 1e-300)
    total = positive.sum(1)
    inner = np.einsum("ij,ij->i", positive, np.log(positive))
    inner /= total
    entropy = np.log(total, out=total)
    entropy -= inner
    entropy /= np.log(np.maximum(counts, 2)) if np.ndim(counts) else math.log(max(counts, 2))
    np.subtract(1.0, entropy, out=entropy)
    return np.minimum(np.maximum(entropy, 0.0, out=entropy), 1.0, out=entropy)


def predictions_from_rows(
    ids: np.ndarray, probs: np.ndarray, request: int, step: int
) -> Predictions:
    """Predictions of all rows of a pass. `ids` and `probs` are (rows, K)."""
    made = Predictions.empty(*ids.shape)
    columns = made.columns
    made.ints[:, :columns] = ids
    made.ints[:, columns:] = request, step
    # Eight digits are more than the fusion can tell apart, and keep saved traces short.
    kept = made.floats[:, :columns]
    np.multiply(probs, 1e8, out=kept, dtype=np.float64)
    np.rint(kept, out=kept)
    kept /= 1e8
    if math.isnan(kept.sum()):  # of a model whose numbers have overflown: it predicts nothing
        kept[np.isnan(kept)] = 0.0
    made.floats[:, columns] = concentrations(kept, columns)
    if step == SEED_STEP:
        made.seeds = frozenset(range(len(made)))
    return made


def blend(old: Predictions, new: Predictions, keep: float) -> Predictions:
    """Average predictions row by row: `keep` of the old, the rest of the new.

    The union of ids, the K most probable kept, K being the longer of the two. So an entry remembers
    that its continuations differ. Among equals the newer's order stands, then the older's; the
    result is the newer's writer's. Both must have the same number of columns.
    """
    columns, rows = new.columns, len(new)
    old_ids, new_ids = old.ints[:, :columns], new.ints[:, :columns]
    ids = np.concatenate([new_ids, old_ids], 1)
    mixed = np.concatenate(
        [(1.0 - keep) * new.floats[:, :columns], keep * old.floats[:, :columns]], 1
    )
    fresh, held = mixed[:, :columns], mixed[:, columns:]
    same = old_ids[:, :, None] == new_ids[:, None, :]
    fresh += np.matmul(held[:, None, :], same.astype(np.float64))[:, 0]
    # What may not be chosen sorts last: a token's second mention, and padding.
    np.copyto(held, -1.0, where=same.any(2))
    ragged = bool(ids.min(initial=0) < 0)
    if ragged:
        mixed[ids < 0] = -1.0
    best = np.argsort(-mixed, 1, kind="stable")[:, :columns]
    best += np.arange(0, 2 * columns * rows, 2 * columns)[:, None]
    top, probs = ids.ravel()[best], mixed.ravel()[best]
    counts: np.ndarray | int = columns
    if ragged:
        counts = longest = np.maximum((old_ids >= 0).sum(1), (new_ids >= 0).sum(1))
        beyond = np.arange(columns) >= longest[:, None]
        top[beyond], probs[beyond] = -1, 0.0
    made = Predictions(new.table.copy(), new.seeds)
    made.ints[:, :columns] = top
    made.floats[:, :columns], made.floats[:, columns] = probs, concentrations(probs, counts)
    return made
