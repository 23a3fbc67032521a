"""Best-first search: grow a candidate tree out of what is known of every row on the way.

    found = search(root, readers, weighting, extras, trust, floors, limits)
    tree.fill(found.nodes, found.scores, lambda: found.lookups(extras))

Each expanded row is looked up in the memories, its hits are fused, and its candidates wait in one
queue, from which the most probable of all is taken next. The whole search is one compiled function:
every node depends on the one before it, so there is nothing to do at once.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numba import types

from recap.calibration import LEVEL, count_family
from recap.compiled import (
    BOOL,
    COUNTS,
    FLOAT,
    FLOAT_TABLE,
    FLOATS,
    INT,
    INT_TABLE,
    INTS,
    VOID,
    floats,
    inline,
    ints,
    kernel,
)
from recap.fusion import CARRIED, ENTRY, ORDER, ROW, WEIGHTING, fuse, mix, weigh
from recap.memory import MOST_READERS, READERS, look_up
from recap.prediction import Predictions, columns_of, copy_row
from recap.tree import (
    BEFORE,
    DEPTH,
    FUSED,
    NO_RUNNER_UP,
    PARENT,
    PATH,
    PREVIOUS,
    TOKEN,
    Floors,
    Lookups,
    RunnerUp,
    Suffix,
)

#: Groups of families (`recap.calibration`): the longest order that hit, or that the suffix takes
#: part; at the root and below it.
SUFFIX_KIND = 4
KINDS = 5

_LEVEL = np.array(LEVEL)


class Extras(NamedTuple):
    """What takes part beside the memories.

    `runner_up` and `runner_up_probs` (n,) share `runner_up_share` of the root's scores.
    `continuation` (n,) followed an earlier occurrence of the text's end, and `shares` (n,) is what
    each of its tokens takes of the scores where it is offered. Nothing follows one of `ends`.
    """

    runner_up: np.ndarray
    runner_up_probs: np.ndarray
    runner_up_share: float
    continuation: np.ndarray
    shares: np.ndarray
    ends: np.ndarray

    @classmethod
    def of(
        cls,
        runner_up: RunnerUp = NO_RUNNER_UP,
        continuation: Sequence[int] = (),
        shares: Sequence[float] = (),
        ends: Sequence[int] | np.ndarray = (),
    ) -> Extras:
        """From plain data."""
        return cls(
            ints(runner_up.ids),
            floats(runner_up.probs),
            float(runner_up.share),
            ints(continuation),
            floats(shares),
            ints(ends),
        )


class Limits(NamedTuple):
    """Longest path, and most children of a node."""

    max_depth: int
    width: int


class Found(NamedTuple):
    """What a search has grown.

    `nodes` (5, rows): token, parent, depth, previous, before; `scores` (2, rows): fused, path. Of
    every row that was looked up: `expanded` (families,), its group in `groups`, and its candidates
    in `tokens` and `fused` (families, width), `counts` of each. `hits` (hits, 4): row, order,
    carried, entry; `weights` (hits,); `entries` a table of predictions. `suffix` (n, 2): row, and
    how many tokens of the continuation had led there. `stopped`: there was something, and its best
    was not above the first floor.
    """

    nodes: np.ndarray
    scores: np.ndarray
    expanded: np.ndarray
    groups: np.ndarray
    counts: np.ndarray
    tokens: np.ndarray
    fused: np.ndarray
    hits: np.ndarray
    weights: np.ndarray
    entries: np.ndarray
    suffix: np.ndarray
    stopped: bool

    def lookups(
        self, extras: Extras | None = None, match: int = 0, earlier: bool = False
    ) -> Lookups:
        """What children's scores came from; the continuation followed `match` equal tokens, in the
        text of an earlier request if `earlier`."""
        row, order, carried, entry = self.hits.T
        made = Lookups(
            self.expanded, row, order, carried, entry, self.weights, Predictions(self.entries)
        )
        if extras is not None:
            made.suffix = [
                Suffix(at, int(extras.continuation[n]), match + n, float(extras.shares[n]), earlier)
                for at, n in self.suffix.tolist()
            ]
            if len(extras.runner_up) and len(self.expanded):  # the root comes first
                made.runner_up = RunnerUp(
                    tuple(extras.runner_up.tolist()),
                    tuple(extras.runner_up_probs.tolist()),
                    extras.runner_up_share,
                )
        return made


EXTRAS = types.NamedTuple([INTS, FLOATS, FLOAT, INTS, FLOATS, INTS], Extras)
FLOORS = types.NamedUniTuple(FLOATS, 2, Floors)
LIMITS = types.NamedUniTuple(INT, 2, Limits)
_OF_FAMILIES = (INTS, INTS, INTS, INT_TABLE, FLOAT_TABLE)
_OF_HITS = (INT_TABLE, FLOATS, INT_TABLE)
FOUND = types.NamedTuple(
    (INT_TABLE, FLOAT_TABLE, *_OF_FAMILIES, *_OF_HITS, INT_TABLE, BOOL),
    Found,
)


@inline
def _level(score):
    """The level of a score; of what is no chance (or no number) the nearest, since nobody else
    looks whether an index is within bounds."""
    return _LEVEL[min(max(int(64.0 * score), 0), len(_LEVEL) - 1)]


@inline
def note_entry(codes, count, code):
    """The number of an entry, by its code; a new one is the next. At most a few hundred."""
    for n in range(count):
        if codes[n] == code:
            return n
    codes[count] = code
    return count


@inline
def start_growing(root, most, width, columns):
    """A `Found` of the root alone, with room for so many nodes and for entries of so many columns.

    `root` (3,): the root's token, the one before it, and the one before that. `trim` takes away
    what was not needed.
    """
    rows = most + 1
    nodes = np.zeros((5, rows), np.int64)
    nodes[TOKEN, 0], nodes[PARENT, 0] = root[0], -1
    nodes[PREVIOUS, 0], nodes[BEFORE, 0] = root[1], root[2]
    return Found(
        nodes,
        np.ones((2, rows), np.float64),
        np.empty(rows, np.int64),
        np.empty(rows, np.int64),
        np.zeros(rows, np.int64),
        np.zeros((rows, width), np.int64),
        np.zeros((rows, width), np.float64),
        np.empty((rows * MOST_READERS, 4), np.int64),
        np.ones(rows * MOST_READERS, np.float64),
        np.empty((rows * MOST_READERS, 2 * columns + 3), np.int64),
        np.empty((rows, 2), np.int64),
        False,
    )


@inline
def trim(found, rows, families, hits, entries, suffix, stopped):
    """The first so many of each."""
    return Found(
        found.nodes[:, :rows].copy(),
        found.scores[:, :rows].copy(),
        found.expanded[:families],
        found.groups[:families],
        found.counts[:families],
        found.tokens[:families],
        found.fused[:families],
        found.hits[:hits],
        found.weights[:hits],
        found.entries[:entries],
        found.suffix[:suffix],
        stopped,
    )


@inline
def note_hit(readers, reader, slot, row, made, hits, codes, entries):
    """Note what a row found as hit number `hits`, and copy it, unless it is there already.

    `codes` say which entry is which; `entries` is how many there are. Returns how many then are.
    """
    entry = note_entry(codes, entries, slot * MOST_READERS + reader)
    if entry == entries:
        copy_row(readers.tables[reader], slot, made.entries, entry)
        entries += 1
    made.hits[hits, ROW], made.hits[hits, ORDER] = row, readers.orders[reader]
    made.hits[hits, CARRIED], made.hits[hits, ENTRY] = readers.carried[reader], entry
    return entries


@inline
def add_node(nodes, scores, row, parent, token, fused, path):
    """Write a node's row."""
    nodes[TOKEN, row], nodes[PARENT, row] = token, parent
    nodes[DEPTH, row] = nodes[DEPTH, parent] + 1
    nodes[PREVIOUS, row], nodes[BEFORE, row] = nodes[TOKEN, parent], nodes[PREVIOUS, parent]
    scores[FUSED, row], scores[PATH, row] = fused, path


