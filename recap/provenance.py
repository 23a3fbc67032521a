"""Where a node came from: the parts of its fused score, read off its parent's lookup.

While drafting, only scores matter; who contributed what is worked out here, afterwards, for the
nodes that made it into the tree.
"""

from __future__ import annotations

from typing import NamedTuple

from recap.tree import CandidateTree

# Kinds of sources as bits, and the word for each combination: several kinds are `mixed`.
_MEMORY, _CARRIED, _SUFFIX, _RUNNER_UP = 1, 2, 4, 8
_WORDS = {_MEMORY: "memory", _CARRIED: "carried", _SUFFIX: "suffix", _RUNNER_UP: "runner-up"}
#: [carried][order]: how `Emitted.source` calls a hit.
_SUPPLIERS = (("", "1", "2", "3"), ("", "carried-1", "carried-2", "carried-3"))


class Provenance(NamedTuple):
    """The parts of one node's fused score; all of them sum to it.

    `orders`: bitmask of the orders whose entry holds the token. `weights`: parts of orders 1, 2, 3,
    own and carried together. `primary`: the order with the largest of them (0 where no entry holds
    the token). `source`: the one kind of source, or `mixed`. `supplier`: the largest single part by
    its name in `Emitted.source`. `key`: the longest matched key that holds the token.
    """

    orders: int
    primary: int
    weights: tuple[float, float, float]
    source: str
    supplier: str
    key: tuple[int, ...]


def provenance(tree: CandidateTree, row: int) -> Provenance:
    """The provenance of a node's row (1 or more)."""
    parent, token = tree.parent[row], tree.token[row]
    hits, weights, suffix_token, _, suffix_share, runner_up, runner_up_share = tree.lookups[parent]
    rest = (1.0 - suffix_share) * (1.0 - runner_up_share)
    parts = [0.0, 0.0, 0.0, 0.0]
    orders = longest = kinds = 0
    best, supplier = -1.0, ""
    for (order, carried, prediction), weight in zip(hits, weights, strict=True):
        ids = prediction[0]
        if token in ids:
            part = rest * weight * prediction[1][ids.index(token)]
            parts[order] += part
            orders |= 1 << order - 1
            kinds |= _CARRIED if carried else _MEMORY
            if order > longest:
                longest = order
            if part > best:
                best, supplier = part, _SUPPLIERS[carried][order]
    if token == suffix_token:
        kinds |= _SUFFIX
        if suffix_share > best:
            best, supplier = suffix_share, "suffix"
    for other, p in runner_up:
        if other == token:
            kinds |= _RUNNER_UP
            if (1.0 - suffix_share) * runner_up_share * p > best:
                supplier = "runner-up"
    primary = parts.index(max(parts), 1) if orders else 0
    source = "template" if tree.template else _WORDS.get(kinds, "mixed")
    key = (tree.before[parent], tree.previous[parent], tree.token[parent])[3 - longest :]
    return Provenance(orders, primary, (parts[1], parts[2], parts[3]), source, supplier, key)
