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

from recap.errors import MemoryMismatchError
from recap.prediction import SEED_STEP, Hit, Prediction, fold
from recap.settings import Settings

STATE_VERSION = 1


class PredictionStore:
    """Key -> prediction for one order, bounded; the least recently *written* entry goes first.

    With `keep` > 0 a repeated key is blended instead of overwritten. Blending is done at the first
    lookup after the writes: most entries are written several times between two lookups, and some
    are never looked up. The result is the same as blending at each write.
    """

    #: Unblended writes that an entry may pile up before they are folded.
    _MAX_PENDING = 8

    def __init__(self, capacity: int = 262_144, keep: float = 0.0) -> None:
        self._entries: OrderedDict[int, Prediction | list[Prediction]] = OrderedDict()
        self._capacity = capacity
        self._keep = keep

    def __len__(self) -> int:
        return len(self._entries)

    def __contains__(self, key: int) -> bool:
        return key in self._entries

    def configure(self, capacity: int, keep: float) -> None:
        """Change the bounds; what was written before is settled under the old ones."""
        if keep != self._keep:
            for key in self._entries:
                self.get(key)
        self._capacity, self._keep = capacity, keep
        self._evict()

    def get(self, key: int | None) -> Prediction | None:
        """The prediction under this key, or None."""
        entry = self._entries.get(key)  # type: ignore[arg-type]
        if type(entry) is list:
            entry = self._entries[key] = fold(entry, self._keep)  # type: ignore[index]
        return entry  # type: ignore[return-value]

    def write(self, key: int, prediction: Prediction) -> bool:
        """Store under a key. Returns whether the key was there before."""
        entries = self._entries
        entry = entries.get(key)
        if entry is None:
            entries[key] = prediction
            if len(entries) > self._capacity:
                entries.popitem(last=False)
            return False
        entries.move_to_end(key)
        if not self._keep:
            entries[key] = prediction
        elif type(entry) is list:
            entry.append(prediction)
            if len(entry) > self._MAX_PENDING:
                entries[key] = fold(entry, self._keep)
        else:
            entries[key] = [entry, prediction]  # type: ignore[list-item]
        return True

    def seed(self, key: int, prediction: Prediction) -> bool:
        """Like `write`, but leaves alone what decoding wrote. Returns whether the key was there."""
        entry = self.get(key)
        if entry is not None and entry.step != SEED_STEP:
            return True
        return self.write(key, prediction)

    def items(self) -> Iterable[tuple[int, Prediction]]:
        """All entries, least recently written first."""
        for key in list(self._entries):
            yield key, self.get(key)  # type: ignore[misc]

    def clear(self) -> None:
        self._entries.clear()

    def nbytes(self) -> int:
        """Bytes held, roughly: CPython's sizes of the parts of a typical entry, times entries."""
        if not self._entries:
            return 0
        k = len(self.get(next(reversed(self._entries))).ids)  # type: ignore[union-attr]
        per_entry = 100 + 36 + 104 + 2 * (40 + 8 * k) + 2 * 24 + 24 * k
        return len(self._entries) * per_entry

    def copy(self) -> PredictionStore:
        """An independent copy; predictions are immutable and shared."""
        twin = PredictionStore(self._capacity, self._keep)
        twin._entries = OrderedDict(self.items())
        return twin

    def _evict(self) -> None:
        while len(self._entries) > self._capacity:
            self._entries.popitem(last=False)

    def state(self) -> dict[str, np.ndarray]:
        """The entries as arrays, least recently written first. Rows are padded with id -1."""
        items = list(self.items())
        columns = max((len(p.ids) for _, p in items), default=0)
        ids = np.full((len(items), columns), -1, np.int64)
        probs = np.zeros((len(items), columns), np.float64)
        for row, (_, p) in enumerate(items):
            ids[row, : len(p.ids)], probs[row, : len(p.ids)] = p.ids, p.probs
        return {
            "keys": np.array([key for key, _ in items], np.int64),
            "ids": ids,
            "probs": probs,
            "concentration": np.array([p.concentration for _, p in items], np.float64),
            "writer": np.array([(p.request, p.step) for _, p in items], np.int64).reshape(-1, 2),
        }

    @classmethod
    def from_state(
        cls, state: dict[str, np.ndarray], order: int, vocabulary: int
    ) -> PredictionStore:
        """A store of this order with the entries of `state`, which must fit the vocabulary.

        Raises `ValueError`, or another error of malformed data.
        """
        store = cls()
        columns = ("keys", "ids", "probs", "concentration", "writer")
        rows = zip(*(np.asarray(state[name]).tolist() for name in columns), strict=True)
        for key, ids, probs, concentration, (request, step) in rows:
            count = sum(token >= 0 for token in ids)
            if not 0 <= key < vocabulary**order or not count or max(ids) >= vocabulary:
                raise ValueError("an entry is out of range")
            kept = tuple(probs[:count])
            store._entries[key] = Prediction(
                tuple(ids[:count]), kept, concentration, kept[0], request, step
            )
        return store


