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
#: The longest order of a bitmask.
_LONGEST = tuple(mask.bit_length() for mask in range(8))


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
    # Plain loops and names: this runs behind every pass, over some sixty nodes of two hits each.
    origins = []
    tokens, previous, before = tree.token, tree.previous, tree.before
    make = tuple.__new__  # half the time of the named tuple's own
    for row in range(1, len(tokens)):
        parent, token = tree.parent[row], tokens[row]
        hits, weights, suffix_token, _, suffix_share, runner_up, runner_up_share = tree.lookups[
            parent
        ]
        left = 1.0 - suffix_share  # what the suffix leaves, and of that the runners-up
        rest = left * (1.0 - runner_up_share)
        one = two = three = 0.0
        orders = kinds = 0
        best, supplier = -1.0, ""
        for (order, carried, prediction), weight in zip(hits, weights):  # noqa: B905
            ids = prediction[0]
            if token in ids:
                part = rest * weight * prediction[1][ids.index(token)]
                if order == 3:
                    three += part
                    orders |= 4
                elif order == 2:
                    two += part
                    orders |= 2
                else:
                    one += part
                    orders |= 1
                kinds |= _CARRIED if carried else _MEMORY
                if part > best:
                    best, supplier = part, _SUPPLIERS[carried][order]
        if token == suffix_token:
            kinds |= _SUFFIX
            if suffix_share > best:
                best, supplier = suffix_share, "suffix"
        for other, p in runner_up:
            if other == token:
                kinds |= _RUNNER_UP
                if left * runner_up_share * p > best:
                    supplier = "runner-up"
        longest = _LONGEST[orders]
        primary = longest
        if orders not in (0, 1, 2, 4):  # else there is no other to compare it with
            largest = max(one, two, three)
            primary = 1 if one == largest else 2 if two == largest else 3
        source = "template" if tree.template else _WORDS.get(kinds, "mixed")
        key = (before[parent], previous[parent], tokens[parent])[3 - longest :]
        origins.append(
            make(Provenance, (orders, primary, (one, two, three), source, supplier, key))
        )
    return origins


def provenance(tree: CandidateTree, row: int) -> Provenance:
    """The provenance of a node's row (1 or more)."""
    return provenances(tree)[row - 1]
