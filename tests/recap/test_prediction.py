"""What a row predicts and how two predictions blend, against the definitions."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from recap.prediction import predictions_from_rows
from recap.store import PredictionStore
from tests.recap.predictions import K, concentration_of, predictions, slow_blend, table


@given(st.lists(st.tuples(predictions(least=1), predictions(step=3, least=1)), min_size=1))
def test_blend_is_the_average(pairs):
    """Union of ids, as many kept as the longer has, written by the newer; row by row."""
    old, new = (table(side) for side in zip(*pairs, strict=True))
    keys = range(len(pairs))
    for keep in (0.05, 0.5, 0.8):
        store = PredictionStore(keep=keep)
        store.write(keys, keys, old)
        store.write(keys, keys, new)
        for key, (before, after) in enumerate(pairs):
            found, wanted = store.get(key), slow_blend(after, before, keep)
            assert list(found.ids) == list(wanted)
            assert found.probs == pytest.approx(list(wanted.values()))
            assert found.concentration == pytest.approx(concentration_of(found.probs), abs=1e-8)
            assert sum(found.probs) <= 1 + 1e-9
            assert (found.request, found.step) == (after.request, after.step)


@given(st.lists(st.lists(st.floats(1e-3, 1.0), min_size=K, max_size=K), min_size=1, max_size=5))
def test_concentration_and_confidence_of_rows(rows):
    """1 - H(q) / log K of the probabilities normalised to one; the largest probability."""
    probs = np.array([sorted(row, reverse=True) for row in rows], np.float32)
    probs /= probs.sum(1, keepdims=True) + 0.1
    ids = np.tile(np.arange(K, dtype=np.int32), (len(rows), 1))
    for found, row in zip(predictions_from_rows(ids, probs, 4, 9), probs, strict=True):
        q = [float(p) / float(sum(row)) for p in row]
        entropy = -sum(p * math.log(p) for p in q if p)
        assert found.concentration == pytest.approx(1 - entropy / math.log(K), abs=1e-5)
        assert found.confidence == pytest.approx(float(row[0]), abs=1e-6)
        assert (found.request, found.step) == (4, 9)


def test_one_prediction_is_fully_concentrated():
    """K = 1 leaves no entropy."""
    ids, probs = np.array([[3]], np.int32), np.array([[0.4]], np.float32)
    assert predictions_from_rows(ids, probs, 1, 0)[0].concentration == 1.0


def test_what_is_not_a_number_predicts_nothing():
    """A model whose numbers have overflown does not end a run."""
    ids, probs = np.array([[3, 4]], np.int32), np.array([[np.nan, 0.25]], np.float32)
    assert predictions_from_rows(ids, probs, 1, 0)[0].probs == (0.0, 0.25)
