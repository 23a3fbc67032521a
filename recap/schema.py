"""What a trace's fields mean, and what values they may have.

`SCHEMA` says it in words, `TRACE` and `STEP` as shapes that `fits` checks. A trace that fits can be
shown by every reader without further checks.

A shape is a type (`float` takes whole numbers too), None, a literal string or number, a list of one
shape (any length), a tuple of shapes (exactly these, in order), a dictionary of named shapes
(exactly these names), a dictionary `{str: shape}` (any names), or an `AnyOf`.
"""

from __future__ import annotations

import math
from typing import Any

FINISHES = ("eos", "length", "stop", "context", "cancelled", "error")
REASONS = ("cold", "no-hit", "does-not-pay", "limit", "context", "off")
SOURCES = ("memory", "carried", "suffix", "runner-up", "mixed", "template")
EMITTED_SOURCES = (
    "prefill", "1", "2", "3", "carried-2", "carried-3", "suffix", "runner-up", "bonus",
)  # fmt: skip
STATES = ("accepted", "rejected", "unreached")

SCHEMA: dict[str, str] = {
    "step.index": "number of the pass, from 0",
    "step.position": "tokens emitted before it (the prefill's token included)",
    "step.root": "id of the last emitted token, row 0 of the pass",
    "step.nodes": "parallel arrays, one entry a node, in the order of popping",
    "step.nodes.token": "id",
    "step.nodes.parent": "node number of the parent, -1 for the root",
    "step.nodes.depth": "1 for a child of the root",
    "step.nodes.orders": "bitmask of the orders whose entry holds the token (1, 2, 4)",
    "step.nodes.primary": "order with the largest part of the fused score; 0 where none has one",
    "step.nodes.weights": "parts of the fused score: w_n p_n(t) for n = 1, 2, 3, carried included, "
    "times what the suffix and the runner-up leave",
    "step.nodes.fused": "fused score among siblings, in [0, 1]",
    "step.nodes.path": "path score: estimated probability that the path is accepted",
    "step.nodes.pop": "when the best-first search popped it, from 0",
    "step.nodes.source": "memory | carried | suffix | runner-up | mixed | template",
    "step.nodes.key": "the longest matched key behind it, as token ids; empty where none matched",
    "step.nodes.state": "accepted | rejected (its parent was accepted) | unreached (it was not)",
    "step.rows": "what the target said: ids and probs (rows x K), choice and top2 a row",
    "step.lookups": "parallel arrays, one entry a hit: the expanded row, the order, whether "
    "carried, the number of the entry in step.entries, its specificity and its weight",
    "step.expanded": "rows that were looked up; an order without a hit there has missed",
    "step.suffix": "rows where the suffix match took part: row, token, match length, share of the "
    "fused score, and whether carried: from the text of an earlier request",
    "step.runner_up": "the root's runners-up: ids, probs, share; null where there were none",
    "step.entries": "parallel arrays, the predictions that were hit, each once: ids, probs, "
    "concentration, confidence, and who wrote it: request, step (-1: the prompt)",
    "step.writes": "by order: keys written anew (new) and rows that overwrote a key (overwritten)",
    "step.emitted": "tokens added to the text: token, source, top2 log-probabilities of their row",
    "step.accepted_length": "tokens really emitted: normally matched + 1",
    "step.budget": "k nodes, expected_tokens, expected_seconds (null unless adaptive), reason "
    "(cold | no-hit | does-not-pay | limit | context | off, or null)",
    "step.seconds": "draft, verify, commit, observe",
    "step.memory": "entries by order after the step",
}


class AnyOf(tuple):
    """One of several shapes."""

    __slots__ = ()

    def __new__(cls, *shapes: Any) -> AnyOf:
        return super().__new__(cls, shapes)


_TOP2 = (float, float)
_SUFFIX = {"row": int, "token": int, "match": int, "share": float}
_PREDICTION = {"ids": [int], "probs": [float]}

