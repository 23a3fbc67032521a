"""Factors are bounded, keep order, and go where the hits are."""

from __future__ import annotations

import json
import random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from recap.calibration import LEVELS, Calibration, Counts, level_of

FAMILIES = st.lists(
    st.tuples(
        st.integers(0, 2),
        st.lists(st.floats(0, 1), min_size=1, max_size=8),
        st.integers(-1, 7),
    ),
    max_size=60,
)


def learnt(families, groups=3):
    counts = Counts()
    calibration = Calibration(counts, groups, [0.8] * LEVELS)
    for group, scores, right in families:
        total = max(1.0, sum(scores))
        scores = sorted((s / total for s in scores), reverse=True)
        right = right if right < len(scores) else -1
        calibration.learn(group, [level_of(s) for s in scores], scores, right)
    return counts, calibration


@given(FAMILIES)
def test_factors_are_chances(families):
    """In [0, 1] after whatever happened, so that siblings sum to at most one."""
    _, calibration = learnt(families)
    for factors in calibration.factors():
        assert len(factors) == LEVELS
        assert all(0.0 <= factor <= 1.0 for factor in factors)


@given(FAMILIES)
def test_factors_are_what_a_slow_reference_says(families):
    """Recomputed from all cells at once, by the formula of the module's docstring."""
    counts, calibration = learnt(families)
    found = [list(factors) for factors in calibration.factors()]
    for level in range(LEVELS):
        cells = [counts.cells.get((group, level), (0.0, 0.0)) for group in range(3)]
        hits, expected = map(sum, zip(*cells, strict=True))
        pooled = (hits + 4.0 * 0.8) / (expected + 4.0)
        for group, (own_hits, own_expected) in enumerate(cells):
            estimate = (own_hits + 3.0 * pooled) / (own_expected + 3.0)
            assert found[group][level] == pytest.approx(min(1.0, estimate))


@given(st.floats(0, 1))
def test_levels_go_up_with_the_score(score):
    """And cover all of [0, 1]."""
    assert 0 <= level_of(score) < LEVELS
    assert level_of(0.0) <= level_of(score) <= level_of(1.0) == LEVELS - 1
    assert level_of(score / 2) <= level_of(score)


def test_trust_goes_where_the_hits_are():
    """A score of .8 that is right four times in ten is worth .4, and elsewhere it stays."""
    rng = random.Random(1)
    calibration = Calibration(Counts(), 2, [0.9] * LEVELS)
    level = level_of(0.8)
    for _ in range(400):
        calibration.learn(0, [level, 0], [0.8, 0.01], 0 if rng.random() < 0.4 else -1)
    one, other = calibration.factors()
    assert 0.8 * one[level] == pytest.approx(0.4, abs=0.08)
    assert one[level] < other[level]  # which leans on the pool, having seen nothing itself
    assert one[LEVELS - 1] == 0.9


def test_what_was_learnt_long_ago_is_forgotten():
    """A guess that has become right is trusted again."""
    calibration = Calibration(Counts(), 1, [0.9] * LEVELS)
    for right in (-1, 0):
        for _ in range(300):
            calibration.learn(0, [5], [0.3], right)
    assert calibration.factors()[0][5] == 1.0


@given(FAMILIES)
def test_counts_survive_saving(families):
    """Through their state; a copy is independent."""
    counts, _ = learnt(families)
    counts.gained = 4.5
    again = Counts.from_state(counts.state())
    assert (again.cells, again.gained) == (counts.cells, 4.5)
    assert counts.copy().gained == 4.5
    older = {name: part for name, part in counts.state().items() if name != "gained"}
    assert Counts.from_state(older).gained == 0.0
    twin = counts.copy()
    twin.reserve(1, 1)
    twin.table[0, 0] = 1.0, 0.5
    assert again.cells == counts.cells


@pytest.mark.parametrize(
    "state",
    [
        {},
        {"cells": np.zeros((1, 2), int), "counts": np.array([[-1.0, 1.0]])},
        {"cells": np.zeros((1, 2), int), "counts": np.array([[np.nan, 1.0]])},
        {"cells": np.zeros((2, 2), int), "counts": np.ones((1, 2))},
        {"cells": np.array([[-1, 0]]), "counts": np.ones((1, 2))},
        {"cells": np.array([[10**9, 10**9]]), "counts": np.ones((1, 2))},
        {"cells": np.zeros((0, 2), int), "counts": np.ones((0, 2)), "gained": np.array(np.nan)},
        {"cells": np.zeros((0, 2), int), "counts": np.ones((0, 2)), "gained": np.array(np.inf)},
    ],
)
def test_damaged_counts_are_refused(state):
    """With an error that a memory turns into words."""
    with pytest.raises((ValueError, LookupError)):
        Counts.from_state(state)


def test_a_new_request_inherits_a_little():
    """The shares stay, their weight shrinks."""
    counts = Counts()
    calibration = Calibration(counts, 1, [0.9] * LEVELS)
    for n in range(50):
        calibration.learn(0, [3], [1.0], 0 if n % 2 else -1)
    before = counts.cells[0, 3]
    counts.begin_request()
    hits, expected = counts.cells[0, 3]
    assert expected < before[1]
    assert hits / expected == pytest.approx(before[0] / before[1])
    assert json.dumps(counts.cells[0, 3])
