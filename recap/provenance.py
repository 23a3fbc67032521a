"""Where a node came from: the parts of its fused score, read off its parent's lookup.

While drafting, only scores matter; who contributed what is worked out here, afterwards, for the
nodes that made it into the tree.
"""

from __future__ import annotations

from typing import NamedTuple

from recap.tree import CandidateTree, Lookup


class Provenance(NamedTuple):
    """The parts of one node's fused score; all of them sum to it.

    `orders`: bitmask of the orders whose entry holds the token. `primary`: the order with the
    largest single part (0 where no order has one). `weights`: parts of orders 1, 2, 3. `source`:
    the one kind of source, or `mixed`. `supplier`: the largest part by its name in
    `Emitted.source`. `key`: the longest matched key that holds the token.
    """

    orders: int
    primary: int
    weights: tuple[float, ...]
    source: str
    supplier: str
    key: tuple[int, ...]


def provenance(tree: CandidateTree, row: int) -> Provenance:
    """The provenance of a node's row (1 or more)."""
    parent, token = tree.parent[row], tree.token[row]
    found = tree.lookups[parent]
    parts = [0.0, 0.0, 0.0]
    orders = primary = longest = 0
    kinds: set[str] = set()
    best, supplier = 0.0, ""
    rest = (1.0 - found.suffix_share) * (1.0 - found.runner_up_share)
    for hit, weight in zip(found.hits, found.weights, strict=True):
        ids = hit.prediction.ids
        if token not in ids:
            continue
        part = rest * weight * hit.prediction.probs[ids.index(token)]
        orders |= 1 << hit.order - 1
        longest = max(longest, hit.order)
        parts[hit.order - 1] += part
        kinds.add("carried" if hit.carried else "memory")
        if not supplier or part > best:
            best, primary = part, hit.order
            supplier = f"carried-{hit.order}" if hit.carried else str(hit.order)
    for kind, part in _other_parts(found, token):
        kinds.add(kind)
        if part > best:
            best, supplier = part, kind
    source = "template" if tree.template else kinds.pop() if len(kinds) == 1 else "mixed"
    key = (tree.before[parent], tree.previous[parent], tree.token[parent])[3 - longest :]
    return Provenance(orders, primary, tuple(parts), source, supplier, key)


def _other_parts(found: Lookup, token: int) -> list[tuple[str, float]]:
    """The parts that are not the memory's."""
    parts = []
    if token == found.suffix_token:
        parts.append(("suffix", found.suffix_share))
    share = (1.0 - found.suffix_share) * found.runner_up_share
    parts += [("runner-up", share * p) for other, p in found.runner_up if other == token]
    return parts