class PersistentMemory:
    """What a session keeps across requests: order 1, and for RECAP+ also orders 2 and 3.

    One method's memory of one session. `tokenizer` is a fingerprint: a saved state is refused by a
    memory for another tokenizer or vocabulary, since its ids would mean other words.

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
        self._unsettled: dict[int, PredictionStore] = {}

    def begin_request(self, settings: Settings) -> int:
        """Apply a request's settings to the stores. Returns the request's number, from 1."""
        self.settle()
        for store in self.stores.values():
            store.configure(settings.persistent_capacity, settings.blend)
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
            carried = self.stores[order]
            for key, prediction in store.items():
                seeded = prediction.step == SEED_STEP
                (carried.seed if seeded else carried.write)(key, prediction)

    def clear(self) -> None:
        """Forget everything."""
        self._unsettled = {}
        for store in self.stores.values():
            store.clear()
        self.requests = 0

    def entries(self) -> dict[int, int]:
        """Number of entries by order, without what the last request has yet to leave."""
        return {order: len(store) for order, store in self.stores.items()}

    def nbytes(self) -> dict[int, int]:
        """Bytes held by order, roughly."""
        return {order: store.nbytes() for order, store in self.stores.items()}

    def lookup(self, tokens: Sequence[int]) -> list[Hit]:
        """What the next request would find under the last one, two and three of these tokens.

        Longest key first; what an earlier request left under orders 2 and 3 counts as carried.
        Nothing is changed.
        """
        stores = (self.copy() if self._unsettled else self).stores
        hits = []
        for order in sorted(stores, reverse=True):
            own = tokens[-order:]
            if len(own) == order and all(0 <= token < self.vocabulary for token in own):
                key = 0
                for token in own:
                    key = key * self.vocabulary + token
                prediction = stores[order].get(key)
                if prediction is not None:
                    hits.append(Hit(order, order > 1, prediction))
        return hits

    def copy(self) -> PersistentMemory:
        """An independent copy, for a lane of a race: all that was learnt so far, settled."""
        twin = PersistentMemory(self.vocabulary, self.tokenizer)
        twin.requests = self.requests
        twin.stores = {order: store.copy() for order, store in self.stores.items()}
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
        except (KeyError, IndexError, TypeError, ValueError, AttributeError) as error:
            raise MemoryMismatchError(f"This saved memory is damaged ({error!r}).") from None
        self._unsettled = {}
        self.requests, self.stores = requests, stores


class RequestMemory:
    """All that one request can look up: its own orders 2 and 3, and the persistent memory.

    Order 1 reads and writes the persistent store at once. With `carry` > 0, a lookup returns both
    the request's own 2- and 3-token entry and the one that earlier requests left.
    """

    def __init__(self, persistent: PersistentMemory, settings: Settings) -> None:
        self.request = persistent.begin_request(settings)
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
        hits = []
        for order, carried, store in self._readers:
            key = packed[order]
            if key is not None:
                prediction = store.get(key)
                if prediction is not None:
                    hits.append(Hit(order, carried, prediction))
        return hits

    def write(
        self,
        own: Sequence[int],
        previous: Sequence[int],
        before: Sequence[int],
        predictions: Sequence[Prediction],
        rows: Iterable[int],
        seeding: bool = False,
    ) -> dict[int, tuple[int, list[int]]]:
        """Write rows under their keys; of the rows of a pass with one key, the last in `rows` wins.

        So a pass writes a key at most once, and blending averages over passes, not within one.

        `own`, `previous`, `before` are (rows,) token lists, as in `lookup`. With `seeding`, an
        entry of a persistent store that decoding wrote is left alone. Returns, by order, how many
        keys are new, and the rows whose key was there before the pass.
        """
        written: dict[int, tuple[int, list[int]]] = {}
        packed = _pack_columns(own, previous, before, self._vocabulary)
        backwards = list(rows)[::-1]
        for order, store in self._writers.items():
            keys = packed[order]
            write = store.seed if seeding and order == 1 else store.write
            last: dict[int, int] = {}
            for row in backwards:
                last.setdefault(keys[row], row)
            last.pop(-1, None)
            repeated = [row for key, row in reversed(last.items()) if write(key, predictions[row])]
            written[order] = (len(last) - len(repeated), repeated)
        return written

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
    a, b, c = (np.asarray(x, np.int64) for x in (before, previous, own))
    two = np.where((b >= 0) & (c >= 0), b * vocabulary + c, -1)
    three = np.where((a >= 0) & (two >= 0), a * vocabulary * vocabulary + two, -1)
    return {1: c.tolist(), 2: two.tolist(), 3: three.tolist()}
