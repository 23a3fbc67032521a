"""The two forms in which a step goes to the browser: what is drawn, and the details behind it.

Names are single letters and scores whole numbers, since every step of every run is sent so.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np

from recap.trace import Step, Trace

#: Suppliers of a node as one character each.
_SUPPLIERS = {
    "1": "1", "2": "2", "3": "3", "carried-1": "1", "carried-2": "b", "carried-3": "c",
    "suffix": "s", "runner-up": "r", "": "-",
}  # fmt: skip
#: Suppliers of nodes that have one kind of source; `{}` stands for the primary order.
_BY_SOURCE = {
    "memory": "{}", "template": "{}", "carried": "carried-{}", "suffix": "suffix",
    "runner-up": "runner-up",
}  # fmt: skip


def encode_step(step: Step) -> dict[str, Any]:
    """The compact form of a step.

    `i` index, `q` position, `r` root, `c` up to two tokens before the root, `n` the nodes as
    parallel lists (`t` token, `p` parent, `o` orders, `s` supplier, `x` state, `k` length of the
    matched key, `f` fused score in thousandths, `a` path score in ten-thousandths, `w` the parts of
    orders 1, 2, 3 in thousandths, `y` the target's choice a row), `e` emitted tokens, `b` budget,
    `s` seconds by phase in millionths, `m` entries by order, `w` by order how many keys are new and
    the rows whose key was there before, `h` [hits, lookups] by order, `t` 1 where a fixed shape
    placed the nodes, whose rows are written as they stand.
    """
    nodes = step.nodes
    return {
        "i": step.index,
        "q": step.position,
        "r": step.root,
        "c": _context(step),
        "n": {
            "t": nodes.token,
            "p": nodes.parent,
            "o": nodes.orders,
            "s": "".join(_suppliers(step)),
            "x": "".join(state[0] for state in nodes.state),
            "k": "".join(str(len(key)) for key in nodes.key),
            "f": [round(1e3 * score) for score in nodes.fused],
            "a": [round(1e4 * score) for score in nodes.path],
            "w": [round(1e3 * part) for parts in nodes.weights for part in parts],
            "y": step.rows["choice"],
        },
        "e": [[e.token, e.source, *(round(p, 4) for p in e.top2)] for e in step.emitted],
        "b": [step.budget.get(k) for k in ("k", "expected_tokens", "expected_seconds", "reason")],
        "s": [round(1e6 * step.seconds[k]) for k in ("draft", "verify", "commit", "observe")],
        "t": int("template" in nodes.source),
        "m": step.memory,
        "w": {order: [w["new"], w["overwritten"]] for order, w in step.writes.items()},
        "h": _hits(step),
    }


class DetailEncoder:
    """Details of the steps of one run, in order; what was sent once is referred to by number."""

    def __init__(self) -> None:
        self._known: set[int] = set()
        self._predictions: dict[tuple[tuple[int, ...], tuple[int, ...]], int] = {}
        self._entries: dict[tuple[int, int, int], int] = {}

    def encode(self, step: Step, trace: Trace) -> dict[str, Any]:
        """One step's details.

        `v` new words, `p` new predictions (ids, probabilities in ten-thousandths), `e` new memory
        entries (prediction, concentration, confidence, request, step), `r` the prediction of each
        row, `l` lookups (row, hits, suffix, runner-up), a hit being order, carried, entry,
        specificity, weight in ten-thousandths.
        """
        predictions: list[Any] = []
        entries: list[Any] = []
        found = step.entries
        numbers = []
        for number, probs in enumerate(_ten_thousandths(found.probs)):
            prediction = self._prediction(found.ids[number], probs, predictions)
            key = (prediction, found.request[number], found.step[number])
            if key not in self._entries:
                self._entries[key] = len(self._entries)
                quality = [found.concentration[number], found.confidence[number]]
                entries.append([prediction, *(round(1e4 * q) for q in quality), *key[1:]])
            numbers.append(self._entries[key])
        rows = [
            self._prediction(ids, probs, predictions)
            for ids, probs in zip(
                step.rows["ids"], _ten_thousandths(step.rows["probs"]), strict=True
            )
        ]
        hits: dict[int, list[Any]] = {row: [] for row in step.expanded}
        looked = step.lookups
        for row, order, carried, entry, specificity, weight in zip(
            looked.row, looked.order, looked.carried, looked.entry, looked.specificity,
            looked.weight, strict=True,
        ):  # fmt: skip
            hits.setdefault(row, []).append(
                [order, int(carried), numbers[entry], specificity, round(1e4 * weight)]
            )
        suffix = {
            s["row"]: [s["token"], s["match"], s["share"], int(s.get("carried", False))]
            for s in step.suffix
        }
        runner = step.runner_up
        lookups = [
            [row, of_row, suffix.get(row), runner if runner and not row else None]
            for row, of_row in hits.items()
        ]
        shown = {token for ids, _ in predictions for token in ids}
        shown.update(found["token"] for found in step.suffix)
        shown.update(runner["ids"] if runner else ())
        fresh = shown - self._known
        self._known |= fresh
        words = [spelling(trace, t) for t in sorted(fresh) if str(t) in trace.vocabulary]
        return {
            "v": words, "p": predictions, "e": entries, "r": rows, "l": lookups,
            "t": [[round(p, 4) for p in pair] for pair in step.rows["top2"]],
        }  # fmt: skip

    def _prediction(self, ids: Sequence[int], probs: list[int], new: list[Any]) -> int:
        key = (tuple(ids), tuple(probs))
        number = self._predictions.get(key)
        if number is None:
            number = self._predictions[key] = len(self._predictions)
            new.append([ids, probs])
        return number


def spelling(trace: Trace, token: int) -> list[Any]:
    """[id, text], and the bytes where they are no whole characters."""
    word = trace.vocabulary[str(token)]
    whole = "\ufffd" not in word["text"]
    return [token, word["text"]] if whole else [token, word["text"], word["bytes"]]


def _context(step: Step) -> list[int]:
    """Tokens before the root, as far as the children of the root have them in their keys."""
    longest: list[int] = []
    for parent, key in zip(step.nodes.parent, step.nodes.key, strict=True):
        if parent < 0 and len(key) > len(longest):
            longest = key
    return [token for token in longest[:-1] if token >= 0]


def _suppliers(step: Step) -> list[str]:
    """What gave each node the largest part of its score, as one character."""
    nodes = step.nodes
    result = []
    hits: dict[int, list[tuple[str, float, int]]] | None = None
    for node, source in enumerate(nodes.source):
        known = _BY_SOURCE.get(source)
        if known is not None:
            name = known.format(nodes.primary[node] or "")
        else:
            hits = hits or _hits_by_row(step)
            name = _largest(step, nodes.token[node], nodes.parent[node] + 1, hits)
        result.append(_SUPPLIERS.get(name, "-"))
    return result


def _hits_by_row(step: Step) -> dict[int, list[tuple[str, float, int]]]:
    """(name, weight, entry) of every hit, by expanded row."""
    hits: dict[int, list[tuple[str, float, int]]] = {-1: []}
    looked = step.lookups
    for row, order, carried, entry, weight in zip(
        looked.row, looked.order, looked.carried, looked.entry, looked.weight, strict=True
    ):
        name = f"carried-{order}" if carried else str(order)
        hits.setdefault(row, []).append((name, weight, entry))
    return hits


def _largest(
    step: Step, token: int, row: int, hits: dict[int, list[tuple[str, float, int]]]
) -> str:
    """The supplier of a token with several kinds of source, as `recap.provenance` decides it."""
    entries = step.entries
    followed, share = next(
        ((s["token"], s["share"]) for s in step.suffix if s["row"] == row), (-1, 0.0)
    )
    runner = step.runner_up if row == 0 else None
    rest = (1.0 - share) * (1.0 - runner["share"] if runner else 1.0)
    best, supplier = 0.0, ""
    for name, weight, entry in hits.get(row, ()):
        ids = entries.ids[entry]
        if token in ids:
            part = rest * weight * entries.probs[entry][ids.index(token)]
            if part > best or not supplier:
                best, supplier = part, name
    if token == followed and share > best:
        best, supplier = share, "suffix"
    if runner and token in runner["ids"]:
        part = (1.0 - share) * runner["share"] * runner["probs"][runner["ids"].index(token)]
        if part > best:
            supplier = "runner-up"
    return supplier


def _hits(step: Step) -> dict[str, list[int]]:
    """[hits, lookups] by order; what an earlier request left counts for its order."""
    asked = len(step.expanded)
    found = set(zip(step.lookups.order, step.lookups.row, strict=True))
    counts = Counter(order for order, _ in found)
    return {str(order): [counts[order], asked] for order in sorted(counts)}


def _ten_thousandths(rows: Any) -> list[Any]:
    """Probabilities as whole numbers, all rows at once where they are of one length."""
    try:
        return np.rint(np.asarray(rows, np.float64) * 1e4).astype(np.int64).tolist()
    except ValueError:
        return [[round(1e4 * p) for p in row] for row in rows]
