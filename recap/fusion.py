"""Entropy-confidence weighting: one ranked list of next tokens from several orders' predictions.

For each hit of order n: c is its concentration, m its confidence, s_n the specificity of its order.

    w_n  = s_n (epsilon + c)^alpha m^beta  /  sum over the hits      (sums to one)
    f(t) = sum over the hits of w_n p_n(t)                           (p_n(t) = 0 where t is absent)

The fused score f is a sub-probability: over all tokens it sums to at most one, and it is not
renormalised. alpha = beta = 0 is fixed weighting. *Back-off* gives all weight to the longest hit
instead. A carried entry counts with `carry` times its order's specificity.
"""

from __future__ import annotations

from collections.abc import Sequence
from operator import itemgetter

from recap.prediction import Hit
from recap.settings import Settings

#: (token, fused score), best first.
Ranked = list[tuple[int, float]]

_score = itemgetter(1)


class Fusion:
    """The weighting of one `Settings`, with its constants looked up once."""

    __slots__ = ("_alpha", "_back_off", "_beta", "_epsilon", "_plain", "_specificity")

    def __init__(self, settings: Settings) -> None:
        self._alpha, self._beta, self._epsilon = settings.alpha, settings.beta, settings.epsilon
        self._plain = settings.alpha == settings.beta == 1.0
        self._back_off = settings.fusion == "back-off"
        s = settings.specificity
        # [carried][order]
        self._specificity = ((0.0, *s), (0.0, *(settings.carry * x for x in s)))

    def specificity(self, hit: Hit) -> float:
        """s_n of this hit, discounted where it is carried."""
        return self._specificity[hit.carried][hit.order]

    def weights(self, hits: Sequence[Hit]) -> list[float]:
        """w_n of each hit; they sum to one. Hits come longest key first, own before carried."""
        if len(hits) == 1:
            return [1.0]
        if self._back_off:
            return [1.0] + [0.0] * (len(hits) - 1)
        table, epsilon = self._specificity, self._epsilon
        if self._plain:
            raw = [table[h[1]][h[0]] * (epsilon + h[2][2]) * h[2][3] for h in hits]
        else:
            alpha, beta = self._alpha, self._beta
            raw = [table[h[1]][h[0]] * (epsilon + h[2][2]) ** alpha * h[2][3] ** beta for h in hits]
        total = sum(raw)
        if total <= 0.0:  # epsilon = 0 and nothing concentrated: nobody is better than another
            return [1.0 / len(hits)] * len(hits)
        return [w / total for w in raw]

    def fuse(self, hits: Sequence[Hit], weights: Sequence[float]) -> Ranked:
        """All tokens of the hits with their fused scores, best first.

        Ties keep the order in which tokens are met: longest key first, then rank in its entry.
        """
        # Positions and plain loops: this runs some fifty times a step, and names cost a third more.
        first = hits[0][2]
        if len(hits) == 1:
            return list(zip(first[0], first[1]))  # noqa: B905
        w = weights[0]
        fused = {token: w * p for token, p in zip(first[0], first[1])}  # noqa: B905
        get = fused.get
        for place in range(1, len(hits)):
            w = weights[place]
            if w > 0.0:
                prediction = hits[place][2]
                for token, p in zip(prediction[0], prediction[1]):  # noqa: B905
                    fused[token] = get(token, 0.0) + w * p
        return sorted(fused.items(), key=_score, reverse=True)


def mix(ranked: Ranked, extra: Ranked, share: float) -> Ranked:
    """(1 - share) of one sub-probability and `share` of another, best first.

    The sum stays at most one, whatever the two sources know of each other.
    """
    rest = 1.0 - share
    mixed = {token: rest * p for token, p in ranked}
    for token, p in extra:
        mixed[token] = mixed.get(token, 0.0) + share * p
    return sorted(mixed.items(), key=_score, reverse=True)
