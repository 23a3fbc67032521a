"""Predictions kept under the last one, two and three tokens.

A verification pass predicts a next token at each of its rows. Ordinary decoding throws all of
these but one away; here each becomes a prediction (`recap.prediction`), stored under the row's 1-,
2- and 3-token key. Orders 2 and 3 live for one request, so they are implicitly conditioned on its
image; order 1 persists across requests in a `PersistentMemory` that the caller holds (RECAP, arXiv
2611.05894).

    persistent = PersistentMemory(vocabulary=32_000)
    memory = RequestMemory(persistent, Settings())      # one a request
    memory.write(contexts, predictions, rows)                   # after every pass
    memory.readers()                                            # what a search looks into

Not here: what a hit is worth (`recap.fusion`) and how hits become a tree (`recap.search`).

Keys are packed into one 64-bit integer, with room for a vocabulary of two million. A token of `GAP`
(an image placeholder, or before the text) makes no key.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numba import types

from recap import index
from recap.calibration import Counts
from recap.compiled import INT, INT_TABLE, INTS, inline, ints, kernel
from recap.errors import MemoryMismatchError
from recap.prediction import GAP, Hit, Prediction, Predictions
from recap.settings import Settings
from recap.store import PredictionStore
from recap.suffix import EarlierTexts

STATE_VERSION = 1
#: Stores that a request may look into: its own orders 2 and 3, carried ones, and order 1.
MOST_READERS = 5


class Readers(NamedTuple):
    """The stores that a request looks into, longest key first, as compiled code wants them.

    `places` and `tables` are those of each store (`recap.store`); `orders` and `carried` (readers,)
    say whose keys they hold. There are always `MOST_READERS`; of those that are not used the order
    is 0.
    """

    places: tuple[np.ndarray, ...]
    tables: tuple[np.ndarray, ...]
    orders: np.ndarray
    carried: np.ndarray
    vocabulary: int


_EACH = types.UniTuple(INT_TABLE, MOST_READERS)
READERS = types.NamedTuple([_EACH, _EACH, INTS, INTS, INT], Readers)


@inline
def pack_key(order, own, previous, before, vocabulary):
    """The key of the last `order` tokens as one integer; `GAP` where one of them is a gap."""
    if own < 0 or (order > 1 and previous < 0) or (order > 2 and before < 0):
        return GAP
    key = own
    if order > 1:
        key += previous * vocabulary
    if order > 2:
        key += before * vocabulary * vocabulary
    return key


@inline
def look_up(readers, own, previous, before, hits):
    """Find the entries under the last one, two and three tokens, longest key first.

    Writes (reader, slot) of each to `hits` (MOST_READERS, 2) and returns how many there are. A
    carried entry stands in only where the request has none of its own.
    """
    count, latest = 0, 0
    for reader in range(MOST_READERS):
        order = readers.orders[reader]
        if order == 0 or order == latest:
            continue
        key = pack_key(order, own, previous, before, readers.vocabulary)
        slot = index.find(readers.places[reader], key) if key >= 0 else -1
        if slot >= 0:
            hits[count, 0], hits[count, 1] = reader, slot
            count, latest = count + 1, order
    return count


@kernel(INT_TABLE(READERS, INT, INT, INT))
def _find_hits(readers, own, previous, before):
    """(hits, 2) reader and slot of each entry."""
    hits = np.empty((MOST_READERS, 2), np.int64)
    return hits[: look_up(readers, own, previous, before, hits)]


class PersistentMemory:
    """What a session keeps across requests: order 1, and for RECAP+ also orders 2 and 3.

    One method's memory of one session, for one thread at a time. `tokenizer` is a fingerprint: a
    saved state is refused by a memory for another tokenizer or vocabulary, since its ids would mean
    other words. `counts` is what the session has learnt of how far this method's guesses can be
    trusted.

    Orders 2 and 3 and `texts` are what RECAP+ carries over. A request's own join them when the next
    request begins: until then they are its own, and a run that is closed in the middle needs no
    clean-up. A request that still runs at that moment leaves what it has learnt so far. `copy` and
    `state_dict` include what the last request has learnt.
    """

    def __init__(self, vocabulary: int, tokenizer: str = "") -> None:
        self.vocabulary = vocabulary
        self.tokenizer = tokenizer
        self.requests = 0
        self.stores = {order: PredictionStore() for order in (1, 2, 3)}
        self.texts = EarlierTexts()
        self.counts = Counts()
        self._unsettled: dict[int, PredictionStore] = {}
        self._unsettled_text: Sequence[int] = ()

    def begin_request(self, settings: Settings) -> int:
        """Apply a request's settings to the stores. Returns the request's number, from 1."""
        self.settle()
        for store in self.stores.values():
            store.configure(settings.persistent_capacity, settings.blend)
        self.counts.begin_request()
        self.requests += 1
        return self.requests

    def carry_over(self, local: dict[int, PredictionStore], text: Sequence[int] = ()) -> None:
        """Let a request's own stores and text join the persistent ones at the next `settle`."""
        self._unsettled, self._unsettled_text = local, text

    def carry_text(self, request: int, text: Sequence[int]) -> None:
        """Let the text of this request join the others at the next `settle`, as it then is.

        Nothing happens if a newer request has begun.
        """
        if request == self.requests:
            self._unsettled_text = text

    def settle(self) -> None:
        """Keep what the last request left under orders 2 and 3, and its text.

        It must have ended: what it writes from now on is not carried over.
        """
        local, text = self._unsettled, self._unsettled_text
        self.carry_over({})
        for order, store in local.items():
            self.stores[order].absorb(store)
        self.texts.append(text)

    def clear(self) -> None:
        """Forget everything."""
        self.carry_over({})
        for store in self.stores.values():
            store.clear()
        self.texts.clear()
        self.counts.clear()
        self.requests = 0

    def entries(self) -> dict[int, int]:
        """Number of entries by order, without what the last request has yet to leave."""
        return {order: len(store) for order, store in self.stores.items()}

    def nbytes(self) -> dict[int, int]:
        """Bytes held by order, roughly. The texts, 128 KiB at most, are not counted."""
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
        twin.texts = self.texts.copy()
        twin.counts = self.counts.copy()
        twin.carry_over(self._unsettled, self._unsettled_text)
        twin.settle()
        return twin

    def state_dict(self) -> dict[str, Any]:
        """The whole memory as plain CPU data (numbers, strings and NumPy arrays)."""
        settled = self.copy()
        return {
            "version": STATE_VERSION,
            "vocabulary": self.vocabulary,
            "tokenizer": self.tokenizer,
            "requests": self.requests,
            "orders": {order: store.state() for order, store in settled.stores.items()},
            "texts": settled.texts.tokens,
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
            # Memories that were saved before there were counts or texts start with none.
            counts = Counts.from_state(state["counts"]) if "counts" in state else Counts()
            texts = EarlierTexts()
            tokens = _checked_tokens(state.get("texts", ()), self.vocabulary)
            texts.tokens = tokens[-texts.capacity :]
        except (KeyError, IndexError, TypeError, ValueError, AttributeError) as error:
            raise MemoryMismatchError(f"This saved memory is damaged ({error!r}).") from None
        self.carry_over({})
        self.requests, self.stores, self.counts = requests, stores, counts
        self.texts = texts


def _checked_tokens(tokens: Any, vocabulary: int) -> np.ndarray:
    """(n,) int64 ids and gaps. Raises `ValueError`, or another error of malformed data."""
    checked = ints(np.asarray(tokens))
    if checked.ndim != 1 or (checked < GAP).any() or (checked >= vocabulary).any():
        raise ValueError("a token is out of range")
    return checked


class RequestMemory:
    """All that one request can look up: its own orders 2 and 3, and the persistent memory.

    Order 1 reads and writes the persistent store at once. With `carry` > 0, a lookup returns the
    entry that earlier requests left under a 2- or 3-token key where this request has none of its
    own. Letting both take part cost a quarter more hits and was no better: on 24 requests to the
    bundled model, memory kept, 63 nodes, a pass emitted 3.25 tokens so, and 3.34 this way.
    Without `persist` the request neither reads nor writes what is kept. `counts` is what guesses
    were worth: the session's, or without `persist` the request's own; so are `texts`, what earlier
    requests said.
    """

    def __init__(self, persistent: PersistentMemory, settings: Settings) -> None:
        if not settings.persist:
            persistent = PersistentMemory(persistent.vocabulary, persistent.tokenizer)
        self.request = persistent.begin_request(settings)
        self.counts, self.texts = persistent.counts, persistent.texts
        self.settings = settings
        self._persistent = persistent
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
        nothing = PredictionStore(0)
        unused = MOST_READERS - len(self._readers)
        self._stores = [store for _, _, store in self._readers] + [nothing] * unused
        self._orders = ints([order for order, _, _ in self._readers] + [0] * unused)
        self._carried = ints([carried for _, carried, _ in self._readers] + [0] * unused)
        if settings.carry:
            persistent.carry_over(local)

    def carry_text(self, text: Sequence[int]) -> None:
        """With `carry` > 0, let later requests find this text, which may still grow, in `texts`."""
        if self.settings.carry:
            self._persistent.carry_text(self.request, text)

    def readers(self) -> Readers:
        """What a search looks into. Valid until the next write."""
        stores = self._stores
        return Readers(
            tuple([store.places for store in stores]),
            tuple([store.table for store in stores]),
            self._orders,
            self._carried,
            self._vocabulary,
        )

    def lookup(self, own: int, previous: int, before: int) -> list[Hit]:
        """The entries under the last one, two and three tokens, longest key first.

        `own` is the row's token, `previous` the one before it on its path, `before` the one before
        that; any may be `GAP`.
        """
        hits = []
        for reader, slot in _find_hits(self.readers(), own, previous, before).tolist():
            order, carried, store = self._readers[reader]
            hits.append(Hit(order, carried, store.at(slot)))
        return hits

    def write(
        self, contexts: np.ndarray, predictions: Predictions, rows: Sequence[int]
    ) -> dict[int, tuple[int, list[int]]]:
        """Write rows under their keys; of the rows of a pass with one key, the last in `rows` wins.

        So a pass writes a key at most once, and blending averages over passes, not within one.

        `contexts` (3, rows): own, previous and before of each, as in `lookup`. A prompt's row
        leaves alone what decoding wrote. Returns, by order, how many keys are new, and the rows
        whose key was there before the pass.
        """
        tokens, turn = ints(contexts), ints(rows)
        learned = {}
        for order, store in self._writers.items():
            found = _last_rows(tokens, turn, order, self._vocabulary)
            known = store.write(found[0], found[1], predictions)
            learned[order] = found.shape[1] - len(known), known
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


@kernel(INT_TABLE(INT_TABLE, INTS, INT, INT))
def _last_rows(tokens, rows, order, vocabulary):
    """(2, keys) the keys of this order, and of each the last row; by when that row's turn is.

    `tokens` (3, rows) are each row's own, the one before it and the one before that.
    """
    size = 4
    while size < 2 * len(rows):
        size *= 2
    places = np.zeros((size, 2), np.int64)
    places[:, 1] = -1
    keys, latest = np.empty(len(rows), np.int64), np.empty(len(rows), np.int64)
    which = np.full(len(rows), GAP)  # turn -> number of its key
    count = 0
    for turn in range(len(rows)):
        row = rows[turn]
        key = pack_key(order, tokens[0, row], tokens[1, row], tokens[2, row], vocabulary)
        if key < 0:
            continue
        number = index.find(places, key)
        if number < 0:
            number, count = count, count + 1
            keys[number] = key
            index.put(places, key, number)
        which[turn], latest[number] = number, turn
    found = np.empty((2, count), np.int64)
    at = 0
    for turn in range(len(rows)):
        number = which[turn]
        if number >= 0 and latest[number] == turn:
            found[0, at], found[1, at] = keys[number], rows[turn]
            at += 1
    return found
