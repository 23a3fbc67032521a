"""A bounded table of predictions by key, for one order of the memory.

    store = PredictionStore(capacity=262_144, keep=0.5)
    store.write(keys, rows, predictions)        # a pass's rows, at once
    store.get(key)                              # Prediction or None

What the keys mean, and which store a request may read, is `recap.memory`'s business.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from recap import index
from recap.compiled import FLOAT, INT, INT_TABLE, INTS, ints, kernel
from recap.prediction import SEED_STEP, Prediction, Predictions, blend_row, columns_of, copy_row


class PredictionStore:
    """Key -> prediction for one order, bounded; the least recently *written* entry goes first.

    With `keep` > 0 a repeated key is blended instead of overwritten. A prompt's row never replaces
    what decoding wrote. Keys lead to the rows of a table (`Predictions`), so that compiled code can
    read and write it, and Python's collector has nothing to look through. `places` and `table` are
    what a search reads; they may be other arrays after a write.
    """

    _FIRST_ROWS = 16

    def __init__(self, capacity: int = 262_144, keep: float = 0.0) -> None:
        self.capacity, self.keep = capacity, keep
        self.clear()

    def clear(self) -> None:
        """Forget everything."""
        self.places = index.empty_places(2)
        self._links = np.empty((0, 3), np.int64)
        self._state = index.empty_state()
        self._hold(Predictions.empty(0, 0))

    def __len__(self) -> int:
        return int(self._state[index.COUNT])

    def __contains__(self, key: int) -> bool:
        return self._slot(key) >= 0

    def configure(self, capacity: int, keep: float) -> None:
        """Change the bounds for what is written from now on; drop what is beyond them."""
        self.capacity, self.keep = capacity, keep
        index.drop_beyond(self.places, self._links, self._state, capacity)

    def get(self, key: int) -> Prediction | None:
        """The prediction under this key, or None."""
        slot = self._slot(key)
        return self._held[slot] if slot >= 0 else None

    def at(self, slot: int) -> Prediction:
        """The prediction in this row of the table."""
        return self._held[slot]

    def row(self, key: int) -> Predictions:
        """A copy of the one row under this key. Raises `KeyError` where there is none."""
        slot = self._slot(key)
        if slot < 0:
            raise KeyError(key)
        return self._held.take([slot])

    def write(
        self,
        keys: Sequence[int] | np.ndarray,
        rows: Sequence[int] | np.ndarray,
        predictions: Predictions,
    ) -> list[int]:
        """Store these rows of `predictions` under these keys, which differ, one after the other.

        Returns the rows whose key was there before.
        """
        columns = max(predictions.columns, self._held.columns)
        self._make_room(len(keys), columns)
        return _write(
            self.places,
            self._links,
            self._state,
            self._held.table,
            ints(keys),
            ints(rows),
            predictions.widened(columns).table,
            self.capacity,
            self.keep,
        ).tolist()

    def items(self) -> Iterable[tuple[int, Prediction]]:
        """All entries, least recently written first."""
        return zip(self.keys().tolist(), self.predictions(), strict=True)

    def keys(self) -> np.ndarray:
        """(entries,) all keys, least recently written first."""
        return self._links[self._by_age(), index.KEY]

    def predictions(self) -> Predictions:
        """All predictions, least recently written first."""
        return self._held.take(self._by_age())

    def absorb(self, other: PredictionStore) -> None:
        """Write all that another store holds."""
        if len(other):
            self.write(other.keys(), np.arange(len(other)), other.predictions())

    def nbytes(self) -> int:
        """Bytes held, roughly: what entries take, not what is reserved for more of them."""
        # A row, its link, and of two to four places on average three.
        return len(self) * (8 * self.table.shape[1] + 3 * 8 + 3 * 16)

    def copy(self) -> PredictionStore:
        """An independent copy."""
        twin = PredictionStore(self.capacity, self.keep)
        twin.absorb(self)
        return twin

    def shrink(self, count: int) -> int:
        """Drop what was written longest ago until `count` entries are left. Returns how many.

        What is left moves to a table of its own size, so that memory is really given back.
        """
        dropped = max(0, len(self) - count)
        if dropped:
            keys, kept = self.keys()[dropped:], self.predictions()
            self.clear()
            self.write(keys, dropped + np.arange(len(keys)), kept)
        return dropped

    def state(self) -> dict[str, np.ndarray]:
        """The entries as arrays, least recently written first. Rows are padded with id -1."""
        held = self.predictions()
        return {
            "keys": self.keys(),
            "ids": held.ints[:, :-2],
            "probs": held.floats[:, :-1],
            "concentration": held.floats[:, -1],
            "writer": held.ints[:, -2:],
        }

    @classmethod
    def from_state(
        cls, state: dict[str, np.ndarray], order: int, vocabulary: int
    ) -> PredictionStore:
        """A store of this order with the entries of `state`, which must fit the vocabulary.

        Raises `ValueError`, or another error of malformed data.
        """
        keys = [int(key) for key in np.asarray(state["keys"])]
        ids, probs, concentration, writer = (
            np.asarray(state[name]) for name in ("ids", "probs", "concentration", "writer")
        )
        count = len(keys)
        if ids.ndim != 2 or probs.shape != ids.shape or concentration.shape != (count,):
            raise ValueError("the parts do not fit each other")
        if len(ids) != count or writer.shape != (count, 2) or len(set(keys)) != count:
            raise ValueError("the parts do not fit each other")
        store = cls()
        if not count:
            return store
        padding = ids == -1
        if (
            min(keys) < 0
            or max(keys) >= vocabulary**order
            or ids.dtype.kind not in "iu"
            or ids.min() < -1
            or ids.max() >= vocabulary
            or padding[:, 0].any()
            or (padding[:, :-1] & ~padding[:, 1:]).any()
            or _repeats(ids).any()
            or not (abs(probs - 0.5) <= 0.5 + 1e-6).all()  # nor where it is no number
            or not (abs(concentration - 0.5) <= 0.5 + 1e-6).all()
            or (np.where(padding, 0.0, probs).sum(1) > 1.0 + 1e-4).any()
        ):
            raise ValueError("an entry is out of range")
        predictions = Predictions.of_arrays(ids, probs, concentration, writer)
        store.capacity = max(count, store.capacity)
        store.write(keys, range(count), predictions)
        return store

    # Inside ---------------------------------------------------------------------------------------

    def _slot(self, key: int) -> int:
        return index.slot_of(self.places, key)

    def _by_age(self) -> np.ndarray:
        return index.slots_by_age(self._links, self._state)

    def _make_room(self, keys: int, columns: int) -> None:
        """Have a row for so many keys more, by doubling, so that copies are few; and columns."""
        held, used = self._held, int(self._state[index.USED])
        needed = min(used + keys, max(used, self.capacity))
        if needed > len(held):
            more = max(self._FIRST_ROWS, needed - len(held), len(held))
            grown = Predictions.empty(len(held) + more, held.columns)
            grown.table[: len(held)] = held.table
            held = grown
            self._links = np.concatenate([self._links, np.empty((more, 3), np.int64)])
            # Half of the places stay free, so a power of two above twice the rows.
            self.places = index.empty_places(2 << (len(held) - 1).bit_length())
            index.place_all(self.places, self._links, self._state)
        if held.columns < columns or held is not self._held:
            self._hold(held.widened(columns))

    def _hold(self, predictions: Predictions) -> None:
        self._held, self.table = predictions, predictions.table


def _repeats(ids: np.ndarray) -> np.ndarray:
    """(rows, columns - 1) whether a row names a token more than once; padding may repeat."""
    ordered = np.sort(ids, 1)
    return (ordered[:, 1:] == ordered[:, :-1]) & (ordered[:, 1:] >= 0)


@kernel(INTS(INT_TABLE, INT_TABLE, INTS, INT_TABLE, INTS, INTS, INT_TABLE, INT, FLOAT))
def _write(places, links, state, table, keys, rows, source, capacity, keep):
    """`PredictionStore.write` where there is room for every key."""
    index.check_room(links, state)
    if len(table) < len(links):
        raise IndexError("two threads use one memory")
    writer = columns_of(table) + 1
    known = np.empty(len(keys), np.int64)
    count = 0
    for n in range(len(keys)):
        row = rows[n]
        slot = index.find(places, keys[n])
        if slot < 0:
            slot = index.add(places, links, state, keys[n], capacity)
            copy_row(source, row, table, slot)
            continue
        known[count] = row
        count += 1
        if source[row, writer] == SEED_STEP and table[slot, writer] != SEED_STEP:
            continue
        index.renew(links, state, slot)
        if keep > 0.0:
            blend_row(table, slot, source, row, keep)
        else:
            copy_row(source, row, table, slot)
    return known[:count]