@inline
def _enqueue(queue, waiting, size, path, rank, family):
    """Put a family's next candidate in its place.

    `queue` (families,) are path probabilities, the most probable last; `waiting` (families, 2) rank
    and family. Ties go to the lower rank among siblings, then to the family that came first. A heap
    is no faster at a hundred candidates, and could not say in one look how many of them are more
    probable than something else.
    """
    at = size
    while at:
        other = at - 1
        if queue[other] < path:
            break
        if queue[other] == path:
            if waiting[other, 0] > rank:
                break
            if waiting[other, 0] == rank and waiting[other, 1] > family:
                break
        queue[at] = queue[other]
        waiting[at, 0], waiting[at, 1] = waiting[other, 0], waiting[other, 1]
        at = other
    queue[at] = path
    waiting[at, 0], waiting[at, 1] = rank, family


@inline
def _may_matter(bound, queue, size, remaining):
    """Whether a child of at most this probability could be among the nodes that are wanted.

    Not if enough candidates wait that are more probable: towards the end of the search that spares
    a third of the lookups, and changes nothing.
    """
    if remaining > size:
        return True
    return remaining > 0 and queue[size - remaining] <= bound


@kernel(FOUND(INTS, READERS, WEIGHTING, EXTRAS, FLOAT_TABLE, FLOORS, LIMITS))
def search(root, readers, weighting, extras, trust, floors, limits):
    """Grow a tree by its most probable candidates for as long as they are above the floors.

    `root` is as `start_growing` has it. `trust` (groups, levels): by which factor a score of a
    level in a family of a group is multiplied, in [0, 1].

    A row is expanded at most once, right after it was added. Its candidates' scores never rise and
    sum to at most one. A child's path probability is its parent's times its score times the trust
    in that, and not above its better sibling's. So no child beats its parent, and the result is the
    most probable of all paths, closed under prefixes. Ties go to the lower rank among siblings,
    then to the parent that was added first. Only the next sibling of each family waits in the
    queue: a family's other candidates cannot come before it.
    """
    most, width = len(floors.next) - 1, limits.width
    room = 0
    for reader in range(MOST_READERS):
        room = max(room, columns_of(readers.tables[reader]))
    made = start_growing(root, most, width, room)
    nodes, scores = made.nodes, made.scores
    expanded, groups, counts = made.expanded, made.groups, made.counts
    tokens, fused = made.tokens, made.fused
    hits, weights, entries = made.hits, made.weights, made.entries
    found = np.empty((MOST_READERS, 2), np.int64)
    codes = np.empty(len(hits), np.int64)
    families = hit_count = entry_count = 0
    ceiling = trust.max()  # what no child's share of its parent's probability exceeds

    # Rows along which the continuation runs: how many of its tokens led there, else -1.
    followed = np.full(most + 1, -1)
    followed[0] = 0
    offered, certain = np.empty(1, np.int64), np.ones(1, np.float64)
    suffix_count = 0

    space = MOST_READERS * room + len(extras.runner_up) + 1
    ranked, ranked_scores = np.empty(space, np.int64), np.empty(space, np.float64)
    queue, waiting = np.empty(most + 2, np.float64), np.empty((most + 2, 2), np.int64)
    size = row = 0
    stopped = False
    while True:
        token, depth = nodes[TOKEN, row], nodes[DEPTH, row]
        bound = scores[PATH, row] * ceiling
        # The root is looked up whatever it is worth: its choice shows what the guess was worth.
        wanted = most > 0 and depth < limits.max_depth
        if row and wanted:
            wanted = bound > floors.ever[row] and _may_matter(bound, queue, size, most - row)
        if wanted and token not in extras.ends:
            # What the memories have to offer.
            first, count, kind = hit_count, 0, 0
            previous, before = nodes[PREVIOUS, row], nodes[BEFORE, row]
            for n in range(look_up(readers, token, previous, before, found)):
                reader, slot = found[n, 0], found[n, 1]
                entry_count = note_hit(
                    readers, reader, slot, row, made, hit_count, codes, entry_count
                )
                hit_count += 1
            if hit_count > first:
                weigh(weighting, entries, hits, first, hit_count, weights)
                count = fuse(entries, hits, first, hit_count, weights, ranked, ranked_scores)
                kind = hits[first, ORDER]
            # What the root's runners-up and the suffix add.
            if row == 0 and len(extras.runner_up):
                count = mix(
                    ranked,
                    ranked_scores,
                    count,
                    extras.runner_up,
                    extras.runner_up_probs,
                    extras.runner_up_share,
                )
            if row:
                led = followed[nodes[PARENT, row]]
                if 0 <= led < len(extras.continuation) and extras.continuation[led] == token:
                    followed[row] = led + 1
            led = followed[row]
            if 0 <= led < len(extras.continuation):
                offered[0] = extras.continuation[led]
                count = mix(ranked, ranked_scores, count, offered, certain, extras.shares[led])
                kind = SUFFIX_KIND
                made.suffix[suffix_count, 0], made.suffix[suffix_count, 1] = row, led
                suffix_count += 1

            # The family, of which the best candidate waits first.
            expanded[families] = row
            groups[families] = kind if row == 0 else kind + KINDS
            counts[families] = min(count, width)
            for rank in range(counts[families]):
                tokens[families, rank] = ranked[rank]
                fused[families, rank] = ranked_scores[rank]
            if count:
                score = ranked_scores[0]
                factor = trust[groups[families], _level(score)]
                path = scores[PATH, row] * factor * score
                _enqueue(queue, waiting, size, path, 0, families)
                size += 1
            families += 1
        if size == 0:
            break
        size -= 1
        path, rank, family = queue[size], waiting[size, 0], waiting[size, 1]
        if path <= floors.next[row]:
            stopped = row == 0 and most > 0
            break
        parent = expanded[family]
        row += 1
        add_node(nodes, scores, row, parent, tokens[family, rank], fused[family, rank], path)
        rank += 1
        if rank < counts[family]:
            score = fused[family, rank]
            factor = trust[groups[family], _level(score)]
            following = min(scores[PATH, parent] * factor * score, path)
            _enqueue(queue, waiting, size, following, rank, family)
            size += 1
    return trim(made, row + 1, families, hit_count, entry_count, suffix_count, stopped)


@kernel(VOID(FOUND, INTS, INTS, COUNTS))
def judge(found, path, choices, counts):
    """Count what the candidates at these rows were worth (`recap.calibration`).

    `path` are rows whose choice counts, `choices` (rows,) the target's. Candidates of the lowest
    level keep their prior: they are many, and hardly ever worth a row.
    """
    width = found.tokens.shape[1]
    levels, scores = np.empty(width, np.int64), np.empty(width, np.float64)
    at = 0
    for row in path:
        # Both ascend; a row that was not looked up has no family.
        while at < len(found.expanded) and found.expanded[at] < row:
            at += 1
        if at == len(found.expanded) or found.expanded[at] != row:
            continue
        count, right = 0, -1
        for n in range(found.counts[at]):
            level = _level(found.fused[at, n])
            if level == 0:
                break
            if found.tokens[at, n] == choices[row]:
                right = count
            levels[count], scores[count] = level, found.fused[at, n]
            count += 1
        count_family(counts, found.groups[at], levels, scores, count, right)
