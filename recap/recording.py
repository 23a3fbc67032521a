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
from recap.trace import Emitted, Nodes, Step
from recap.tree import CandidateTree

_DIGITS = 6


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
        weights=[[round(part, _DIGITS) for part in origin.weights] for origin in origins],
        fused=[round(score, _DIGITS) for score in tree.fused[1:]],
        path=[round(score, _DIGITS) for score in tree.path[1:]],
        pop=list(range(tree.nodes)),
        source=[origin.source for origin in origins],
        key=[origin.key for origin in origins],
        state=states,
    )


def _lookups(
    tree: CandidateTree, settings: Settings
) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """(what each expanded row found, the predictions that were hit, each once)."""
    numbers: dict[int, int] = {}
    entries: list[dict[str, Any]] = []
    lookups = []
    discount = settings.carry
    for row, found in sorted(tree.lookups.items()):
        hits = []
        for hit, weight in zip(found.hits, found.weights, strict=True):
            prediction = hit.prediction
            number = numbers.setdefault(id(prediction), len(entries))
            if number == len(entries):
                entries.append(
                    {
                        "ids": list(prediction.ids),
                        "probs": [round(p, _DIGITS) for p in prediction.probs],
                        "concentration": round(prediction.concentration, _DIGITS),
                        "confidence": round(prediction.confidence, _DIGITS),
                        "request": prediction.request,
                        "step": prediction.step,
                    }
                )
            specificity = settings.specificity[hit.order - 1]
            hits.append(
                {
                    "order": hit.order,
                    "carried": hit.carried,
                    "entry": number,
                    "specificity": specificity * discount if hit.carried else specificity,
                    "weight": round(weight, _DIGITS),
                }
            )
        lookup: dict[str, Any] = {"row": row, "hits": hits, "misses": [], "suffix": None,
                                  "runner_up": None}  # fmt: skip
        own = {hit.order for hit in found.hits if not hit.carried}
        if found.hits or not found.suffix_token >= 0:
            lookup["misses"] = [order for order in settings.orders if order not in own]
        if found.suffix_token >= 0:
            lookup["suffix"] = {
                "token": found.suffix_token,
                "match": found.suffix_match,
                "share": round(found.suffix_share, _DIGITS),
            }
        if found.runner_up:
            lookup["runner_up"] = {
                "ids": [token for token, _ in found.runner_up],
                "probs": [round(p, _DIGITS) for _, p in found.runner_up],
                "share": round(found.runner_up_share, _DIGITS),
            }
        lookups.append(lookup)
    return lookups, entries


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


def _rounded(values: np.ndarray) -> list[Any]:
    return np.round(np.nan_to_num(values.astype(np.float64)), _DIGITS).tolist()
