"""Drafters without a model: what they observe is written by hand."""

from __future__ import annotations

import numpy as np

from recap.drafters import METHODS, Outcome, Rows
from recap.memory import PersistentMemory
from recap.prediction import GAP
from recap.tree import Floors

VOCABULARY = 50


def rows_of(*predictions: dict[int, float]) -> Rows:
    """Rows that predict these tokens, most probable first."""
    ids = np.array([list(p) for p in predictions], np.int32)
    probs = np.array([list(p.values()) for p in predictions], np.float32)
    return Rows(ids, probs, [int(row[0]) for row in ids], np.log(probs[:, :2]))


def seen(drafter, text, *predictions, step=0):
    """Let a drafter observe a chain: the last tokens of `text`, each with its prediction."""
    padded = [GAP, GAP, *text]
    places = range(len(padded) - len(predictions), len(padded))
    path = list(range(len(predictions)))
    return drafter.observe(
        Outcome(
            np.array([[padded[i - back] for i in places] for back in range(3)]),
            rows_of(*predictions),
            path,
            [rows_of(*predictions).choice[-1]],
            path[-1],
            step,
        )
    )


def start(name, memory=None, budget=80, **changes):
    """A drafter at a fixed budget, and what `propose` should give it."""
    method = METHODS[name]
    memory = memory or PersistentMemory(VOCABULARY)
    settings = method.settings(**{**changes, "budget": method.defaults.get("budget", budget)})
    return method.start(memory, settings)


def propose(drafter, text, limit, budget=80):
    return drafter.propose(text, limit, Floors.fixed(budget))


def children(tree, row=0):
    return [tree.token[r] for r in range(1, len(tree)) if tree.parent[r] == row]


def adaptive(name, memory, **changes):
    """A drafter within an adaptive budget."""
    method = METHODS[name]
    return method.start(memory, method.settings(**{**changes, "budget": "adaptive"}))


def above(least, nodes=80):
    """Floors that leave out what is not more probable than this."""
    return Floors.of(np.array([least] * nodes + [np.inf]))