#: Of `dataclasses.asdict(step)`, or the same from JSON.
STEP: dict[str, Any] = {
    "index": int,
    "position": int,
    "root": int,
    "nodes": {
        "token": [int],
        "parent": [int],
        "depth": [int],
        "orders": [int],
        "primary": [AnyOf(0, 1, 2, 3)],
        "weights": [(float, float, float)],
        "fused": [float],
        "path": [float],
        "pop": [int],
        "source": [AnyOf(*SOURCES)],
        "key": [[int]],
        "state": [AnyOf(*STATES)],
    },
    "rows": {"ids": [[int]], "probs": [[float]], "choice": [int], "top2": [_TOP2]},
    "lookups": {
        "row": [int],
        "order": [AnyOf(1, 2, 3)],
        "carried": [bool],
        "entry": [int],
        "specificity": [float],
        "weight": [float],
    },
    "expanded": [int],
    "suffix": [AnyOf(_SUFFIX, {**_SUFFIX, "carried": bool})],  # older traces lack it
    "runner_up": AnyOf(None, {**_PREDICTION, "share": float}),
    "entries": {
        "ids": [[int]],
        "probs": [[float]],
        "concentration": [float],
        "confidence": [float],
        "request": [int],
        "step": [int],
    },
    "writes": {str: {"new": int, "overwritten": [int]}},
    "emitted": [{"token": int, "source": AnyOf(*EMITTED_SOURCES), "top2": _TOP2}],
    "accepted_length": int,
    "budget": {
        "k": int,
        "expected_tokens": float,
        "expected_seconds": AnyOf(None, float),
        "reason": AnyOf(None, *REASONS),
    },
    "seconds": {"draft": float, "verify": float, "commit": float, "observe": float},
    "memory": {str: int},
}

_MEMORY_STATE = {"entries": {str: int}, "bytes": {str: int}}

#: Of a trace, its steps left out.
TRACE: dict[str, Any] = {
    "id": str,
    "created": str,
    "model": str,
    "family": str,
    "device": str,
    "dtype": str,
    "versions": {str: str},
    "method": str,
    "settings": {str: object},
    "prompt": str,
    "image": AnyOf(None, {"sha256": str, "width": int, "height": int}),
    "prompt_tokens": int,
    "image_tokens": int,
    "prefill": {
        "seconds": float,
        "first_token": AnyOf(None, int),
        "top2": AnyOf(None, _TOP2),
        "rows": AnyOf(None, _PREDICTION),
    },
    "max_new_tokens": int,
    "request": int,  # its number in the memory that it reads, from 1; 0: nothing remembers
    "vocabulary": {str: {"text": str, "bytes": str}},
    "finish": AnyOf(None, *FINISHES),
    "message": AnyOf(None, str),
    "text": str,
    "token_ids": [int],
    "memory": {"start": AnyOf(None, _MEMORY_STATE), "end": AnyOf(None, _MEMORY_STATE)},
    "identical": AnyOf(None, {str: object}),
    "version": int,
}


def misfit(value: Any, shape: Any, place: str = "") -> str | None:
    """Where a value does not fit a shape, as a path of names; None where it does."""
    if isinstance(shape, AnyOf):
        return None if any(misfit(value, one) is None for one in shape) else place
    if isinstance(shape, dict):
        return _misfit_of_names(value, shape, place)
    if isinstance(shape, list):
        return _misfit_of_items(value, [shape[0]] * len(value), place) if _listed(value) else place
    if isinstance(shape, tuple):
        same = _listed(value) and len(value) == len(shape)
        return _misfit_of_items(value, list(shape), place) if same else place
    if isinstance(shape, type):
        return None if _is_a(value, shape) else place
    return None if type(value) is type(shape) and value == shape else place


def _misfit_of_names(value: Any, shape: dict[Any, Any], place: str) -> str | None:
    if not isinstance(value, dict) or not all(isinstance(name, str) for name in value):
        return place
    if str not in shape and value.keys() != shape.keys():
        odd = sorted(value.keys() ^ shape.keys())
        return f"{place}.{odd[0]}".lstrip(".")
    for name, item in value.items():
        wrong = misfit(item, shape[str] if str in shape else shape[name], f"{place}.{name}")
        if wrong is not None:
            return wrong.lstrip(".")
    return None


def _misfit_of_items(value: Any, shapes: list[Any], place: str) -> str | None:
    for item, shape in zip(value, shapes, strict=True):
        wrong = misfit(item, shape, place)
        if wrong is not None:
            return wrong
    return None


def _listed(value: Any) -> bool:
    return isinstance(value, list | tuple)


def _is_a(value: Any, kind: type) -> bool:
    if kind is object:
        return True
    if kind in (int, float):
        if isinstance(value, bool) or not isinstance(value, int | kind):
            return False
        return -(2**63) <= value < 2**63 if isinstance(value, int) else math.isfinite(value)
    return isinstance(value, kind)
