"""What persists across requests: saved, restored, copied, looked up, and shrunk."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from recap.errors import MemoryMismatchError
from recap.memory import PersistentMemory, RequestMemory
from recap.prediction import GAP, SEED_STEP, Prediction
from recap.settings import Settings
from tests.recap.predictions import VOCABULARY, K, concentration_of, predictions, table, tokens


def test_a_damaged_state_is_refused_and_changes_nothing():
    """Missing parts, wrong types, ids and keys out of range."""
    memory = PersistentMemory(VOCABULARY)
    entry = Prediction((1, 2), (0.5, 0.2), 0.5, 0.5, 1, 0)
    RequestMemory(memory, Settings(carry=0.5)).write(np.array([[3], [4], [5]]), table([entry]), [0])
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
        broken(out_of_range("ids", 1)),  # named twice
        broken(out_of_range("probs", 1.5)),
        broken(out_of_range("probs", 0.7)),  # more than one in all
        broken(out_of_range("probs", np.nan)),
        broken(out_of_range("concentration", -0.5)),
        broken(out_of_range("concentration", np.inf)),
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
        memory.write(np.array([[own], [previous], [before]]), table([prediction]), [0])
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
        np.array([[3], [GAP], [GAP]]), table([Prediction((1,), (0.5,), 1.0, 0.5, 1, 0)]), [0]
    )
    with pytest.raises(MemoryMismatchError, match=name):
        memory.load_state_dict(other.state_dict())
    assert memory.entries()[1] == 1


def test_copies_are_independent():
    """A lane of a race must not write into the session's memory."""
    memory = PersistentMemory(VOCABULARY)
    twin = memory.copy()
    RequestMemory(twin, Settings()).write(
        np.array([[3], [GAP], [GAP]]), table([Prediction((1,), (0.5,), 1.0, 0.5, 1, 0)]), [0]
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
        memory.write(np.array([[own], [previous], [before]]), table([prediction]), [0])
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
            memory.write(np.array([[own % 3], [previous % 3], [before % 2]]), said, [0])
    twin = persistent.copy()
    for before in range(2):
        for previous in range(3):
            for own in range(3):
                text = [before, previous, own]
                assert persistent.lookup(text) == twin.lookup(text)


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


def test_texts_are_part_of_the_memory():
    """A request's text is carried over when the next begins, then saved and forgotten like all."""
    memory, text = PersistentMemory(VOCABULARY), [1]
    first = RequestMemory(memory, Settings(carry=0.5))
    first.carry_text(text)
    text.append(2)
    assert memory.copy().texts.tokens.tolist() == [1, 2, GAP]
    RequestMemory(memory, Settings()).carry_text([3])  # of a method that carries nothing
    first.carry_text([4])  # too late
    state = memory.state_dict()
    again = PersistentMemory(VOCABULARY)
    again.load_state_dict(state)
    assert again.texts.tokens.tolist() == memory.texts.tokens.tolist() == [1, 2, GAP]
    for wrong in ([VOCABULARY], [-2], [[1]], "text"):
        with pytest.raises(MemoryMismatchError, match="damaged"):
            again.load_state_dict({**state, "texts": wrong})
    again.load_state_dict({name: part for name, part in state.items() if name != "texts"})
    assert not len(again.texts)
    memory.clear()
    assert not len(memory.texts)


def test_what_guesses_were_worth_is_part_of_the_memory():
    """Saved, copied and cleared with it; what was saved without it loads, what is damaged not."""
    memory = PersistentMemory(VOCABULARY)
    memory.counts.reserve(2, 3)
    memory.counts.table[1, 2] = 1.0, 0.5
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
