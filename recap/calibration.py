"""From scores to probabilities: how often was a drafted token what the target wanted?

A fused score is no probability: how far it can be trusted depends on the model, on the text and on
how much the memory has seen. It is learnt while decoding. Along the accepted path the target's
choice is known at every row, so each family of candidates there, verified or not, is an experiment:
at most one of them was right.

    counts = Counts()                                # a session's, kept with its memory
    calibration = Calibration(counts, groups=2, priors=[0.9, 0.7])
    calibration.learn(0, [(1, 0.8), (0, 0.1)], 0)    # (level, score) of each; the first was right
    p = 0.8 * calibration.factors()[0][1]            # what 0.8 is worth now

Candidates are counted in cells: a *group* says what stands behind a family (which orders hit, how
deep it is), a *level* what sets one candidate apart (how high its score is, or its rank). A cell's
factor is hits / sum of scores, held towards the same level of all groups, and that towards a prior,
as long as there is little data. No factor exceeds one, so chances of siblings sum to at most one
where their scores do, and no child beats its parent.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from recap.compiled import floats

#: Expected hits after which a cell forgets half: what was learnt long ago counts for less.
_CAPACITY = 60.0
#: A new request starts with at most this much of the session's, since its text may differ.
_INHERITED = 25.0
#: Expected hits that the prior counts for, and all groups' level for one of them.
_PRIOR_WEIGHT = 4.0
_POOL_WEIGHT = 3.0

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

    `gained` is what they have brought: tokens over what single-row passes would have emitted in the
    same time. An adaptive budget keeps it (`recap.budget`).
    """

    def __init__(self) -> None:
        self.cells: dict[tuple[int, int], list[float]] = {}
        self.gained = 0.0

    def add(self, group: int, level: int, hits: float, score: float) -> None:
        """Candidates of one cell: how many were right, and the sum of their scores."""
        cell = self.cells.get((group, level))
        if cell is None:
            cell = self.cells[group, level] = [0.0, 0.0]
        cell[0] += hits
        cell[1] += score
        if cell[1] > _CAPACITY:
            cell[0] *= 0.5
            cell[1] *= 0.5

    def begin_request(self) -> None:
        """Let what earlier requests have shown count for no more than it should in a new one."""
        for cell in self.cells.values():
            if cell[1] > _INHERITED:
                cell[0] *= _INHERITED / cell[1]
                cell[1] = _INHERITED

    def clear(self) -> None:
        self.cells.clear()
        self.gained = 0.0

    def copy(self) -> Counts:
        """An independent copy."""
        twin = Counts()
        twin.cells = {key: list(cell) for key, cell in self.cells.items()}
        twin.gained = self.gained
        return twin

    def state(self) -> dict[str, np.ndarray]:
        """As arrays: cells (n, 2) int64, counts (n, 2) float64, gained () float64."""
        return {
            "gained": np.array(self.gained),
            "cells": np.array(list(self.cells), np.int64).reshape(-1, 2),
            "counts": np.array(list(self.cells.values()), np.float64).reshape(-1, 2),
        }

    @classmethod
    def from_state(cls, state: dict[str, Any]) -> Counts:
        """The inverse of `state`. Raises `ValueError`, or another error of malformed data."""
        counts = cls()
        cells, values = np.asarray(state["cells"]), np.asarray(state["counts"], np.float64)
        counts.gained = float(state.get("gained", 0.0))
        if not np.isfinite(values).all() or (values < 0).any() or not np.isfinite(counts.gained):
            raise ValueError("a count is out of range")
        for (group, level), (hits, expected) in zip(cells.tolist(), values.tolist(), strict=True):
            counts.cells[int(group), int(level)] = [hits, expected]
        return counts


class Calibration:
    """Factors of one method, from a session's counts and a prior for each level."""

    def __init__(self, counts: Counts, groups: int, priors: Sequence[float]) -> None:
        self._counts = counts
        self._priors = priors
        self._factors = np.tile(np.minimum(1.0, floats(priors)), (groups, 1))
        self._stale = {level for _, level in counts.cells if level < len(priors)}

    def factors(self) -> np.ndarray:
        """(groups, levels): what to multiply a score with, in [0, 1]. Valid until the next call."""
        for level in self._stale:
            self._refresh(level)
        self._stale.clear()
        return self._factors

    def learn(self, group: int, candidates: Iterable[tuple[int, float]], right: int) -> None:
        """A family at a row whose choice is known: (level, score) of each candidate.

        `right` is the place of the one that the target chose, -1 if none was.
        """
        found: dict[int, list[float]] = {}
        for place, (level, score) in enumerate(candidates):
            cell = found.get(level)
            if cell is None:
                cell = found[level] = [0.0, 0.0]
            cell[0] += place == right
            cell[1] += score
        for level, (hits, expected) in found.items():
            self._counts.add(group, level, hits, expected)
        self._stale.update(found)

    def _refresh(self, level: int) -> None:
        get = self._counts.cells.get
        cells = [get((group, level), (0.0, 0.0)) for group in range(len(self._factors))]
        hits = sum(cell[0] for cell in cells)
        expected = sum(cell[1] for cell in cells)
        pooled = (hits + _PRIOR_WEIGHT * self._priors[level]) / (expected + _PRIOR_WEIGHT)
        self._factors[:, level] = [
            min(1.0, (hits + _POOL_WEIGHT * pooled) / (expected + _POOL_WEIGHT))
            for hits, expected in cells
        ]
