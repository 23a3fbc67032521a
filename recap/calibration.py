"""From scores to probabilities: how often was a drafted token what the target wanted?

A fused score is no probability: how far it can be trusted depends on the model, on the text and on
how much the memory has seen. It is learnt while decoding. Along the accepted path the target's
choice is known at every row, so each family of candidates there, verified or not, is an experiment:
at most one of them was right.

    counts = Counts()                                # a session's, kept with its memory
    calibration = Calibration(counts, groups=2, priors=[0.9, 0.7])
    calibration.learn(0, [1, 0], [0.8, 0.1], 0)      # levels and scores; the first was right
    p = 0.8 * calibration.factors()[0][1]            # what 0.8 is worth now

Candidates are counted in cells: a *group* says what stands behind a family (which orders hit, how
deep it is), a *level* what sets one candidate apart (how high its score is, or its rank). A cell's
factor is hits / sum of scores, held towards the same level of all groups, and that towards a prior,
as long as there is little data. No factor exceeds one, so chances of siblings sum to at most one
where their scores do, and no child beats its parent.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from recap.compiled import (
    COUNTS,
    FLOAT_TABLE,
    FLOATS,
    INT,
    INTS,
    VOID,
    floats,
    inline,
    ints,
    kernel,
)

#: Expected hits after which a cell forgets half: what was learnt long ago counts for less.
_CAPACITY = 60.0
#: A new request starts with at most this much of the session's, since its text may differ.
_INHERITED = 25.0
#: Expected hits that the prior counts for, and all groups' level for one of them.
_PRIOR_WEIGHT = 4.0
_POOL_WEIGHT = 3.0

#: More groups or levels than any method has: what a damaged state may not exceed.
_MOST = 1024

#: Upper ends of the levels of a score, in 64ths; the last holds what is nearly certain.
_ENDS = (1, 3, 6, 13, 19, 26, 32, 38, 45, 51, 58, 62, 65)
#: Score in 64ths, rounded down -> its level.
LEVEL = tuple(next(i for i, end in enumerate(_ENDS) if n < end) for n in range(65))
LEVELS = len(_ENDS)


def level_of(score: float) -> int:
    """The level of a score in [0, 1]."""
    return LEVEL[int(64.0 * score)]


class Counts:
    """Hits and expected hits by (group, level): what a session knows of one method's guesses.

    `table` (groups, levels, 2) holds them; it grows to what a method asks for (`reserve`). `gained`
    is what they have brought: tokens over what single-row passes would have emitted in the same
    time. An adaptive budget keeps it (`recap.budget`).
    """

    def __init__(self) -> None:
        self.table = np.zeros((0, 0, 2))
        self.gained = 0.0

    def clear(self) -> None:
        """Forget everything. What was reserved stays: a request may be running."""
        self.table = np.zeros_like(self.table)
        self.gained = 0.0

    def reserve(self, groups: int, levels: int) -> None:
        """Have cells for so many groups and levels at least."""
        have = self.table.shape
        if have[0] < groups or have[1] < levels:
            grown = np.zeros((max(groups, have[0]), max(levels, have[1]), 2))
            grown[: have[0], : have[1]] = self.table
            self.table = grown

    @property
    def cells(self) -> dict[tuple[int, int], list[float]]:
        """(group, level) -> [hits, expected hits], where anything was counted."""
        known = np.argwhere(self.table.any(2))
        return {(g, n): self.table[g, n].tolist() for g, n in known.tolist()}

    def begin_request(self) -> None:
        """Let what earlier requests have shown count for no more than it should in a new one."""
        expected = self.table[:, :, 1:]
        self.table *= np.minimum(1.0, _INHERITED / np.maximum(expected, _INHERITED))

    def copy(self) -> Counts:
        """An independent copy."""
        twin = Counts()
        twin.table, twin.gained = self.table.copy(), self.gained
        return twin

    def state(self) -> dict[str, np.ndarray]:
        """As arrays: cells (n, 2) int64, counts (n, 2) float64, gained () float64."""
        cells = self.cells
        return {
            "gained": np.array(self.gained),
            "cells": np.array(list(cells), np.int64).reshape(-1, 2),
            "counts": np.array(list(cells.values()), np.float64).reshape(-1, 2),
        }

    @classmethod
    def from_state(cls, state: dict[str, Any]) -> Counts:
        """The inverse of `state`. Raises `ValueError`, or another error of malformed data."""
        counts = cls()
        cells, values = np.asarray(state["cells"]), np.asarray(state["counts"], np.float64)
        counts.gained = float(state.get("gained", 0.0))
        if not np.isfinite(values).all() or (values < 0).any() or not np.isfinite(counts.gained):
            raise ValueError("a count is out of range")
        if cells.shape != values.shape or cells.ndim != 2 or cells.shape[1] != 2:
            raise ValueError("the parts do not fit each other")
        if len(cells):
            if cells.min() < 0 or cells.max() >= _MOST:
                raise ValueError("a cell is out of range")
            counts.reserve(*(int(n) + 1 for n in cells.max(0)))
            counts.table[cells[:, 0], cells[:, 1]] = values
        return counts


class Calibration:
    """Factors of one method, from a session's counts and a prior for each level."""

    def __init__(self, counts: Counts, groups: int, priors: Sequence[float]) -> None:
        counts.reserve(groups, len(priors))
        self._counts, self._groups = counts, groups
        self._priors = floats(priors)

    @property
    def table(self) -> np.ndarray:
        """The counts, to which compiled code may add (`count_family`)."""
        return self._counts.table

    def factors(self) -> np.ndarray:
        """(groups, levels): what to multiply a score with, in [0, 1]."""
        return _factors(self._counts.table, self._groups, self._priors)

    def learn(self, group: int, levels: Sequence[int], scores: Sequence[float], right: int) -> None:
        """A family at a row whose choice is known: level and score of each candidate.

        `right` is the place of the one that the target chose, -1 if none was.
        """
        _learn(self._counts.table, group, ints(levels), floats(scores), right)


@inline
def count_family(table, group, levels, scores, count, right):
    """Add a family of `count` candidates to the counts; see `Calibration.learn`.

    A cell is halved when it is full, once for all of a family's candidates in it.
    """
    for n in range(count):
        if n == right:
            table[group, levels[n], 0] += 1.0
        table[group, levels[n], 1] += scores[n]
    for n in range(count):
        if table[group, levels[n], 1] > _CAPACITY:
            table[group, levels[n], 0] *= 0.5
            table[group, levels[n], 1] *= 0.5


@kernel(VOID(COUNTS, INT, INTS, FLOATS, INT))
def _learn(table, group, levels, scores, right):
    count_family(table, group, levels, scores, len(levels), right)


@kernel(FLOAT_TABLE(COUNTS, INT, FLOATS))
def _factors(table, groups, priors):
    factors = np.empty((groups, len(priors)), np.float64)
    for level in range(len(priors)):
        hits = expected = 0.0
        for group in range(groups):
            hits += table[group, level, 0]
            expected += table[group, level, 1]
        pooled = (hits + _PRIOR_WEIGHT * priors[level]) / (expected + _PRIOR_WEIGHT)
        for group in range(groups):
            estimate = table[group, level, 0] + _POOL_WEIGHT * pooled
            factors[group, level] = min(1.0, estimate / (table[group, level, 1] + _POOL_WEIGHT))
    return factors
