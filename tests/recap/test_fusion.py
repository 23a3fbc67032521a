"""Fusion against the formula written out."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from recap.compiled import floats, ints
from recap.fusion import Weighting, fuse, mix, weigh
from recap.prediction import Hit, Prediction
from recap.settings import Settings
from tests.recap.predictions import predictions, table

Ranked = list[tuple[int, float]]


def as_arrays(hits: list[Hit]) -> tuple[np.ndarray, np.ndarray]:
    """The entries' table, and the hits as the search lays them out."""
    rows = [(0, hit.order, hit.carried, entry) for entry, hit in enumerate(hits)]
    return table([hit.prediction for hit in hits]).table, ints(rows)


def weights_of(hits: list[Hit], settings: Settings) -> list[float]:
    """What `weigh` makes of these hits."""
    weights = np.empty(len(hits))
    weigh(Weighting.of(settings), *as_arrays(hits), 0, len(hits), weights)
    return weights.tolist()


def fused(hits: list[Hit], weights: list[float]) -> Ranked:
    """What `fuse` makes of these hits."""
    entries, rows = as_arrays(hits)
    tokens, scores = np.empty(entries.size, np.int64), np.empty(entries.size)
    count = fuse(entries, rows, 0, len(hits), floats(weights), tokens, scores)
    return list(zip(tokens[:count].tolist(), scores[:count].tolist(), strict=True))


def mixed(one: Prediction, other: Prediction, share: float) -> Ranked:
    """What `mix` makes of two predictions."""
    tokens = ints([*one.ids, *[0] * len(other.ids)])
    scores = floats([*one.probs, *[0.0] * len(other.ids)])
    count = mix(tokens, scores, len(one.ids), ints(other.ids), floats(other.probs), share)
    return list(zip(tokens[:count].tolist(), scores[:count].tolist(), strict=True))


ORDERS = st.lists(st.sampled_from([1, 2, 3]), min_size=1, max_size=3, unique=True)
SETTINGS = st.builds(
    Settings,
    alpha=st.sampled_from([0.0, 0.5, 1.0, 2.0]),
    beta=st.sampled_from([0.0, 1.0, 1.5]),
    epsilon=st.sampled_from([0.01, 0.05, 0.5]),
    carry=st.sampled_from([0.3, 0.5, 1.0]),
)


@st.composite
def some_hits(draw) -> list[Hit]:
    """Hits as a lookup returns them: longest key first, own before carried."""
    hits = []
    for order in sorted(draw(ORDERS), reverse=True):
        for carried in [False, True] if order > 1 and draw(st.booleans()) else [False]:
            hits.append(Hit(order, carried, draw(predictions())))
    return hits


@given(some_hits(), SETTINGS)
def test_weights_and_scores_are_the_formula(hits, settings):
    """w = s (epsilon + c)^alpha m^beta, normalised; f(t) = sum of w p(t)."""
    raw = []
    for hit in hits:
        s = settings.specificity[hit.order - 1] * (settings.carry if hit.carried else 1.0)
        c, m = hit.prediction.concentration, hit.prediction.confidence
        raw.append(s * (settings.epsilon + c) ** settings.alpha * m**settings.beta)
    weights = weights_of(hits, settings)
    assert weights == pytest.approx([w / sum(raw) for w in raw])
    assert sum(weights) == pytest.approx(1.0)
    ranked = fused(hits, weights)
    wanted: dict[int, float] = {}
    for hit, weight in zip(hits, weights, strict=True):
        for token, p in zip(hit.prediction.ids, hit.prediction.probs, strict=True):
            wanted[token] = wanted.get(token, 0.0) + weight * p
    assert dict(ranked) == pytest.approx(wanted)
    scores = [score for _, score in ranked]
    assert scores == sorted(scores, reverse=True)
    assert sum(scores) <= 1.0 + 1e-9  # a sub-probability, not renormalised


@given(predictions(), SETTINGS)
def test_one_hit_is_left_as_it_is(prediction, settings):
    """Its weight is one and its scores are its probabilities."""
    hits = [Hit(2, False, prediction)]
    assert weights_of(hits, settings) == [1.0]
    ranked = fused(hits, [1.0])
    assert ranked == list(zip(prediction.ids, prediction.probs, strict=True))


@given(some_hits())
def test_fixed_weights_depend_on_the_order_alone(hits):
    """alpha = beta = 0 ignores what the predictions look like."""
    settings = Settings(alpha=0.0, beta=0.0, carry=0.5)
    s = [settings.specificity[h.order - 1] * (0.5 if h.carried else 1.0) for h in hits]
    assert weights_of(hits, settings) == pytest.approx([x / sum(s) for x in s])


@given(some_hits())
def test_back_off_takes_the_longest_hit_alone(hits):
    """The others are not even in the list of candidates."""
    ranked = fused(hits, weights_of(hits, Settings(fusion="back-off")))
    longest = hits[0].prediction
    assert dict(ranked) == dict(zip(longest.ids, longest.probs, strict=True))


@given(predictions(), predictions(), st.floats(0.0, 1.0))
def test_mixing_keeps_a_sub_probability(one, other, share):
    """(1 - share) of the one, share of the other; the sum never exceeds one."""
    a, b = (list(zip(p.ids, p.probs, strict=True)) for p in (one, other))
    found = mixed(one, other, share)
    wanted = {
        token: (1 - share) * dict(a).get(token, 0.0) + share * dict(b).get(token, 0.0)
        for token in {*one.ids, *other.ids}
    }
    assert dict(found) == pytest.approx(wanted)
    assert sum(score for _, score in found) <= 1.0 + 1e-9
    assert [s for _, s in found] == sorted((s for _, s in found), reverse=True)
