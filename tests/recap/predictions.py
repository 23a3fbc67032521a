"""Predictions for the tests of stores and memories: small ones, drawn at random or as arrays."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from hypothesis import strategies as st

from recap.prediction import Prediction, Predictions

VOCABULARY = 12
K = 3

tokens = st.integers(0, VOCABULARY - 1)


def concentration_of(probs: Sequence[float]) -> float:
    """1 - H(q) / log K, with q = probs normalised; 1 if K = 1."""
    q = [p / sum(probs) for p in probs]
    return 1 + sum(p * math.log(p) for p in q if p) / math.log(len(q)) if len(q) > 1 else 1.0


def table(predictions: Sequence[Prediction]) -> Predictions:
    """The same predictions as arrays, padded to the longest of them."""
    columns = max(len(p.ids) for p in predictions)
    padded = [[*p.ids, *[-1] * (columns - len(p.ids))] for p in predictions]
    probs = [[*p.probs, *[0.0] * (columns - len(p.ids))] for p in predictions]
    writers = [(p.request, p.step) for p in predictions]
    concentration = np.array([p.concentration for p in predictions])
    return Predictions.of_arrays(
        np.array(padded), np.array(probs), concentration, np.array(writers)
    )


@st.composite
def predictions(draw, request: int = 1, step: int = 0, least: int = K) -> Prediction:
    """`least` to K distinct tokens with falling probabilities that sum to at most one."""
    ids = draw(st.lists(tokens, min_size=least, max_size=K, unique=True))
    parts = draw(st.lists(st.floats(0.01, 1.0), min_size=len(ids), max_size=len(ids)))
    total = sum(parts) + draw(st.floats(0.0, 1.0))
    probs = tuple(sorted((p / total for p in parts), reverse=True))
    return Prediction(tuple(ids), probs, concentration_of(probs), probs[0], request, step)


def slow_blend(new: Prediction, old: Prediction, keep: float) -> dict[int, float]:
    """Every token's average, the K best kept; ties by place in the new, then in the old."""
    met = list(dict.fromkeys([*new.ids, *old.ids]))
    new_p, old_p = dict(zip(new.ids, new.probs)), dict(zip(old.ids, old.probs))  # noqa: B905
    mixed = {t: (1 - keep) * new_p.get(t, 0.0) + keep * old_p.get(t, 0.0) for t in met}
    best = sorted(met, key=lambda t: (-mixed[t], met.index(t)))
    return {t: mixed[t] for t in best[: max(len(new.ids), len(old.ids))]}
