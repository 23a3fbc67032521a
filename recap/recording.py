"""From one pass's raw parts to a `Step`. Its time is not charged to any method.

Everything is converted to plain Python data here and once, so that saving, sending and showing a
step need no further work and share nothing with the running engine.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from recap.drafters.base import Learned, Rows
from recap.provenance import Provenance, provenance
from recap.settings import Settings
from recap.trace import Emitted, Entries, Lookups, Nodes, Step
from recap.tree import CandidateTree

_DIGITS = 8


def record_step(
    *,
    index: int,
    position: int,
    root: int,
    tree: CandidateTree,
    rows: Rows,
    path: list[int],
    emitted: list[int],
    learned: Learned,
    settings: Settings,
    budget: dict[str, Any],
    seconds: dict[str, float],
    memory: dict[str, int],
) -> Step:
    """The `Step` of a pass. `path` holds the accepted rows, root first."""
    origins = [provenance(tree, row) for row in range(1, len(tree))]
    lookups, entries = _lookups(tree, settings)
    return Step(
        index=index,
        position=position,
        root=root,
        nodes=_nodes(tree, path, origins),
        rows={
            "ids": rows.ids.tolist(),
            "probs": _rounded(rows.probs),
            "choice": list(rows.choice),
            "top2": _rounded(rows.top2),
        },
        lookups=lookups,
        expanded=list(tree.lookups),
        suffix=_suffix(tree),
        runner_up=_runner_up(tree),
        entries=entries,
        writes={
            str(order): {"new": learned.written.get(order, 0), "overwritten": list(rows_)}
            for order, rows_ in learned.overwritten.items()
        },
        emitted=_emitted(path, emitted, origins, rows.top2),
        accepted_length=len(emitted),
        budget=budget,
        seconds=seconds,
        memory=memory,
    )


def _nodes(tree: CandidateTree, path: list[int], origins: list[Provenance]) -> Nodes:
    accepted = set(path)
    states = [
        "accepted" if row in accepted else "rejected" if parent in accepted else "unreached"
        for row, parent in enumerate(tree.parent[1:], start=1)
    ]
    return Nodes(
        token=tree.token[1:],
        parent=[parent - 1 for parent in tree.parent[1:]],
        depth=tree.depth[1:],
        orders=[origin.orders for origin in origins],
        primary=[origin.primary for origin in origins],
        weights=list(map(tuple, _rounded([origin.weights for origin in origins]))),
        fused=_rounded(tree.fused[1:]),
        path=_rounded(tree.path[1:]),
        pop=list(range(tree.nodes)),
        source=[origin.source for origin in origins],
        key=[origin.key for origin in origins],
        state=states,
    )


def _lookups(tree: CandidateTree, settings: Settings) -> tuple[Lookups, Entries]:
    """What each expanded row hit, and the predictions that were hit, each once."""
    found, entries = Lookups(), Entries()
    numbers: dict[int, int] = {}
    own = settings.specificity
    carried = tuple(settings.carry * s for s in own)
    for row, lookup in tree.lookups.items():
        for hit, weight in zip(lookup.hits, lookup.weights, strict=True):
            prediction = hit.prediction
            number = numbers.get(id(prediction))
            if number is None:
                number = numbers[id(prediction)] = len(entries.ids)
                # Tuples of a prediction are immutable and shared as they are.
                entries.ids.append(prediction.ids)
                entries.probs.append(prediction.probs)
                entries.concentration.append(prediction.concentration)
                entries.confidence.append(prediction.confidence)
                entries.request.append(prediction.request)
                entries.step.append(prediction.step)
            found.row.append(row)
            found.order.append(hit.order)
            found.carried.append(hit.carried)
            found.entry.append(number)
            found.specificity.append((carried if hit.carried else own)[hit.order - 1])
            found.weight.append(weight)
    found.weight = _rounded(found.weight)
    return found, entries


def _suffix(tree: CandidateTree) -> list[dict[str, Any]]:
    return [
        {
            "row": row,
            "token": found.suffix_token,
            "match": found.suffix_match,
            "share": found.suffix_share,
        }
        for row, found in tree.lookups.items()
        if found.suffix_token >= 0
    ]


def _runner_up(tree: CandidateTree) -> dict[str, Any] | None:
    found = tree.lookups.get(0)
    if found is None or not found.runner_up:
        return None
    return {
        "ids": [token for token, _ in found.runner_up],
        "probs": [p for _, p in found.runner_up],
        "share": found.runner_up_share,
    }


def _emitted(
    path: list[int], emitted: list[int], origins: list[Provenance], top2: np.ndarray
) -> list[Emitted]:
    """Token i was chosen by row path[i], and drafted by the row after it, if there is one."""
    result = []
    for place, token in enumerate(emitted):
        drafted = place + 1 < len(path)
        source = origins[path[place + 1] - 1].supplier if drafted else "bonus"
        result.append(Emitted(token, source, _rounded(top2[path[place]])))
    return result


def _rounded(values: Any) -> list[Any]:
    """Numbers as they are shown and saved: finite, of a few digits."""
    return np.round(np.nan_to_num(np.asarray(values, np.float64)), _DIGITS).tolist()
