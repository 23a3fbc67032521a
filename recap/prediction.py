"""A prediction: what the target said at one row, and the arithmetic on it.

Its concentration and confidence are what entropy-confidence weighting looks at (`recap.fusion`);
blending two of them is RECAP+'s way to let an entry remember that its continuations differ.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from operator import itemgetter, mul
from typing import NamedTuple

import numpy as np

#: Stands for a token that no key may contain.
GAP = -1
#: `Prediction.step` of an entry that a prompt row wrote.
SEED_STEP = -1

_probability = itemgetter(1)


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


def concentration_of(probs: Sequence[float]) -> float:
    """1 - H(q) / log K of one row of K probabilities; 1 if K = 1.

    With T their sum, H(q) = log T - (sum of p log p) / T: no need to normalise first.
    """
    total = sum(probs)
    if len(probs) < 2 or total <= 0.0:
        return 1.0
    if probs[-1] <= 0.0:  # 0 log 0 = 0; probabilities fall, so zeros are last
        weighted = sum(p * math.log(p) for p in probs if p > 0.0)
    else:
        weighted = sum(map(mul, probs, map(math.log, probs)))
    entropy = math.log(total) - weighted / total
    return min(1.0, max(0.0, 1.0 - entropy / math.log(len(probs))))


def predictions_from_rows(
    ids: np.ndarray, probs: np.ndarray, request: int, step: int
) -> list[Prediction]:
    """Predictions of all rows of a pass at once. `ids` and `probs` are (rows, K)."""
    # Eight digits are more than the fusion can tell apart, and keep saved traces short.
    probs = np.round(probs.astype(np.float64), 8)
    columns = probs.shape[1]
    total = np.maximum(probs.sum(1, keepdims=True), 1e-300)
    if columns > 1:
        q = probs / total
        entropy = -(q * np.log(np.maximum(q, 1e-300))).sum(1)
        concentration = np.clip(1.0 - entropy / math.log(columns), 0.0, 1.0).tolist()
    else:
        concentration = [1.0] * len(probs)
    return [
        Prediction(tuple(row_ids), tuple(row_probs), c, row_probs[0], request, step)
        for row_ids, row_probs, c in zip(ids.tolist(), probs.tolist(), concentration, strict=True)
    ]


def fold(series: Sequence[Prediction], keep: float) -> Prediction:
    """Blend predictions one after the other, oldest first.

    Each step averages the next with what there is: `keep` of the old, the rest of the new; union of
    ids, the K most probable kept, K being the longer of the two. So an entry remembers that its
    continuations differ. The result is the last one's writer's.
    """
    fresh = 1.0 - keep
    ids, probs = series[0].ids, series[0].probs
    for new in series[1:]:
        mixed = dict(zip(new.ids, [fresh * p for p in new.probs], strict=True))
        get = mixed.get
        for token, p in zip(ids, probs, strict=True):
            mixed[token] = get(token, 0.0) + keep * p
        # Sorting is stable, so among equals the newer prediction's own order stands.
        top = sorted(mixed.items(), key=_probability, reverse=True)
        ids, probs = zip(*top[: max(len(new.ids), len(ids))], strict=True)
    last = series[-1]
    return Prediction(ids, probs, concentration_of(probs), probs[0], last.request, last.step)
