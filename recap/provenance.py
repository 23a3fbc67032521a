"""Where a node came from: the parts of its fused score, read off its parent's lookup.

While drafting, only scores matter; who contributed what is worked out here, afterwards, for the
nodes that made it into the tree.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import types

from recap.compiled import FLOAT, FLOAT_TABLE, FLOATS, INT_TABLE, INTS, floats, inline, ints, kernel
from recap.prediction import columns_of, length_of
from recap.tree import CandidateTree

# Kinds of sources as bits, and the word for each combination: several kinds are `mixed`.
_MEMORY, _CARRIED, _SUFFIX, _RUNNER_UP = 1, 2, 4, 8
_WORDS = {_MEMORY: "memory", _CARRIED: "carried", _SUFFIX: "suffix", _RUNNER_UP: "runner-up"}
#: How `Emitted.source` calls a supplier: orders, carried orders three further on, the others.
_SUPPLIERS = ("", "1", "2", "3", "carried-1", "carried-2", "carried-3", "suffix", "runner-up")
_FROM_SUFFIX, _FROM_RUNNER_UP = 7, 8
#: The longest order of a bitmask.
_LONGEST = tuple(mask.bit_length() for mask in range(8))


class Provenance(NamedTuple):
    """The parts of one node's fused score; all of them sum to it.

    `orders`: bitmask of the orders whose entry holds the token. `primary`: the order with the
    largest part (0 where no entry holds the token). `weights`: parts of orders 1, 2, 3, own and
    carried together. `source`: the one kind of source, or `mixed`. `key`: the longest matched key
    that holds the token. `supplier`: the largest single part by its name in `Emitted.source`.
    """

    orders: int
    primary: int
    weights: tuple[float, float, float]
    source: str
    key: tuple[int, ...]
    supplier: str


class Provenances(NamedTuple):
    """The provenance of every node, in the order of popping: a column for each of its fields."""

    orders: list[int]
    primary: list[int]
    weights: list[tuple[float, ...]]
    source: list[str]
    key: list[tuple[int, ...]]
    supplier: list[str]


def provenances(tree: CandidateTree) -> Provenances:
    """Where every node came from."""
    found, rows = tree.lookups, len(tree)
    suffix_tokens, suffix_shares = np.full(rows, -1), np.zeros(rows)
    for offered in found.suffix:
        suffix_tokens[offered.row], suffix_shares[offered.row] = offered.token, offered.share
    marks, weights = _trace(
        ints(tree.parent),
        ints(tree.token),
        ints([found.row, found.order, found.carried, found.entry]),
        found.weight,
        found.entries.table,
        suffix_tokens,
        suffix_shares,
        ints(found.runner_up.ids),
        floats(found.runner_up.probs),
        found.runner_up.share,
    )
    orders, primary, kinds, suppliers = marks.T.tolist()
    keys = []
    for parent, mask in zip(tree.parent[1:], orders, strict=True):
        key = tree.before[parent], tree.previous[parent], tree.token[parent]
        keys.append(key[3 - _LONGEST[mask] :])
    return Provenances(
        orders,
        primary,
        list(zip(*weights.T.tolist(), strict=True)),
        ["template"] * tree.nodes if tree.template else [_WORDS.get(k, "mixed") for k in kinds],
        keys,
        [_SUPPLIERS[supplier] for supplier in suppliers],
    )


def provenance(tree: CandidateTree, row: int) -> Provenance:
    """The provenance of a node's row (1 or more)."""
    return Provenance._make(column[row - 1] for column in provenances(tree))


@inline
def _rank_of(token, entries, entry):
    for rank in range(length_of(entries, entry)):
        if entries[entry, rank] == token:
            return rank
    return -1


@kernel(
    types.Tuple([INT_TABLE, FLOAT_TABLE])(
        INTS, INTS, INT_TABLE, FLOATS, INT_TABLE, INTS, FLOATS, INTS, FLOATS, FLOAT
    )
)
def _trace(
    parents,
    tokens,
    hits,
    hit_weights,
    entries,
    suffix_tokens,
    suffix_shares,
    runner_up,
    runner_up_probs,
    runner_up_share,
):
    """(nodes, 4) orders, primary, kinds and supplier, and (nodes, 3) parts by order.

    `parents`, `tokens`, `suffix_tokens` and `suffix_shares` are by row; `hits` (4, hits) are row,
    order, carried and entry, those of one row together.
    """
    rows, columns = len(tokens), columns_of(entries)
    numbers = entries.view(np.float64)
    first, behind = np.zeros(rows, np.int64), np.zeros(rows, np.int64)
    for n in range(hits.shape[1]):
        row = hits[0, n]
        if behind[row] == 0:
            first[row] = n
        behind[row] = n + 1
    marks, weights = np.zeros((rows - 1, 4), np.int64), np.zeros((rows - 1, 3), np.float64)
    for node in range(rows - 1):
        token, parent = tokens[node + 1], parents[node + 1]
        left = 1.0 - suffix_shares[parent]  # what the suffix leaves, and of that the runners-up
        rest = left * (1.0 - runner_up_share) if parent == 0 else left
        orders = kinds = supplier = strongest = 0
        best = -1.0
        for n in range(first[parent], behind[parent]):
            rank = _rank_of(token, entries, hits[3, n])
            if rank >= 0:
                order, carried = hits[1, n], hits[2, n]
                part = rest * hit_weights[n] * numbers[hits[3, n], columns + 2 + rank]
                weights[node, order - 1] += part
                orders |= 1 << (order - 1)
                kind = _CARRIED if carried else _MEMORY
                if part > 0.0:  # what adds nothing is no source
                    kinds |= kind
                if part > best:
                    best, supplier, strongest = part, order + 3 * carried, kind
        if token == suffix_tokens[parent]:
            part = suffix_shares[parent]
            if part > 0.0:
                kinds |= _SUFFIX
            if part > best:
                best, supplier, strongest = part, _FROM_SUFFIX, _SUFFIX
        if parent == 0:
            for n in range(len(runner_up)):
                if runner_up[n] == token:
                    part = left * runner_up_share * runner_up_probs[n]
                    if part > 0.0:
                        kinds |= _RUNNER_UP
                    if part > best:
                        best, supplier, strongest = part, _FROM_RUNNER_UP, _RUNNER_UP
        if kinds == 0:  # drafted with a score of nothing, where nodes are plenty
            kinds = strongest
        primary = 0
        for order in range(1, 4):
            # Of equal parts the shorter key's; a key that does not hold the token has none.
            if orders & (1 << (order - 1)) and (
                not primary or weights[node, order - 1] > weights[node, primary - 1]
            ):
                primary = order
        marks[node, 0], marks[node, 1] = orders, primary
        marks[node, 2], marks[node, 3] = kinds, supplier
    return marks, weights
