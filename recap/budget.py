"""How many nodes a step verifies: a fixed number, or as many as pay for themselves.

A row is not free. With cost(N) the measured seconds of a pass of N rows (`recap.cost`) and rate the
tokens per second that are being emitted, the adaptive budget keeps of the best-first order the
prefix of k nodes that maximises

    1 + (sum of path probabilities) - rate * cost(k + 1)

over all prefixes, the empty one included: cost has plateaus, where a few more rows are free, and
steps, over which one must jump or not. This is what maximises the rate itself: a node is worth its
row where it brings tokens faster than decoding brings them on the whole.

    budget = start_budget(settings, curve)
    tree = drafter.propose(text, limit, budget.floors())
    decision = budget.decide(tree)               # cuts the tree
    budget.learn(decision, tokens=3, seconds={...})
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import accumulate
from typing import Any, NamedTuple, Protocol

from recap.cost import CostCurve
from recap.settings import Settings
from recap.tree import CandidateTree

#: What floors say behind the last node that may be had.
STOP = math.inf
#: Steps over which rate and level of the cost are averaged: 1 / (1 - this).
_MEMORY = 0.96
#: Single-row passes that the measured cost counts for before anything has happened.
_PRIOR_STEPS = 6.0
#: A pass that took this many times what was expected was disturbed, and counts as no longer.
_DISTURBED = 3.0
#: Drafting is judged over about 1 / (1 - this) drafts; it starts with the benefit of the doubt.
_PATIENCE = 0.85
_DOUBT = 0.5
#: Most steps without a draft before the next try.
_LONGEST_PAUSE = 16


class Decision(NamedTuple):
    """What a budget made of a tree; `seconds` is None where no cost was looked at."""

    nodes: int
    expected_tokens: float
    expected_seconds: float | None
    reason: str | None
    #: Tokens that verifying these nodes is expected to gain over a single row, net of their time.
    gain: float = 0.0
    drafted: bool = True

    def to_json(self) -> dict[str, Any]:
        """As `Step.budget` has it."""
        seconds = self.expected_seconds
        return {
            "k": self.nodes,
            "expected_tokens": round(self.expected_tokens, 4),
            "expected_seconds": None if seconds is None else round(seconds, 8),
            "reason": self.reason,
        }


class Budget(Protocol):
    """One run's budget."""

    def drafts(self) -> bool:
        """Whether the next step should draft at all. Called once a step."""
        ...

    def floors(self) -> Sequence[float]:
        """floors[n]: a tree of n nodes may grow by one whose path probability exceeds this.

        The last is infinite: nothing grows beyond it.
        """
        ...

    def decide(self, tree: CandidateTree) -> Decision:
        """Cut a tree, whose nodes are in best-first order, to what is worth verifying."""
        ...

    def skip(self, tree: CandidateTree) -> Decision:
        """The decision for a root that nothing was drafted for."""
        ...

    def learn(self, decision: Decision, tokens: int, seconds: Mapping[str, float]) -> None:
        """What became of it: tokens emitted, seconds by phase."""
        ...


def start_budget(settings: Settings, curve: CostCurve | None = None) -> Budget:
    """The budget of one run. An adaptive one needs the cost of passes."""
    if settings.budget != "adaptive":
        return FixedBudget(settings.most_nodes)
    if curve is None:
        raise ValueError("an adaptive budget needs the cost of passes")
    return AdaptiveBudget(curve, settings.most_nodes)


def fixed_floors(nodes: int) -> list[float]:
    """Floors of a fixed budget: everything is worth it until there are so many nodes."""
    return [-1.0] * nodes + [STOP]


class FixedBudget:
    """So many nodes, whatever they cost."""

    def __init__(self, nodes: int) -> None:
        self._floors = fixed_floors(nodes)

    def drafts(self) -> bool:
        """See `Budget.drafts`."""
        return True

    def floors(self) -> Sequence[float]:
        """See `Budget.floors`."""
        return self._floors

    def decide(self, tree: CandidateTree) -> Decision:
        """All of it."""
        return Decision(tree.nodes, sum(tree.path), None, tree.reason)

    def skip(self, tree: CandidateTree) -> Decision:
        """See `Budget.skip`."""
        return Decision(0, 1.0, None, tree.reason)

    def learn(self, decision: Decision, tokens: int, seconds: Mapping[str, float]) -> None:
        """Nothing to learn."""


