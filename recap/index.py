"""Where a key's entry is, and which entry was written longest ago: the index of a store.

Three arrays, of which compiled code makes a bounded table:

- `places` (size, 2): key and slot, slot -1 where nothing is. A key lies at its hash or, where that
  is taken, at the next free place behind it (open addressing). `size` is a power of two, at least
  half of it free, so a search looks at one or two places.
- `links` (slots, 3): each slot's key, and the slots written just before and just after it.
- `state` (5,): the slot written longest ago, the latest, how many hold an entry, how many were ever
  given out, and the first that was given back (these are chained by what was written after them).
"""

from __future__ import annotations

import numpy as np

from recap.compiled import INT, INT_TABLE, INTS, VOID, inline, kernel

OLDEST, NEWEST, COUNT, USED, FREE = range(5)
KEY, OLDER, NEWER = range(3)
NONE = -1


def empty_places(size: int) -> np.ndarray:
    """Places for `size` keys, all free."""
    places = np.zeros((size, 2), np.int64)
    places[:, 1] = NONE
    return places


def empty_state() -> np.ndarray:
    """The state of a table without entries."""
    return np.array([NONE, NONE, 0, 0, NONE], np.int64)


@inline
def _home(key, last):
    # The golden ratio's digits scatter keys that differ in any bit.
    return np.int64((np.uint64(key) * np.uint64(0x9E3779B97F4A7C15)) >> np.uint64(32)) & last


@inline
def find(places, key):
    """The slot of a key, or -1."""
    last = len(places) - 1
    at = _home(key, last)
    while places[at, 1] >= 0:
        if places[at, 0] == key:
            return places[at, 1]
        at = (at + 1) & last
    return NONE


@inline
def put(places, key, slot):
    """Note the slot of a key that is not there."""
    last = len(places) - 1
    at = _home(key, last)
    while places[at, 1] >= 0:
        at = (at + 1) & last
    places[at, 0], places[at, 1] = key, slot


@inline
def _take_away(places, key):
    last = len(places) - 1
    hole = _home(key, last)
    while places[hole, 0] != key or places[hole, 1] < 0:
        hole = (hole + 1) & last
    at = (hole + 1) & last
    while places[at, 1] >= 0:
        # Whatever would no longer be found behind the hole moves into it.
        if (at - _home(places[at, 0], last)) & last >= (at - hole) & last:
            places[hole, 0], places[hole, 1] = places[at, 0], places[at, 1]
            hole = at
        at = (at + 1) & last
    places[hole, 1] = NONE


@inline
def _unlink(links, state, slot):
    older, newer = links[slot, OLDER], links[slot, NEWER]
    if older >= 0:
        links[older, NEWER] = newer
    else:
        state[OLDEST] = newer
    if newer >= 0:
        links[newer, OLDER] = older
    else:
        state[NEWEST] = older


@inline
def _link(links, state, slot):
    newest = state[NEWEST]
    links[slot, OLDER], links[slot, NEWER] = newest, NONE
    if newest >= 0:
        links[newest, NEWER] = slot
    else:
        state[OLDEST] = slot
    state[NEWEST] = slot


@inline
def renew(links, state, slot):
    """Make an entry the one that was written last."""
    if state[NEWEST] != slot:
        _unlink(links, state, slot)
        _link(links, state, slot)


@inline
def _drop_oldest(places, links, state):
    slot = state[OLDEST]
    _take_away(places, links[slot, KEY])
    _unlink(links, state, slot)
    state[COUNT] -= 1
    return slot


@inline
def check_room(links, state):
    """Nobody else looks whether an index is within bounds: a second thread may have grown the
    memory since these arrays were read."""
    if state[USED] > len(links):
        raise IndexError("two threads use one memory")


@inline
def add(places, links, state, key, capacity):
    """A slot for a new key; at capacity that of the entry that was written longest ago."""
    if state[COUNT] >= capacity:
        slot = _drop_oldest(places, links, state)
    elif state[FREE] >= 0:
        slot = state[FREE]
        state[FREE] = links[slot, NEWER]
    else:
        slot = state[USED]
        if slot >= len(links):
            raise IndexError("two threads use one memory")
        state[USED] += 1
    links[slot, KEY] = key
    put(places, key, slot)
    _link(links, state, slot)
    state[COUNT] += 1
    return slot


@kernel(INT(INT_TABLE, INT))
def slot_of(places, key):
    """The slot of a key, or -1."""
    return find(places, key)


@kernel(INTS(INT_TABLE, INTS))
def slots_by_age(links, state):
    """(count,) all slots that hold an entry, the one written longest ago first."""
    check_room(links, state)
    slots = np.empty(state[COUNT], np.int64)
    slot = state[OLDEST]
    for n in range(len(slots)):
        slots[n] = slot
        slot = links[slot, NEWER]
    return slots


@kernel(VOID(INT_TABLE, INT_TABLE, INTS, INT))
def drop_beyond(places, links, state, capacity):
    """Give back the slots of what was written longest ago, down to `capacity` entries."""
    check_room(links, state)
    while state[COUNT] > capacity:
        slot = _drop_oldest(places, links, state)
        links[slot, NEWER] = state[FREE]
        state[FREE] = slot


@kernel(VOID(INT_TABLE, INT_TABLE, INTS))
def place_all(places, links, state):
    """Fill empty places from the links, after they have grown."""
    slot = state[OLDEST]
    while slot >= 0:
        put(places, links[slot, KEY], slot)
        slot = links[slot, NEWER]
