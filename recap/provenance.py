"""Where a node came from: the parts of its fused score, read off its parent's lookup.

While drafting, only scores matter; who contributed what is worked out here, afterwards, for the
nodes that made it into the tree.
"""

from __future__ import annotations

from typing import NamedTuple

from recap.tree import CandidateTree, Lookup

# Kinds of sources as bits, and the word for each combination: several kinds are `mixed`.
_MEMORY, _CARRIED, _SUFFIX, _RUNNER_UP = 1, 2, 4, 8
_WORDS = {_MEMORY: "memory", _CARRIED: "carried", _SUFFIX: "suffix", _RUNNER_UP: "runner-up"}
#: [carried][order]: how `Emitted.source` calls a hit.
_SUPPLIERS = (("", "1", "2", "3"), ("", "carried-1", "carried-2", "carried-3"))

_Prepared = tuple[
    list[tuple[int, str, int, tuple[int, ...], tuple[float, ...], float]],
    int,
    float,
    dict[int, float],
]


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


def provenances(tree: CandidateTree) -> list[Provenance]:
    """The provenance of every node, in the order of popping."""
    parents: dict[int, _Prepared] = {}
    origins = []
    tokens, previous, before = tree.token, tree.previous, tree.before
    for row in range(1, len(tree)):
        parent, token = tree.parent[row], tokens[row]
        prepared = parents.get(parent)
        if prepared is None:
            prepared = parents[parent] = _prepare(tree.lookups[parent])
        hits, suffix_token, suffix_share, runner_up = prepared
        parts = [0.0, 0.0, 0.0, 0.0]
        orders = longest = kinds = 0
        best, supplier = -1.0, ""
        for order, name, kind, ids, probs, weight in hits:
            if token in ids:
                part = weight * probs[ids.index(token)]
                parts[order] += part
                orders |= 1 << order - 1
                kinds |= kind
                if order > longest:
                    longest = order
                if part > best:
                    best, supplier = part, name
        if token == suffix_token:
            kinds |= _SUFFIX
            if suffix_share > best:
                best, supplier = suffix_share, "suffix"
        if token in runner_up:
            kinds |= _RUNNER_UP
            if runner_up[token] > best:
                supplier = "runner-up"
        if orders in (0, 1, 2, 4):  # none, or no other to compare it with
            primary = longest
        else:
            primary = parts.index(max(parts), 1)
        source = "template" if tree.template else _WORDS.get(kinds, "mixed")
        key = (before[parent], previous[parent], tokens[parent])[3 - longest :]
        weights = (parts[1], parts[2], parts[3])
        origins.append(Provenance(orders, primary, weights, source, supplier, key))
    return origins


def provenance(tree: CandidateTree, row: int) -> Provenance:
    """The provenance of a node's row (1 or more)."""
    return provenances(tree)[row - 1]


def _prepare(found: Lookup) -> _Prepared:
    """A lookup as its children need it: what the suffix and the runner-up take is off.

    (order, supplier, kind, ids, probs, weight) of each hit, token and share of the suffix, parts of
    the runners-up.
    """
    left = 1.0 - found.suffix_share
    rest = left * (1.0 - found.runner_up_share)
    hits = [
        (
            order,
            _SUPPLIERS[carried][order],
            _CARRIED if carried else _MEMORY,
            prediction[0],
            prediction[1],
            rest * weight,
        )
        for (order, carried, prediction), weight in zip(found.hits, found.weights, strict=True)
    ]
    runner_up = {token: left * found.runner_up_share * p for token, p in found.runner_up}
    return hits, found.suffix_token, found.suffix_share, runner_up
