"""The memory against a slow, obvious one: lists of writes, replayed at every lookup."""

from __future__ import annotations

import copy
import math
import pickle
import tracemalloc
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from recap.errors import MemoryMismatchError
from recap.memory import PersistentMemory, PredictionStore, RequestMemory
from recap.prediction import (
    GAP,
    SEED_STEP,
    Prediction,
    Predictions,
    blend,
    predictions_from_rows,
)
from recap.settings import Settings

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
        assert found.concentration == pytest.approx(concentration_of(found.probs), abs=1e-9)


@given(st.lists(st.tuples(predictions(least=1), predictions(step=3, least=1)), min_size=1))
def test_blend_is_the_average(pairs):
    """Union of ids, as many kept as the longer has, written by the newer; row by row."""
    old, new = (table([*side, side[0]]) for side in zip(*pairs, strict=True))
    columns = max(old.columns, new.columns)
    for keep in (0.05, 0.5, 0.8):
        mixed = blend(old.widened(columns), new.widened(columns), keep)
        for (before, after), found in zip(pairs, mixed, strict=False):
            wanted = slow_blend(after, before, keep)
            assert list(found.ids) == list(wanted)
            assert found.probs == pytest.approx(list(wanted.values()))
            assert found.concentration == pytest.approx(concentration_of(found.probs), abs=1e-9)
            assert sum(found.probs) <= 1 + 1e-9
            assert (found.request, found.step) == (after.request, after.step)


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


@given(st.lists(st.lists(st.floats(1e-3, 1.0), min_size=K, max_size=K), min_size=1, max_size=5))
def test_concentration_and_confidence_of_rows(rows):
    """1 - H(q) / log K of the probabilities normalised to one; the largest probability."""
    probs = np.array([sorted(row, reverse=True) for row in rows], np.float32)
    probs /= probs.sum(1, keepdims=True) + 0.1
    ids = np.tile(np.arange(K), (len(rows), 1))
    for found, row in zip(predictions_from_rows(ids, probs, 4, 9), probs, strict=True):
        q = [float(p) / float(sum(row)) for p in row]
        entropy = -sum(p * math.log(p) for p in q if p)
        assert found.concentration == pytest.approx(1 - entropy / math.log(K), abs=1e-5)
        assert found.confidence == pytest.approx(float(row[0]), abs=1e-6)
        assert (found.request, found.step) == (4, 9)


def test_one_prediction_is_fully_concentrated():
    """K = 1 leaves no entropy."""
    assert predictions_from_rows(np.array([[3]]), np.array([[0.4]]), 1, 0)[0].concentration == 1.0


@settings(deadline=None, max_examples=150)
@given(st.data())
def test_request_memory_equals_a_dictionary_of_tuples(data):
    """Random passes: the last row of a key wins, gaps make no keys, requests are isolated."""
    persistent = PersistentMemory(VOCABULARY)
    carry = data.draw(st.sampled_from([0.0, 0.5]))
    options = Settings(carry=carry, top_k=K)
    carried: dict[tuple[int, ...], Prediction] = {}
    shared: dict[tuple[int, ...], Prediction] = {}
    for _ in range(data.draw(st.integers(1, 3))):
        memory = RequestMemory(persistent, options)
        own: dict[tuple[int, ...], Prediction] = {}
        for step in range(data.draw(st.integers(0, 4))):
            contexts = data.draw(
                st.lists(st.tuples(*[st.integers(-1, 4)] * 3), min_size=1, max_size=8)
            )
            rows = [data.draw(predictions(memory.request, step)) for _ in contexts]
            order = data.draw(st.permutations(range(len(rows))))
            before, previous, last = zip(*contexts, strict=True)
            memory.write(last, previous, before, table(rows), order)
            for row in order:
                for n in (1, 2, 3):
                    key = contexts[row][3 - n :]
                    if GAP not in key:
                        (shared if n == 1 else own)[key] = rows[row]
        for a in range(-1, 5):
            for b in range(-1, 5):
                for c in range(-1, 5):
                    wanted = []
                    for n in (3, 2):
                        key = (a, b, c)[3 - n :]
                        if key in own:
                            wanted.append((n, False, own[key]))
                        elif carry and key in carried:
                            wanted.append((n, True, carried[key]))
                    wanted += [(1, False, shared[(c,)])] if (c,) in shared else []
                    assert memory.lookup(c, b, a) == wanted
        carried.update(own)