class AdaptiveBudget:
    """As many nodes as pay for themselves on this device, at this rate."""

    def __init__(self, curve: CostCurve, most: int) -> None:
        self._cost = curve.table(most + 1)  # [n]: seconds of n + 1 rows
        self._slopes = least_slopes(self._cost)
        single = self._cost[0]
        # Faded sums over past steps.
        self._tokens, self._seconds = _PRIOR_STEPS, _PRIOR_STEPS * single
        self._measured = self._modelled = _PRIOR_STEPS * single
        self._host = _Slope()
        # Of drafting: tokens that it gained, and that its time was worth.
        self._gain, self._price = _DOUBT, 0.0
        self._pause = self._paused = 0

    @property
    def level(self) -> float:
        """By how much passes take longer than when the cost was measured."""
        return self._measured / self._modelled

    @property
    def rate(self) -> float:
        """Tokens per second: the running rate, at least that of single-row passes.

        The latter can always be had, so no node is worth less than it.
        """
        return max(self._tokens / self._seconds, 1.0 / (self.level * self._cost[0]))

    def drafts(self) -> bool:
        """Not for a while, where drafts have gained less than they took."""
        if self._paused:
            self._paused -= 1
            return False
        return True

    def floors(self) -> Sequence[float]:
        """See `Budget.floors`: below them no longer prefix can win, whatever comes.

        Behind n nodes of the best-first order no node is more probable than the next, p. So m more
        gain at most m p, and cost at least m times the least slope from here.
        """
        rate, level, host = self.rate, self.level, self._host.value
        a, b = rate * level, rate * host
        return [a * slope + b for slope in self._slopes]

    def decide(self, tree: CandidateTree) -> Decision:
        """See `Budget.decide`."""
        rate, level, host = self.rate, self.level, self._host.value
        seconds = [level * cost + host * n for n, cost in enumerate(self._cost[: len(tree)])]
        k, best = best_prefix(tree.path, [rate * s for s in seconds])
        nothing = 1.0 - rate * seconds[0]
        reason = "does-not-pay" if tree.nodes and not k else tree.reason
        tree.cut(k)
        return Decision(k, sum(tree.path), level * self._cost[k], reason, best - nothing)

    def skip(self, tree: CandidateTree) -> Decision:
        """See `Budget.skip`."""
        reason = tree.reason or "does-not-pay"
        return Decision(0, 1.0, self.level * self._cost[0], reason, drafted=False)

    def learn(self, decision: Decision, tokens: int, seconds: Mapping[str, float]) -> None:
        """See `Budget.learn`."""
        modelled = self._cost[decision.nodes]
        verify = min(seconds["verify"], _DISTURBED * self.level * modelled)
        host = sum(seconds.values()) - seconds["verify"]
        host = min(host, _DISTURBED * verify)
        self._tokens = _MEMORY * self._tokens + tokens
        self._seconds = _MEMORY * self._seconds + verify + host
        self._measured = _MEMORY * self._measured + verify
        self._modelled = _MEMORY * self._modelled + modelled
        if decision.drafted:
            self._host.add(decision.nodes, host)
            self._judge(decision, min(seconds["draft"], host))

    def _judge(self, decision: Decision, draft: float) -> None:
        """Pause drafting, twice as long each time, while it gains less than its time is worth."""
        price = self.rate * draft
        self._gain = _PATIENCE * self._gain + (1.0 - _PATIENCE) * decision.gain
        self._price = _PATIENCE * self._price + (1.0 - _PATIENCE) * price
        if self._gain >= self._price or decision.gain > price:
            self._pause = 0
        else:
            self._pause = min(max(1, 2 * self._pause), _LONGEST_PAUSE)
        self._paused = self._pause


class _Slope:
    """Seconds that one more node takes on the host: a line through past steps, faded."""

    def __init__(self) -> None:
        self._n = self._x = self._y = self._xx = self._xy = 0.0

    def add(self, nodes: int, seconds: float) -> None:
        keep = _MEMORY
        self._n = keep * self._n + 1.0
        self._x = keep * self._x + nodes
        self._y = keep * self._y + seconds
        self._xx = keep * self._xx + nodes * nodes
        self._xy = keep * self._xy + nodes * seconds

    @property
    def value(self) -> float:
        """Not below nothing, and not above all of the host's time."""
        spread = self._n * self._xx - self._x * self._x
        if self._n < 3.0 or spread <= 1e-9 or self._x <= 0.0:
            return 0.0
        slope = (self._n * self._xy - self._x * self._y) / spread
        return min(max(slope, 0.0), self._y / self._x)


def best_prefix(path: Sequence[float], costs: Sequence[float]) -> tuple[int, float]:
    """(k, value) that maximise (sum of path[: k + 1]) - costs[k]; the smallest k among equals.

    `path` are the probabilities of the rows, the root's 1 first; `costs` are in tokens.
    """
    best, value = 0, -math.inf
    for k, (tokens, cost) in enumerate(zip(accumulate(path), costs, strict=True)):
        if tokens - cost > value:
            best, value = k, tokens - cost
    return best, value


def least_slopes(costs: Sequence[float]) -> list[float]:
    """[n]: the least mean rise of the costs from n to any larger number; infinite for the last."""
    # The lower convex hull of what lies to the right: the least slope from n ends on it.
    slopes = [STOP] * len(costs)
    hull = [len(costs) - 1]
    for n in range(len(costs) - 2, -1, -1):
        while len(hull) > 1 and _slope(costs, n, hull[-1]) >= _slope(costs, n, hull[-2]):
            hull.pop()
        slopes[n] = _slope(costs, n, hull[-1])
        hull.append(n)
    return slopes


def _slope(costs: Sequence[float], low: int, high: int) -> float:
    return (costs[high] - costs[low]) / (high - low)
