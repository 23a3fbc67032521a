"""Fusion against the formula written out."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recap.fusion import Fusion, mix
from recap.prediction import Hit
from recap.settings import Settings
from tests.recap.predictions import predictions

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
    fusion = Fusion(settings)
    raw = []
    for hit in hits:
        s = settings.specificity[hit.order - 1] * (settings.carry if hit.carried else 1.0)
        c, m = hit.prediction.concentration, hit.prediction.confidence
        raw.append(s * (settings.epsilon + c) ** settings.alpha * m**settings.beta)
    weights = fusion.weights(hits)
    assert weights == pytest.approx([w / sum(raw) for w in raw])
    assert sum(weights) == pytest.approx(1.0)
    ranked = fusion.fuse(hits, weights)
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
    fusion = Fusion(settings)
    assert fusion.weights(hits) == [1.0]
    ranked = fusion.fuse(hits, [1.0])
    assert ranked == list(zip(prediction.ids, prediction.probs, strict=True))


@given(some_hits())
def test_fixed_weights_depend_on_the_order_alone(hits):
    """alpha = beta = 0 ignores what the predictions look like."""
    settings = Settings(alpha=0.0, beta=0.0, carry=0.5)
    s = [settings.specificity[h.order - 1] * (0.5 if h.carried else 1.0) for h in hits]
    assert Fusion(settings).weights(hits) == pytest.approx([x / sum(s) for x in s])


@given(some_hits())
def test_back_off_takes_the_longest_hit_alone(hits):
    """The others are not even in the list of candidates."""
    fusion = Fusion(Settings(fusion="back-off"))
    ranked = fusion.fuse(hits, fusion.weights(hits))
    longest = hits[0].prediction
    assert dict(ranked) == dict(zip(longest.ids, longest.probs, strict=True))


@given(predictions(), predictions(), st.floats(0.0, 1.0))
def test_mixing_keeps_a_sub_probability(one, other, share):
    """(1 - share) of the one, share of the other; the sum never exceeds one."""
    a, b = (list(zip(p.ids, p.probs, strict=True)) for p in (one, other))
    mixed = mix(a, b, share)
    wanted = {
        token: (1 - share) * dict(a).get(token, 0.0) + share * dict(b).get(token, 0.0)
        for token in {*one.ids, *other.ids}
    }
    assert dict(mixed) == pytest.approx(wanted)
    assert sum(score for _, score in mixed) <= 1.0 + 1e-9
    assert [s for _, s in mixed] == sorted((s for _, s in mixed), reverse=True)