def test_seeding_never_overwrites_what_decoding_wrote():
    """A prompt row gives way to a decoded one, and may replace an older prompt row."""
    persistent = PersistentMemory(VOCABULARY)

    def entry(token: int, step: int) -> Prediction:
        return Prediction((token,), (0.5,), 1.0, 0.5, 1, step)

    first = RequestMemory(persistent, Settings())
    first.write([5, 6], [GAP] * 2, [GAP] * 2, table([entry(1, SEED_STEP)] * 2), [0, 1])
    first.write([5], [GAP], [GAP], table([entry(2, 0)]), [0])
    second = RequestMemory(persistent, Settings())
    second.write([5, 6], [GAP] * 2, [GAP] * 2, table([entry(3, SEED_STEP)] * 2), [0, 1])
    assert second.lookup(5, GAP, GAP)[0].prediction.ids == (2,)
    assert second.lookup(6, GAP, GAP)[0].prediction.ids == (3,)


@pytest.mark.parametrize("keep", [0.0, 0.5])
def test_seeds_give_way_also_under_carried_keys(keep):
    """A prompt row of a later request does not replace, or thin out, what decoding wrote."""

    def entry(token: int, step: int) -> Prediction:
        return Prediction((token,), (0.5,), 1.0, 0.5, 1, step)

    persistent = PersistentMemory(VOCABULARY)
    options = Settings(carry=0.5, blend=keep)
    RequestMemory(persistent, options).write([2], [1], [0], table([entry(3, 0)]), [0])
    RequestMemory(persistent, options).write([2], [1], [0], table([entry(7, SEED_STEP)]), [0])
    hits = RequestMemory(persistent, options).lookup(2, 1, 0)
    assert [hit.prediction.ids for hit in hits if hit.carried] == [(3,), (3,)]
    assert all(hit.prediction.step == 0 for hit in hits if hit.carried)


def test_a_damaged_state_is_refused_and_changes_nothing():
    """Missing parts, wrong types, ids and keys out of range."""
    memory = PersistentMemory(VOCABULARY)
    entry = Prediction((1, 2), (0.5, 0.2), 0.5, 0.5, 1, 0)
    RequestMemory(memory, Settings(carry=0.5)).write([3], [4], [5], table([entry]), [0])
    good = memory.state_dict()
    before = list(memory.stores[1].items())

    def broken(change):
        state = pickle.loads(pickle.dumps(good))
        change(state)
        return state

    def out_of_range(name, value):
        def change(state):
            state["orders"][2][name][0] = value

        return change

    for state in (
        None,
        broken(lambda s: s.pop("orders")),
        broken(lambda s: s.update(requests="many")),
        broken(lambda s: s["orders"].pop(3)),
        broken(lambda s: s["orders"][2].pop("probs")),
        broken(lambda s: s["orders"][2].update(writer=np.zeros((1, 3)))),
        broken(lambda s: s["orders"][2].update(keys=np.zeros(0))),
        broken(out_of_range("keys", VOCABULARY**2)),
        broken(out_of_range("keys", -1)),
        broken(out_of_range("ids", VOCABULARY)),
        broken(out_of_range("ids", -1)),
    ):
        with pytest.raises(MemoryMismatchError):
            memory.load_state_dict(state)
        assert list(memory.stores[1].items()) == before
        assert memory.requests == 1


@settings(deadline=None, max_examples=50)
@given(st.lists(st.tuples(tokens, tokens, tokens, predictions()), max_size=20))
def test_state_round_trips_and_is_plain_data(rows):
    """A restored memory answers every lookup as the saved one does."""
    persistent = PersistentMemory(VOCABULARY, "words")
    options = Settings(carry=0.5, blend=0.5, top_k=K)
    memory = RequestMemory(persistent, options)
    for before, previous, own, prediction in rows:
        memory.write([own], [previous], [before], table([prediction]), [0])
    state = pickle.loads(pickle.dumps(persistent.state_dict()))
    restored = PersistentMemory(VOCABULARY, "words")
    restored.load_state_dict(state)
    assert restored.requests == persistent.requests
    persistent.settle()
    for order, store in persistent.stores.items():
        assert list(store.items()) == list(restored.stores[order].items())


@pytest.mark.parametrize(
    ("other", "name"),
    [
        (PersistentMemory(VOCABULARY, "other words"), "tokenizer"),
        (PersistentMemory(VOCABULARY + 1, "words"), "vocabulary"),
    ],
)
def test_a_foreign_state_is_refused_and_changes_nothing(other, name):
    """Its ids would mean other tokens."""
    memory = PersistentMemory(VOCABULARY, "words")
    RequestMemory(memory, Settings()).write(
        [3], [GAP], [GAP], table([Prediction((1,), (0.5,), 1.0, 0.5, 1, 0)]), [0]
    )
    with pytest.raises(MemoryMismatchError, match=name):
        memory.load_state_dict(other.state_dict())
    assert memory.entries()[1] == 1


