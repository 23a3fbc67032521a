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

from collections.abc import Iterable, Sequence
from typing import Any

from recap.calibration import Counts
from recap.errors import MemoryMismatchError
from recap.prediction import GAP, Hit, Prediction, Predictions
from recap.settings import Settings
from recap.store import PredictionStore

STATE_VERSION = 1


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
        # Only what one token predicts is blended while decoding: it is met in many contexts. In one
        # request a longer key is nearly its own context, and the target's latest word on it counts.
        local = {
            order: PredictionStore(settings.local_capacity)
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
        self._finders = [(order, held, *store.finders) for order, held, store in self._readers]
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
        # `PredictionStore.get`, written out: this asks a hundred times a step or more.
        for order, carried, find, known, read in self._finders:
            key = packed[order]
            if key is None or (carried and latest == order):
                continue
            slot = find(key)
            if slot is not None:
                hits.append(make(Hit, (order, carried, known(slot) or read(slot))))
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
        learned = {}
        for order, store in self._writers.items():
            keys = packed[order]
            last: dict[int, int] = {}
            for row in backwards:
                last.setdefault(keys[row], row)
            last.pop(GAP, None)
            known = store.write(list(last)[::-1], list(last.values())[::-1], predictions)
            learned[order] = len(last) - len(known), known
        return learned

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
