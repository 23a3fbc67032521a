"""What one request writes and finds: its own keys, carried ones, and seeds that give way."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from recap.memory import PersistentMemory, RequestMemory
from recap.prediction import GAP, SEED_STEP, Prediction
from recap.settings import Settings
from tests.recap.predictions import VOCABULARY, K, predictions, table


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
            memory.write(np.array([last, previous, before]), table(rows), order)
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
    first.write(np.array([[5, 6], [GAP] * 2, [GAP] * 2]), table([entry(1, SEED_STEP)] * 2), [0, 1])
    first.write(np.array([[5], [GAP], [GAP]]), table([entry(2, 0)]), [0])
    second = RequestMemory(persistent, Settings())
    second.write(np.array([[5, 6], [GAP] * 2, [GAP] * 2]), table([entry(3, SEED_STEP)] * 2), [0, 1])
    assert second.lookup(5, GAP, GAP)[0].prediction.ids == (2,)
    assert second.lookup(6, GAP, GAP)[0].prediction.ids == (3,)


def test_only_one_token_keys_are_blended_in_a_request():
    """A longer key is nearly its own context, so the latest word on it counts; also carried over,
    where what two requests say of it is blended."""

    def write(memory: RequestMemory, token: int, step: int) -> None:
        said = Prediction((token, 0), (0.5, 0.125), 0.5, 0.5, memory.request, step)
        memory.write(np.array([[2], [1], [0]]), table([said]), [0])

    persistent, options = PersistentMemory(VOCABULARY), Settings(carry=0.5, blend=0.5, top_k=K)
    first = RequestMemory(persistent, options)
    for step, token in enumerate((3, 4)):
        write(first, token, step)
    assert {h.order: h.prediction.ids for h in first.lookup(2, 1, 0)} == {
        3: (4, 0), 2: (4, 0), 1: (4, 3)
    }  # fmt: skip
    second = RequestMemory(persistent, options)
    write(second, 5, 0)
    third = RequestMemory(persistent, options)
    carried = {h.order: h.prediction.ids for h in third.lookup(2, 1, 0) if h.carried}
    assert carried == {3: (5, 4), 2: (5, 4)}


@pytest.mark.parametrize("keep", [0.0, 0.5])
def test_seeds_give_way_also_under_carried_keys(keep):
    """A prompt row of a later request does not replace, or thin out, what decoding wrote."""

    def entry(token: int, step: int) -> Prediction:
        return Prediction((token,), (0.5,), 1.0, 0.5, 1, step)

    persistent = PersistentMemory(VOCABULARY)
    options = Settings(carry=0.5, blend=keep)
    RequestMemory(persistent, options).write(np.array([[2], [1], [0]]), table([entry(3, 0)]), [0])
    RequestMemory(persistent, options).write(
        np.array([[2], [1], [0]]), table([entry(7, SEED_STEP)]), [0]
    )
    hits = RequestMemory(persistent, options).lookup(2, 1, 0)
    assert [hit.prediction.ids for hit in hits if hit.carried] == [(3,), (3,)]
    assert all(hit.prediction.step == 0 for hit in hits if hit.carried)
