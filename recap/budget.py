"""How many nodes a step verifies: a fixed number, or as many as pay for themselves.

A row is not free. With cost(N) the measured seconds of a pass of N rows (`recap.cost`) and rate the
tokens per second that are being emitted, the adaptive budget keeps of the best-first order the
prefix of k nodes that maximises

    1 + (sum of path probabilities) + lesson(k) - rate * cost(k + 1)

over all prefixes, the empty one included: cost has plateaus, where a few more rows are free, and
steps, over which one must jump or not. This is what maximises the rate itself: a node is worth its
row where it brings tokens faster than decoding brings them on the whole.

The lesson: a row that is rejected leaves a prediction behind, and later guesses are made of these.
A memory that is only fed what pays at once stays poor, and then nothing pays. The first few rows of
a step teach the most, and the first thirty most of what there is. Teaching is paid from what
speculation has gained so far, in this request and in the session's last ones, and from a small
grant, so that where it never gains anything it costs next to nothing.

    budget = start_budget(settings, curve)
    tree = drafter.propose(text, limit, budget.floors())   # grows no further than can pay
    decision = budget.decide(tree)               # cuts the tree
    budget.learn(decision, tokens=3, seconds={...})
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np

from recap.calibration import Counts
from recap.cost import CostCurve
from recap.settings import ADAPTIVE, Settings
from recap.tree import STOP, CandidateTree, Floors

#: What the rows of a step teach: the tokens that it is worth, and after how many rows most of it is
#: taught. At first the modest lesson, and once more was gained than granted the ample one. On 48
#: requests to the bundled model, memory kept, 1.6 tokens by 16 rows gave RECAP+ 2.11x and RECAP
#: 1.75x of autoregressive decoding (MAT 3.71, 2.87), 1.2 by 20 behind .5 by 8 2.09x and 1.71x, 1 by
#: 32 behind it 2.08x and, in another run, 1.71x; a fixed 32 nodes gave 2.11x and 1.84x. Where
#: little is gained (SmolLM2, 10 prompts) an ample lesson alone cost 4 % of the time.
MODEST, AMPLE = (0.6, 8.0), (1.6, 16.0)
#: Tokens that a request may spend on teaching before any were gained, and the share of what was
#: gained over single-row passes that it may spend on top.
GRANT, _SHARE = 3.0, 1.0
#: A request starts with at most so many of the tokens that earlier ones have gained.
INHERITED = 10.0
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
    #: Tokens that verifying these nodes is expected to gain over a single row, net of their time
    #: and with what they teach.
    gain: float = 0.0
    #: Nodes that were drafted, None where drafting was left out.
    drafted: int | None = 0
    #: Tokens that were given up, on expectation, for what the rows teach.
    spent: float = 0.0

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

    def floors(self) -> Floors:
        """What a node must exceed to be worth drafting."""
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


def start_budget(
    settings: Settings, curve: CostCurve | None = None, counts: Counts | None = None
) -> Budget:
    """The budget of one run. An adaptive one needs the cost of passes.

    `counts` are the session's, where the request may learn from it.
    """
    if settings.budget != ADAPTIVE:
        return FixedBudget(settings.most_nodes)
    if curve is None:
        raise ValueError("an adaptive budget needs the cost of passes")
    return AdaptiveBudget(curve, settings.most_nodes, counts)


class FixedBudget:
    """So many nodes, whatever they cost."""

    def __init__(self, nodes: int) -> None:
        self._floors = Floors.fixed(nodes)

    def drafts(self) -> bool:
        """See `Budget.drafts`."""
        return True

    def floors(self) -> Floors:
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

    def __init__(self, curve: CostCurve, most: int, counts: Counts | None = None) -> None:
        self._cost = np.array(curve.table(most + 1))  # [n]: seconds of n + 1 rows
        self._lessons = [
            np.array([lesson(k, *taught) for k in range(most + 1)]) for taught in (MODEST, AMPLE)
        ]
        self._counting = np.arange(most + 1)
        self._slopes = np.array(least_slopes(self._cost.tolist()))
        # A lesson grows ever more slowly, so no later node teaches more than the next.
        self._next_lessons = [np.append(np.diff(taught), 0.0) for taught in self._lessons]
        self._single = single = float(self._cost[0])
        # Faded sums over past steps.
        self._tokens, self._seconds = _PRIOR_STEPS, _PRIOR_STEPS * single
        self._measured = self._modelled = _PRIOR_STEPS * single
        # Seconds that a node takes on the host, drafted or verified.
        self._drafting, self._observing = _Slope(), _Slope()
        # What was gained, the session's knowledge, and the tokens that were spent on teaching.
        self._counts = counts or Counts()
        self._counts.gained = min(max(0.0, self._counts.gained), INHERITED)
        self._spent = 0.0
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
        return max(self._tokens / self._seconds, 1.0 / (self.level * self._single))

    def drafts(self) -> bool:
        """Not for a while, where drafts have gained less than they took."""
        if self._paused:
            self._paused -= 1
            return False
        return True

    def floors(self) -> Floors:
        """See `Budget.floors`: below them no longer prefix can win, whatever comes.

        Behind n nodes of the best-first order no node is more probable than the next, p. So m more
        gain at most m times p and what the next one teaches, and cost at least m times the least
        slope from here, and the host's time for a node.
        """
        rate = self.rate
        host = self._drafting.value + self._observing.value
        price = rate * self.level * self._slopes + rate * host
        return Floors.of(price - self._next_lessons[self._ample] if self._may_teach else price)

    @property
    def _ample(self) -> bool:
        return self._counts.gained > GRANT

    @property
    def _may_teach(self) -> bool:
        return self._spent < GRANT + _SHARE * max(0.0, self._counts.gained)

    def decide(self, tree: CandidateTree) -> Decision:
        """See `Budget.decide`."""
        rate, level, host = self.rate, self.level, self._observing.value
        drafted = tree.nodes
        rows, path = len(tree), np.array(tree.path)
        prices = rate * (level * self._cost[:rows] + host * self._counting[:rows])
        idle = 1.0 - float(prices[0])  # the value of a single row
        k, best = best_prefix(path, prices)
        gain, spent = best - idle, 0.0
        if self._may_teach:
            worths = self._lessons[self._ample][:rows]
            k, value = best_prefix(path, prices - worths)
            gain = value - idle
            spent = best - (value - float(worths[k]))
        reason = "does-not-pay" if tree.nodes and not k else tree.reason
        tree.cut(k)
        return Decision(
            k, sum(tree.path), level * float(self._cost[k]), reason, gain, drafted, max(0.0, spent)
        )

    def skip(self, tree: CandidateTree) -> Decision:
        """See `Budget.skip`."""
        reason = tree.reason or "does-not-pay"
        return Decision(0, 1.0, self.level * self._single, reason, drafted=None)

    def learn(self, decision: Decision, tokens: int, seconds: Mapping[str, float]) -> None:
        """See `Budget.learn`."""
        modelled = float(self._cost[decision.nodes])
        verify = min(seconds["verify"], _DISTURBED * self.level * modelled)
        host = sum(seconds.values()) - seconds["verify"]
        host = min(host, _DISTURBED * verify)
        self._tokens = _MEMORY * self._tokens + tokens
        self._seconds = _MEMORY * self._seconds + verify + host
        self._measured = _MEMORY * self._measured + verify
        self._modelled = _MEMORY * self._modelled + modelled
        self._counts.gained += tokens - (verify + host) / (self.level * self._single)
        self._spent += decision.spent
        self._observing.add(decision.nodes, min(seconds["observe"], host))
        if decision.drafted is not None:
            draft = min(seconds["draft"], host)
            self._drafting.add(decision.drafted, draft)
            self._judge(decision, draft)

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


def lesson(nodes: int, worth: float, rows: float) -> float:
    """Tokens that so many nodes are worth for what they teach."""
    return worth * (1.0 - math.exp(-nodes / rows))


def best_prefix(
    path: Sequence[float] | np.ndarray, costs: Sequence[float] | np.ndarray
) -> tuple[int, float]:
    """(k, value) that maximise (sum of path[: k + 1]) - costs[k]; the smallest k among equals.

    `path` are the probabilities of the rows, the root's 1 first; `costs` are in tokens.
    """
    values = np.cumsum(path) - costs
    best = int(values.argmax())
    return best, float(values[best])


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
