"""Predictions kept under the last one, two and three tokens.

A verification pass predicts a next token at each of its rows. Ordinary decoding throws all of
these but one away; here each becomes a prediction (`recap.prediction`), stored under the row's 1-,
2- and 3-token key. Orders 2 and 3 live for one request, so they are implicitly conditioned on its
image; order 1 persists across requests in a `PersistentMemory` that the caller holds (RECAP, arXiv
2611.05894).

    persistent = PersistentMemory(vocabulary=32_000)
    memory = RequestMemory(persistent, Settings())      # one a request
    memory.write(own, previous, before, predictions, rows)      # after every pass
    memory.lookup(own, previous, before)                        # for every node to expand

Not here: what a hit is worth (`recap.fusion`) and how hits become a tree (`recap.tree`).

Keys are packed into one int: hashing an int costs a third of hashing a tuple, and a step does a few
hundred of them. A token of `GAP` (an image placeholder, or before the text) makes no key.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from recap.calibration import Counts
from recap.errors import MemoryMismatchError
from recap.prediction import GAP, SEED_STEP, Hit, Prediction, Predictions, blend
from recap.settings import Settings

STATE_VERSION = 1


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
        self.clear()

    def clear(self) -> None:
        """Forget everything."""
        self._slots: OrderedDict[int, int] = OrderedDict()
        self._free: list[int] = []
        self._used = 0  # slots that were ever given out
        self._held = Predictions.empty(0, 0)
        self._read: dict[int, Prediction] = {}  # slot -> what was looked up there last

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
        found = self._read.get(slot)
        if found is None:
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
        return write_together([(self, keys, rows)], predictions)[0]

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

    def _forget(self, *changed: list[int]) -> None:
        """Drop what was looked up in slots whose content changes, or all of it if it is much."""
        read = self._read
        if len(read) > self._MOST_READ:
            read.clear()
        elif read:
            for slots in changed:
                for slot in slots:
                    read.pop(slot, None)

    def _resize(self, columns: int) -> None:
        """Have a row for every slot, by doubling, so that copies are few; and so many columns."""
        held = self._held
        if self._used > len(held):
            more = max(self._FIRST_ROWS, self._used, len(held))
            grown = Predictions.empty(len(held) + more, held.columns)
            grown.table[: len(held)] = held.table
            self._held = grown
        self._held = self._held.widened(columns)


def write_together(
    writes: Sequence[tuple[PredictionStore, Sequence[int], Sequence[int]]],
    predictions: Predictions,
) -> list[list[int]]:
    """`PredictionStore.write` on several stores of one `keep`: (store, keys, rows) each.

    What is blended is blended at once, since array arithmetic on few rows costs as much as on many.
    Returns each store's rows whose key was there before.
    """
    places = [store._place(keys, rows, predictions.seeds) for store, keys, rows in writes]
    columns = max([predictions.columns, *(store._held.columns for store, _, _ in writes)])
    predictions = predictions.widened(columns)
    for (store, _, _), (to, _, into, _, _) in zip(writes, places, strict=True):
        store._resize(columns)
        store._forget(to, into)
    mixed = [row for *_, mix, _ in places for row in mix]
    if mixed:
        old = [
            store._held.table[into]
            for (store, _, _), (_, _, into, _, _) in zip(writes, places, strict=True)
        ]
        new = Predictions(predictions.table[mixed])
        blended = blend(Predictions(np.concatenate(old)), new, writes[0][0].keep).table
        start = 0
        for (store, _, _), (_, _, into, _, _) in zip(writes, places, strict=True):
            store._held.table[into] = blended[start : start + len(into)]
            start += len(into)
    # Now what is written as it is: its slot may have been pushed out of what was blended.
    for (store, _, _), (to, take, _, _, _) in zip(writes, places, strict=True):
        store._held.table[to] = predictions.table[take]
    return [known for *_, known in places]


class PersistentMemory:
    """What a session keeps across requests: order 1, and for RECAP+ also orders 2 and 3.

    One method's memory of one session. `tokenizer` is a fingerprint: a saved state is refused by a
    memory for another tokenizer or vocabulary, since its ids would mean other words. `counts` is
    what the session has learnt of how far this method's guesses can be trusted.

    Orders 2 and 3 are what RECAP+ carries over. A request's own entries join them when the next
    request begins: until then they are its own, and a run that is closed in the middle needs no
    clean-up. A request that still runs at that moment leaves what it has learnt so far. `copy` and
    `state_dict` include what the last request has learnt.
    """

    def __init__(self, vocabulary: int, tokenizer: str = "") -> None:
        self.vocabulary = vocabulary
        self.tokenizer = tokenizer
        self.requests = 0
        self.stores = {order: PredictionStore() for order in (1, 2, 3)}
        self.counts = Counts()
        self._unsettled: dict[int, PredictionStore] = {}

    def begin_request(self, settings: Settings) -> int:
        """Apply a request's settings to the stores. Returns the request's number, from 1."""
        self.settle()
        for store in self.stores.values():
            store.configure(settings.persistent_capacity, settings.blend)
        self.counts.begin_request()
        self.requests += 1
        return self.requests

    def carry_over(self, local: dict[int, PredictionStore]) -> None:
        """Let a request's own stores join the persistent ones at the next `settle`."""
        self._unsettled = local

    def settle(self) -> None:
        """Write what the last request left under orders 2 and 3 to the persistent stores.

        It must have ended: what it writes from now on is not carried over.
        """
        local, self._unsettled = self._unsettled, {}
        for order, store in local.items():
            self.stores[order].absorb(store)

    def clear(self) -> None:
        """Forget everything."""
        self._unsettled = {}
        for store in self.stores.values():
            store.clear()
        self.counts.clear()
        self.requests = 0

    def entries(self) -> dict[int, int]:
        """Number of entries by order, without what the last request has yet to leave."""
        return {order: len(store) for order, store in self.stores.items()}

    def nbytes(self) -> dict[int, int]:
        """Bytes held by order, roughly."""
        return {order: store.nbytes() for order, store in self.stores.items()}

    def shrink(self, limit: int) -> int:
        """Drop what was written longest ago until about `limit` bytes are held.

        Every order gives up the same share. Returns how many entries were dropped. The last
        request must have ended.
        """
        self.settle()
        held = sum(self.nbytes().values())
        if held <= limit:
            return 0
        return sum(store.shrink(len(store) * limit // held) for store in self.stores.values())

    def lookup(self, tokens: Sequence[int]) -> list[Hit]:
        """What the next request would find under the last one, two and three of these tokens.

        Longest key first; what an earlier request left under orders 2 and 3 counts as carried.
        Nothing is changed.
        """
        hits = []
        for order in sorted(self.stores, reverse=True):
            own = tokens[-order:]
            if len(own) == order and all(0 <= token < self.vocabulary for token in own):
                key = 0
                for token in own:
                    key = key * self.vocabulary + token
                prediction = self._settled(order, key)
                if prediction is not None:
                    hits.append(Hit(order, order > 1, prediction))
        return hits

    def _settled(self, order: int, key: int) -> Prediction | None:
        """What `settle` would leave under a key, or leaves there; nothing is moved for it."""
        store, local = self.stores[order], self._unsettled.get(order)
        if local is None:
            return store.get(key)
        if len(store) + len(local) > store.capacity:  # something may be pushed out
            return self.copy().stores[order].get(key)
        if key not in local:
            return store.get(key)
        # A store of this pair alone meets the same rules.
        pair = PredictionStore(1, store.keep)
        for one in (store, local):
            if key in one:
                pair.write([key], [0], one.row(key))
        return pair.get(key)

    def copy(self) -> PersistentMemory:
        """An independent copy, for a lane of a race: all that was learnt so far, settled."""
        twin = PersistentMemory(self.vocabulary, self.tokenizer)
        twin.requests = self.requests
        twin.stores = {order: store.copy() for order, store in self.stores.items()}
        twin.counts = self.counts.copy()
        twin.carry_over(self._unsettled)
        twin.settle()
        return twin

    def state_dict(self) -> dict[str, Any]:
        """The whole memory as plain CPU data (numbers, strings and NumPy arrays)."""
        stores = self.copy().stores
        return {
            "version": STATE_VERSION,
            "vocabulary": self.vocabulary,
            "tokenizer": self.tokenizer,
            "requests": self.requests,
            "orders": {order: store.state() for order, store in stores.items()},
            "counts": self.counts.state(),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Replace the contents by a `state_dict`.

        Raises `MemoryMismatchError` for another version, vocabulary or tokenizer, and for a state
        that is damaged; the memory is then as before.
        """
        if not isinstance(state, dict):
            raise MemoryMismatchError("This is not a saved memory.")
        expected = (STATE_VERSION, self.vocabulary, self.tokenizer)
        found = tuple(state.get(name) for name in ("version", "vocabulary", "tokenizer"))
        for name, want, have in zip(
            ("version", "vocabulary", "tokenizer"), expected, found, strict=True
        ):
            if want != have:
                raise MemoryMismatchError(
                    f"This memory was saved with {name} {have!r}, but the model needs {want!r}. "
                    "Start with an empty memory instead."
                )
        try:
            requests = int(state["requests"])
            stores = {
                order: PredictionStore.from_state(state["orders"][order], order, self.vocabulary)
                for order in self.stores
            }
            # Memories that were saved before there were counts start with none.
            counts = Counts.from_state(state["counts"]) if "counts" in state else Counts()
        except (KeyError, IndexError, TypeError, ValueError, AttributeError) as error:
            raise MemoryMismatchError(f"This saved memory is damaged ({error!r}).") from None
        self._unsettled = {}
        self.requests, self.stores, self.counts = requests, stores, counts


class RequestMemory:
    """All that one request can look up: its own orders 2 and 3, and the persistent memory.

    Order 1 reads and writes the persistent store at once. With `carry` > 0, a lookup returns the
    entry that earlier requests left under a 2- or 3-token key where this request has none of its
    own. Letting both take part cost a quarter more hits and was no better: on 24 requests to the
    bundled model, memory kept, 63 nodes, a pass emitted 3.25 tokens so, and 3.34 this way.
    Without `persist` the request neither reads nor writes what is kept. `counts` is what guesses
    were worth: the session's, or without `persist` the request's own.
    """

    def __init__(self, persistent: PersistentMemory, settings: Settings) -> None:
        if not settings.persist:
            persistent = PersistentMemory(persistent.vocabulary, persistent.tokenizer)
        self.request = persistent.begin_request(settings)
        self.counts = persistent.counts
        self.settings = settings
        self._vocabulary = persistent.vocabulary
        local = {
            order: PredictionStore(settings.local_capacity, settings.blend)
            for order in settings.orders
            if order > 1
        }
        # (order, carried, store), longest key first: the order in which hits are returned.
        self._readers: list[tuple[int, bool, PredictionStore]] = []
        self._writers: dict[int, PredictionStore] = {}
        for order in sorted(settings.orders, reverse=True):
            own = self._writers[order] = local[order] if order > 1 else persistent.stores[1]
            self._readers.append((order, False, own))
            if order > 1 and settings.carry:
                self._readers.append((order, True, persistent.stores[order]))
        self._getters = [(order, carried, store.get) for order, carried, store in self._readers]
        if settings.carry:
            persistent.carry_over(local)

    def lookup(self, own: int, previous: int, before: int) -> list[Hit]:
        """The entries under the last one, two and three tokens, longest key first.

        `own` is the row's token, `previous` the one before it on its path, `before` the one before
        that; any may be `GAP`.
        """
        if own < 0:
            return []
        vocabulary = self._vocabulary
        second = previous * vocabulary + own if previous >= 0 else None
        third = (
            (before * vocabulary + previous) * vocabulary + own
            if before >= 0 and previous >= 0
            else None
        )
        packed = (None, own, second, third)
        hits: list[Hit] = []
        make = tuple.__new__  # half the time of the named tuple's own
        latest = 0
        for order, carried, get in self._getters:
            key = packed[order]
            if key is None or (carried and latest == order):
                continue
            prediction = get(key)
            if prediction is not None:
                hits.append(make(Hit, (order, carried, prediction)))
                latest = order
        return hits

    def write(
        self,
        own: Sequence[int],
        previous: Sequence[int],
        before: Sequence[int],
        predictions: Predictions,
        rows: Iterable[int],
    ) -> dict[int, tuple[int, list[int]]]:
        """Write rows under their keys; of the rows of a pass with one key, the last in `rows` wins.

        So a pass writes a key at most once, and blending averages over passes, not within one.

        `own`, `previous`, `before` are (rows,) token lists, as in `lookup`. A prompt's row leaves
        alone what decoding wrote. Returns, by order, how many keys are new, and the rows whose key
        was there before the pass.
        """
        packed = _pack_columns(own, previous, before, self._vocabulary)
        backwards = list(rows)[::-1]
        writes = []
        for order, store in self._writers.items():
            keys = packed[order]
            last: dict[int, int] = {}
            for row in backwards:
                last.setdefault(keys[row], row)
            last.pop(GAP, None)
            writes.append((store, list(last)[::-1], list(last.values())[::-1]))
        repeated = write_together(writes, predictions)
        return {
            order: (len(keys) - len(known), known)
            for order, (_, keys, _), known in zip(self._writers, writes, repeated, strict=True)
        }

    def entries(self) -> dict[str, int]:
        """Number of entries by order: "1", "2", "3" and, where carried, "carried-2/3"."""
        counts = {}
        for order, carried, store in reversed(self._readers):
            counts[f"carried-{order}" if carried else str(order)] = len(store)
        return counts

    def nbytes(self) -> dict[str, int]:
        """Bytes held, roughly, with the names of `entries`."""
        return {
            f"carried-{order}" if carried else str(order): store.nbytes()
            for order, carried, store in reversed(self._readers)
        }


def _pack_columns(
    own: Sequence[int], previous: Sequence[int], before: Sequence[int], vocabulary: int
) -> dict[int, list[int]]:
    """The three keys of many rows at once; -1 where a row has none."""
    two = [
        b * vocabulary + c if b >= 0 and c >= 0 else GAP for b, c in zip(previous, own, strict=True)
    ]
    square = vocabulary * vocabulary
    three = [
        a * square + pair if a >= 0 and pair >= 0 else GAP
        for a, pair in zip(before, two, strict=True)
    ]
    return {1: list(own), 2: two, 3: three}
