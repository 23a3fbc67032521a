"""Entropy-confidence weighting: one ranked list of next tokens from several orders' predictions.

For each hit of order n: c is its concentration, m its confidence, s_n the specificity of its order.

    w_n  = s_n (epsilon + c)^alpha m^beta  /  sum over the hits      (sums to one)
    f(t) = sum over the hits of w_n p_n(t)                           (p_n(t) = 0 where t is absent)

The fused score f is a sub-probability: over all tokens it sums to at most one, and it is not
renormalised. alpha = beta = 0 is fixed weighting. *Back-off* gives all weight to the longest hit
instead. A carried entry counts with `carry` times its order's specificity.

All of it is compiled, and part of the search (`recap.search`). What a hit found is a row of a table
that is laid out as `recap.prediction.Predictions` has it; candidates are two arrays, tokens and
scores.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import types

from recap.compiled import BOOL, FLOAT, FLOAT_TABLE, floats, inline
from recap.prediction import add_score, columns_of, length_of, sort_ranked
from recap.settings import Settings

#: Columns of hits.
ROW, ORDER, CARRIED, ENTRY = range(4)


class Weighting(NamedTuple):
    """How hits are weighed; `specificity` is [carried][order]."""

    specificity: np.ndarray
    alpha: float
    beta: float
    epsilon: float
    back_off: bool

    @classmethod
    def of(cls, settings: Settings) -> Weighting:
        """As these settings have it."""
        own = (0.0, *settings.specificity)
        return cls(
            floats([own, [settings.carry * s for s in own]]),
            float(settings.alpha),
            float(settings.beta),
            float(settings.epsilon),
            settings.fusion == "back-off",
        )


WEIGHTING = types.NamedTuple([FLOAT_TABLE, FLOAT, FLOAT, FLOAT, BOOL], Weighting)


@inline
def weigh(weighting, entries, hits, first, last, weights):
    """w_n of the hits from `first` to before `last`, into `weights`; they sum to one.

    `hits` (hits, 4) are row, order, carried and entry, the last a row of `entries`. Longest key
    first, own before carried.
    """
    if weighting.back_off or last - first == 1:
        for n in range(first, last):
            weights[n] = 1.0 if n == first else 0.0
        return
    columns, numbers = columns_of(entries), entries.view(np.float64)
    total = 0.0
    for n in range(first, last):
        entry = hits[n, ENTRY]
        s = weighting.specificity[hits[n, CARRIED], hits[n, ORDER]]
        c, m = numbers[entry, 2 * columns + 2], numbers[entry, columns + 2]
        if weighting.alpha == 1.0 and weighting.beta == 1.0:  # powers cost more than all the rest
            weights[n] = s * (weighting.epsilon + c) * m
        else:
            weights[n] = s * (weighting.epsilon + c) ** weighting.alpha * m**weighting.beta
        total += weights[n]
    for n in range(first, last):
        # epsilon = 0 and nothing concentrated: nobody is better than another
        weights[n] = weights[n] / total if total > 0.0 else 1.0 / (last - first)


@inline
def fuse(entries, hits, first, last, weights, tokens, scores):
    """All tokens of these hits with their fused scores, best first, into `tokens` and `scores`.

    Returns how many. Ties keep the order in which tokens are met: longest key first, then rank in
    its entry. A hit without weight has no say, except the first.
    """
    columns, numbers = columns_of(entries), entries.view(np.float64)
    count = 0
    for n in range(first, last):
        entry, w = hits[n, ENTRY], weights[n]
        if n == first or w > 0.0:
            for rank in range(length_of(entries, entry)):
                p = numbers[entry, columns + 2 + rank]
                count = add_score(tokens, scores, count, entries[entry, rank], w * p)
    sort_ranked(tokens, scores, count)
    return count


@inline
def mix(tokens, scores, count, extra_tokens, extra_scores, share):
    """(1 - share) of one sub-probability and `share` of another, best first. Returns how many.

    The sum stays at most one, whatever the two sources know of each other.
    """
    for n in range(count):
        scores[n] *= 1.0 - share
    for n in range(len(extra_tokens)):
        count = add_score(tokens, scores, count, extra_tokens[n], share * extra_scores[n])
    sort_ranked(tokens, scores, count)
    return count
