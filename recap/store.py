"""A bounded table of predictions by key, for one order of the memory.

    store = PredictionStore(capacity=262_144, keep=0.5)
    store.write(keys, rows, predictions)        # a pass's rows, at once
    store.get(key)                              # Prediction or None

What the keys mean, and which store a request may read, is `recap.memory`'s business.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence

import numpy as np

from recap.prediction import SEED_STEP, Prediction, Predictions, blend

Finder = Callable[[int], int | None]
Reader = Callable[[int], Prediction]


class PredictionStore:
    """Key -> prediction for one order, bounded; the least recently *written* entry goes first.

    With `keep` > 0 a repeated key is blended instead of overwritten. A prompt's row never replaces
    what decoding wrote. Keys lead to the rows of a table (`Predictions`), so that a pass blends and
    stores all of its rows at once, and Python's collector has nothing to look through.
    """

    _FIRST_ROWS = 1024
    _MOST_READ = 4096

    def __init__(self, capacity: int = 262_144, keep: float = 0.0) -> None:
        self.capacity, self.keep = capacity, keep
        self._slots: OrderedDict[int, int] = OrderedDict()
        self._read: dict[int, Prediction] = {}  # slot -> what was looked up there last
        self.clear()

    def clear(self) -> None:
        """Forget everything."""
        self._slots.clear()
        self._read.clear()
        self._free: list[int] = []
        self._used = 0  # slots that were ever given out
        self._held = Predictions.empty(0, 0)

    def __len__(self) -> int:
        return len(self._slots)

    def __contains__(self, key: int) -> bool:
        return key in self._slots

    def configure(self, capacity: int, keep: float) -> None:
        """Change the bounds for what is written from now on; drop what is beyond them."""
        self.capacity, self.keep = capacity, keep
        while len(self._slots) > capacity:
            self._free.append(self._slots.popitem(last=False)[1])

    def get(self, key: int) -> Prediction | None:
        """The prediction under this key, or None. The same object until it changes."""
        slot = self._slots.get(key)
        if slot is None:
            return None
        return self._read.get(slot) or self._read_slot(slot)

    @property
    def finders(self) -> tuple[Finder, Callable[[int], Prediction | None], Reader]:
        """The steps of `get`: key -> slot or None, slot -> what was read there or None, slot -> its
        prediction."""
        return self._slots.get, self._read.get, self._read_slot

    def _read_slot(self, slot: int) -> Prediction:
        found = self._read[slot] = self._held[slot]
        return found

    def row(self, key: int) -> Predictions:
        """A copy of the one row under this key. Raises `KeyError` where there is none."""
        return self._held.take([self._slots[key]])

    def write(
        self, keys: Sequence[int], rows: Sequence[int], predictions: Predictions
    ) -> list[int]:
        """Store these rows of `predictions` under these keys, which differ, one after the other.

        Returns the rows whose key was there before.
        """
        to, take, into, mix, known = self._place(keys, rows, predictions.seeds)
        columns = max(predictions.columns, self._held.columns)
        wide = predictions.widened(columns)
        self._resize(columns)
        table, read = self._held.table, self._read
        if len(read) > self._MOST_READ:
            read.clear()
        if mix:
            old, new = Predictions(table[into]), Predictions(wide.table[mix])
            table[into] = blend(old, new, self.keep).table
            for slot in into:
                read.pop(slot, None)
        # Now what is written as it is: its slot may have been pushed out of what was blended.
        table[to] = wide.table[take]
        for slot in to:
            read.pop(slot, None)
        return known

    def items(self) -> Iterable[tuple[int, Prediction]]:
        """All entries, least recently written first."""
        return zip(self._slots, self.predictions(), strict=True)

    def predictions(self) -> Predictions:
        """All predictions, least recently written first."""
        return self._held.take(list(self._slots.values()))

    def absorb(self, other: PredictionStore) -> None:
        """Write all that another store holds."""
        if other._slots:
            self.write(list(other._slots), range(len(other)), other.predictions())

    def nbytes(self) -> int:
        """Bytes held, roughly: the entries' rows, and CPython's sizes of what leads to them."""
        # A link and a place in the dictionary, the key, the slot.
        return len(self._slots) * (8 * self._held.table.shape[1] + 56 + 104 + 2 * 32)

    def copy(self) -> PredictionStore:
        """An independent copy."""
        twin = PredictionStore(self.capacity, self.keep)
        twin.absorb(self)
        return twin

    def shrink(self, count: int) -> int:
        """Drop what was written longest ago until `count` entries are left. Returns how many.

        What is left moves to a table of its own size, so that memory is really given back.
        """
        dropped = max(0, len(self._slots) - count)
        if dropped:
            keys, kept = list(self._slots), self.predictions()
            rows = range(dropped, len(keys))
            self.clear()
            self.write(keys[dropped:], rows, kept)
        return dropped

    def state(self) -> dict[str, np.ndarray]:
        """The entries as arrays, least recently written first. Rows are padded with id -1."""
        held = self.predictions()
        return {
            "keys": np.array(list(self._slots), np.int64),
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
        padding = ids < 0
        if (
            min(keys) < 0
            or max(keys) >= vocabulary**order
            or ids.max() >= vocabulary
            or padding[:, 0].any()
            or (padding[:, :-1] & ~padding[:, 1:]).any()
            or not np.isfinite(probs).all()
        ):
            raise ValueError("an entry is out of range")
        predictions = Predictions.of_arrays(ids, probs, concentration, writer)
        store.capacity = max(count, store.capacity)
        store.write(keys, range(count), predictions)
        return store

    # Inside ---------------------------------------------------------------------------------------

    def _place(
        self, keys: Sequence[int], rows: Sequence[int], seeds: frozenset[int]
    ) -> tuple[list[int], list[int], list[int], list[int], list[int]]:
        """Find or make room for these keys.

        Returns (slots to write to, the rows for them, slots to blend into, the rows for them, all
        rows whose key was there before). Of two rows for one slot the later counts: a key that is
        pushed out gives its slot to a key behind it.
        """
        slots, free, keep = self._slots, self._free, self.keep
        to, take, into, mix, known = [], [], [], [], []
        find, renew, capacity = slots.get, slots.move_to_end, self.capacity
        for key, row in zip(keys, rows, strict=True):
            slot = find(key)
            if slot is None:
                if len(slots) >= capacity:
                    slot = slots.popitem(last=False)[1]
                elif free:
                    slot = free.pop()
                else:
                    slot = self._used
                    self._used += 1
                slots[key] = slot
            else:
                known.append(row)
                if seeds and row in seeds and self._held.ints[slot, -1] != SEED_STEP:
                    continue
                renew(key)
                if keep:
                    into.append(slot)
                    mix.append(row)
                    continue
            to.append(slot)
            take.append(row)
        return to, take, into, mix, known

    def _resize(self, columns: int) -> None:
        """Have a row for every slot, by doubling, so that copies are few; and so many columns."""
        held = self._held
        if self._used > len(held):
            more = max(self._FIRST_ROWS, self._used, len(held))
            grown = Predictions.empty(len(held) + more, held.columns)
            grown.table[: len(held)] = held.table
            self._held = grown
        self._held = self._held.widened(columns)
