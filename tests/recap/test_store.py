"""One order's store against a slow, obvious one: a list of writes, replayed at every lookup."""

from __future__ import annotations

import copy
import pickle
import tracemalloc
from collections import OrderedDict

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from recap import index
from recap.prediction import Prediction, predictions_from_rows
from recap.store import PredictionStore
from tests.recap.predictions import K, concentration_of, predictions, slow_blend, table


class SlowStore:
    """All writes in a list; a key's prediction is worked out from them each time."""

    def __init__(self, capacity: int, keep: float) -> None:
        self.capacity, self.keep = capacity, keep
        self.writes: list[tuple[int, Prediction]] = []

    def write(self, key: int, prediction: Prediction) -> None:
        self.writes.append((key, prediction))

    def entries(self) -> dict[int, dict[int, float]]:
        alive: dict[int, Prediction] = {}
        for key, new in self.writes:
            old = alive.pop(key, None)
            if old is not None and self.keep:
                mixed = slow_blend(new, old, self.keep)
                new = new._replace(ids=tuple(mixed), probs=tuple(mixed.values()))
            alive[key] = new
            if len(alive) > self.capacity:
                del alive[next(iter(alive))]  # insertion order is order of writing
        return {key: dict(zip(p.ids, p.probs)) for key, p in alive.items()}  # noqa: B905


def passes(least: int) -> st.SearchStrategy:
    """Passes: what each writes, every key at most once, and the keys that are then looked up."""
    writes = st.lists(
        st.tuples(st.integers(0, 9), predictions(least=least)), unique_by=lambda write: write[0]
    )
    return st.lists(st.tuples(writes, st.lists(st.integers(0, 9))), max_size=12)


@settings(deadline=None, max_examples=200)
@given(st.integers(1, K).flatmap(passes), st.integers(1, 8), st.sampled_from([0.0, 0.3, 0.5, 0.9]))
def test_store_equals_replayed_writes(operations, capacity, keep):
    """Overwriting, blending and eviction, also within a pass; lookups in between change nothing."""
    store, slow = PredictionStore(capacity, keep), SlowStore(capacity, keep)
    for writes, looks in operations:
        known = []
        for row, (key, prediction) in enumerate(writes):
            if key in slow.entries():
                known.append(row)
            slow.write(key, prediction)
        if writes:
            keys, rows = zip(*writes, strict=True)
            assert store.write(keys, range(len(keys)), table(rows)) == known
        wanted = slow.entries()
        for key in looks:
            found = store.get(key)
            assert (found is not None) == (key in wanted)
            assert found is None or list(found.ids) == list(wanted[key])
    wanted = slow.entries()
    assert [key for key, _ in store.items()] == list(wanted)
    for key, found in store.items():
        assert found == store.get(key)
        assert list(found.ids) == list(wanted[key])
        assert found.probs == pytest.approx(list(wanted[key].values()))
        assert found.confidence == found.probs[0]
        assert found.concentration == pytest.approx(concentration_of(found.probs), abs=1e-8)


@pytest.mark.parametrize("capacity", [1, 30, 1000])
def test_keys_are_found_among_many(capacity):
    """Large keys that share places, pushed out and written again: as in an ordered dictionary."""
    rng = np.random.default_rng(capacity)
    some = rng.integers(0, 10**15, 400)
    every = [*range(200), *(2**32 * np.arange(200)).tolist(), *some.tolist()]
    store, slow = PredictionStore(capacity), OrderedDict()
    for number in range(300):
        keys = rng.choice(len(every), rng.integers(1, 40), replace=False)
        keys = [every[n] for n in keys]
        ids = np.full((len(keys), 1), number, np.int32)
        known = store.write(
            keys, range(len(keys)), predictions_from_rows(ids, ids.astype(np.float32), 1, 0)
        )
        before = len(known)
        for key in keys:
            before -= key in slow
            slow[key] = number
            slow.move_to_end(key)
            if len(slow) > capacity:
                slow.popitem(last=False)
        assert before == 0
        if not number % 50:  # settings may change between requests
            smaller = max(1, capacity // 2)
            store.configure(smaller, 0.0)
            while len(slow) > smaller:
                slow.popitem(last=False)
            store.configure(capacity, 0.0)
        assert store.keys().tolist() == list(slow)
    for key in every:
        found = store.get(key)
        assert (key in store) == (found is not None) == (key in slow)
        assert found is None or found.ids == (slow[key],)


def test_entries_may_differ_in_length():
    """Settings may change between requests: K shrinks and grows, and blending keeps the longer."""

    def entry(*ids: int) -> Prediction:
        probs = tuple(0.5 / 2**rank for rank in range(len(ids)))
        return Prediction(ids, probs, concentration_of(probs), 0.5, 1, 0)

    store = PredictionStore(8, 0.5)
    store.write([1, 2], [0, 1], table([entry(1, 2), entry(3, 4)]))
    store.write([2, 3], [0, 1], table([entry(5, 6, 7), entry(8, 9, 10)]))
    store.write([3, 4], [0, 1], table([entry(8), entry(11)]))
    assert store.get(1) == entry(1, 2)
    assert store.get(2).ids == (5, 3, 6)
    assert store.get(3).ids == (8, 9, 10)
    assert store.get(4) == entry(11)


@pytest.mark.parametrize("duplicate", [copy.deepcopy, lambda m: pickle.loads(pickle.dumps(m))])
def test_a_duplicate_goes_on_by_itself(duplicate):
    """Written to and looked up like the original, which stays as it is."""

    def entry(token: int) -> Prediction:
        return Prediction((token, 1), (0.5, 0.25), concentration_of((0.5, 0.25)), 0.5, 1, 0)

    store = PredictionStore(8)
    store.write([3], [0], table([entry(5)]))
    twin = duplicate(store)
    twin.write([3, 4], [0, 1], table([entry(6), entry(7)]))
    assert [key for key, _ in twin.items()] == [3, 4]
    assert (twin.get(3), twin.get(4)) == (entry(6), entry(7))
    assert store.get(3) == entry(5)


def test_bytes_are_about_what_python_uses():
    """Within a factor of two of what the allocator counts."""
    rng = np.random.default_rng(0)
    store = PredictionStore(10_000)
    tracemalloc.start()
    start = tracemalloc.get_traced_memory()[0]
    for key in range(2_000):
        ids = rng.integers(1000, 100_000, (1, 8), np.int32)
        new = predictions_from_rows(ids, rng.random((1, 8), np.float32), 1, 0)
        store.write([key * 977 + 10**9], [0], new)
    used = tracemalloc.get_traced_memory()[0] - start
    tracemalloc.stop()
    assert 0.5 < store.nbytes() / used < 2.0


def test_arrays_of_before_a_growth_are_refused():
    """What a second thread would hold: compiled code would write beyond them."""
    store, entry = PredictionStore(), table([Prediction((1,), (0.5,), 1.0, 0.5, 1, 0)])
    store.write([1], [0], entry)
    old = store._links
    for key in range(2, 100):
        store.write([key], [0], entry)
    assert len(old) < len(store._links)
    with pytest.raises(IndexError, match="two threads"):
        index.slots_by_age(old, store._state)
    with pytest.raises(IndexError, match="two threads"):
        index.drop_beyond(store.places, old, store._state, 1)