def test_copies_are_independent():
    """A lane of a race must not write into the session's memory."""
    memory = PersistentMemory(VOCABULARY)
    twin = memory.copy()
    RequestMemory(twin, Settings()).write(
        [3], [GAP], [GAP], table([Prediction((1,), (0.5,), 1.0, 0.5, 1, 0)]), [0]
    )
    assert twin.entries()[1] == 1
    assert memory.entries()[1] == 0
    assert memory.requests == 0


@settings(deadline=None, max_examples=50)
@given(st.lists(st.tuples(tokens, tokens, tokens, predictions()), min_size=1, max_size=20))
def test_a_memory_can_be_looked_up_without_a_request(rows):
    """It answers what the next request's own lookup answers, and is as it was afterwards."""
    options = Settings(carry=0.5, blend=0.5, top_k=K)
    persistent = PersistentMemory(VOCABULARY)
    memory = RequestMemory(persistent, options)
    for before, previous, own, prediction in rows:
        memory.write([own], [previous], [before], table([prediction]), [0])
    requests, entries = persistent.requests, persistent.entries()
    found = [persistent.lookup(list(row[:3])) for row in rows]
    assert (persistent.requests, persistent.entries()) == (requests, entries)
    fresh = RequestMemory(persistent, options)
    for (before, previous, own, _), hits in zip(rows, found, strict=True):
        assert hits == fresh.lookup(own, previous, before)
        assert hits
    assert persistent.lookup([]) == []
    assert persistent.lookup([VOCABULARY]) == []


@settings(deadline=None, max_examples=60)
@given(
    st.lists(
        st.tuples(st.tuples(tokens, tokens, tokens), predictions(least=1), st.booleans()),
        min_size=1,
        max_size=24,
    ),
    st.sampled_from([0.0, 0.5]),
    st.sampled_from([2, 9, 262_144]),
)
def test_a_lookup_finds_what_a_settled_copy_holds(rows, keep, capacity):
    """Between requests: blended or overwritten, seeds below the rest, the oldest pushed out."""
    options = Settings(carry=0.5, blend=keep, top_k=K)
    persistent = PersistentMemory(VOCABULARY)
    middle = len(rows) // 2
    for part in (rows[:middle], rows[middle:]):
        memory = RequestMemory(persistent, options)
        for store in persistent.stores.values():
            store.configure(capacity, keep)
        for (before, previous, own), prediction, seed in part:
            step = SEED_STEP if seed else 0
            said = table([prediction._replace(request=memory.request, step=step)])
            memory.write([own % 3], [previous % 3], [before % 2], said, [0])
    twin = persistent.copy()
    for before in range(2):
        for previous in range(3):
            for own in range(3):
                text = [before, previous, own]
                assert persistent.lookup(text) == twin.lookup(text)


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
        ids = rng.integers(1000, 100_000, (1, 8))
        new = predictions_from_rows(ids, rng.random((1, 8)), 1, 0)
        store.write([key * 977 + 10**9], [0], new)
    used = tracemalloc.get_traced_memory()[0] - start
    tracemalloc.stop()
    assert 0.5 < store.nbytes() / used < 2.0


def test_shrinking_drops_what_was_written_longest_ago():
    """From every order the same share, until the bytes fit; what is left is as it was."""
    memory = PersistentMemory(VOCABULARY**2)
    prediction = Prediction((1, 2), (0.6, 0.3), concentration_of((0.6, 0.3)), 0.6, 1, 0)
    for order, count in ((1, 100), (2, 40)):
        for key in range(count):
            memory.stores[order].write([key], [0], table([prediction]))
    memory.stores[1].write([0], [0], table([prediction]))  # now the latest
    held = sum(memory.nbytes().values())
    assert memory.shrink(held) == 0
    assert memory.shrink(held // 2) == 70
    assert memory.entries() == {1: 50, 2: 20, 3: 0}
    assert sum(memory.nbytes().values()) <= held // 2
    assert [key for key, _ in memory.stores[1].items()] == [*range(51, 100), 0]
    assert [key for key, _ in memory.stores[2].items()] == list(range(20, 40))
    assert memory.shrink(0) == 70
    assert memory.shrink(0) == 0


def test_what_guesses_were_worth_is_part_of_the_memory():
    """Saved, copied and cleared with it; what was saved without it loads, what is damaged not."""
    memory = PersistentMemory(VOCABULARY)
    memory.counts.add(1, 2, True, 0.5)
    state = memory.state_dict()
    again = PersistentMemory(VOCABULARY)
    again.load_state_dict(state)
    assert again.counts.cells == memory.copy().counts.cells == {(1, 2): [1.0, 0.5]}
    again.load_state_dict({name: part for name, part in state.items() if name != "counts"})
    assert not again.counts.cells
    with pytest.raises(MemoryMismatchError):
        again.load_state_dict({**state, "counts": {"cells": [[0, 1]], "counts": [[-1.0, 2.0]]}})
    memory.clear()
    assert not memory.counts.cells
