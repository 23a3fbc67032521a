"""The budget against brute force, and against a made-up device whose clock is known."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recap import budget as budgets
from recap.budget import AdaptiveBudget, FixedBudget, best_prefix, least_slopes, start_budget
from recap.calibration import Counts
from recap.cost import CostCurve
from recap.settings import Settings
from recap.tree import CandidateTree, Floors

#: Costs with plateaus, steps and dips, as devices have them.
COSTS = st.lists(st.sampled_from([1.0, 1.0, 1.0, 1.5, 2.0, 3.0, 0.5]), min_size=2, max_size=24)
PROBABILITIES = st.lists(st.sampled_from([0.0, 0.05, 0.1, 0.3, 0.5, 0.9, 1.0]), max_size=23)


def curve_of(costs):
    return CostCurve(tuple(enumerate(costs, start=1)))


def chain(path, token=1):
    """A tree with these path probabilities, each node under the one before."""
    tree = CandidateTree(token)
    for row, p in enumerate(path):
        tree.add(row, token, p, p)
    return tree


@given(COSTS, PROBABILITIES)
def test_the_best_prefix_is_the_best_of_all(costs, path):
    """Brute force over every k, the empty prefix included; the smallest among equals."""
    path = sorted(path, reverse=True)[: len(costs) - 1]
    costs = costs[: len(path) + 1]
    values = [1.0 + math.fsum(path[:k]) - costs[k] for k in range(len(path) + 1)]
    k, value = best_prefix([1.0, *path], costs)
    assert value == pytest.approx(max(values))
    assert values[k] == pytest.approx(max(values))
    assert all(v < max(values) + 1e-9 for v in values[:k])


@given(COSTS)
def test_the_least_slope_is_the_least_of_all(costs):
    """Brute force over every later number."""
    for n, slope in enumerate(least_slopes(costs)):
        slopes = [(costs[m] - costs[n]) / (m - n) for m in range(n + 1, len(costs))]
        assert slope == pytest.approx(min(slopes, default=math.inf))


@given(COSTS, PROBABILITIES, st.sampled_from(["nothing", "modest", "ample"]))
def test_what_the_floors_leave_out_could_not_have_won(costs, path, teaches):
    """Drafting to the floors, then choosing: the same as choosing from everything."""
    path = sorted(path, reverse=True)[: len(costs) - 1]
    budget = AdaptiveBudget(curve_of(costs), len(costs) - 1)
    if teaches == "nothing":
        budget._spent = 1e9
    elif teaches == "ample":
        budget._counts.gained = 1e3
    floors = budget.floors().next
    drafted = 0
    while drafted < len(path) and path[drafted] > floors[drafted]:
        drafted += 1
    whole = budget.decide(chain(path))
    part = budget.decide(chain(path[:drafted]))
    # The value, not the number of nodes: rounding may decide between two that are equally good.
    assert part.gain == pytest.approx(whole.gain)


def test_a_plateau_is_filled_and_a_step_is_not_climbed():
    """Rows that are free are taken, however little they promise; the next is not."""
    budget = AdaptiveBudget(curve_of([1.0] * 8 + [2.0] * 8), 15)
    budget._spent = 1e9  # nothing for teaching
    tree = chain([0.3] + [0.01] * 14)
    decision = budget.decide(tree)
    assert decision.nodes == tree.nodes == 7
    assert decision.expected_tokens == pytest.approx(1.36)
    assert decision.expected_seconds == pytest.approx(1.0)
    assert decision.reason is None


def test_nothing_is_verified_where_it_does_not_pay():
    """One row, the reason said, and what was cut is gone from the tree."""
    budget = AdaptiveBudget(curve_of([1.0, 2.0, 3.0]), 2)
    budget._spent = 1e9
    tree = chain([0.5, 0.2])
    decision = budget.decide(tree)
    assert decision.to_json() == {
        "k": 0, "expected_tokens": 1.0, "expected_seconds": 1.0, "reason": "does-not-pay",
    }  # fmt: skip
    assert len(tree) == 1


def test_a_tree_without_candidates_keeps_its_reason():
    """Cold is cold, whatever passes cost."""
    tree = CandidateTree(1)
    tree.reason = "cold"
    assert AdaptiveBudget(curve_of([1.0, 1.0]), 1).decide(tree).reason == "cold"


def play(budget, path, tokens, seconds, steps, draft=0.0):
    """So many steps with these candidates; what was decided in each. `tokens` by nodes."""
    decisions = []
    for _ in range(steps):
        if budget.drafts():
            decision = budget.decide(chain(path))
            spent = draft
        else:
            decision, spent = budget.skip(CandidateTree(1)), 0.0
        decisions.append(decision)
        times = {
            "draft": spent, "verify": seconds(decision.nodes), "commit": 0.0, "observe": 0.0,
        }  # fmt: skip
        budget.learn(decision, tokens(decision.nodes), times)
    return decisions


def test_teaching_is_paid_from_a_grant_and_from_gains():
    """Where it never gains anything, a request loses its grant and little more."""
    costs = [1.0, 1.1, 1.2, 1.3, 1.4]
    budget = AdaptiveBudget(curve_of(costs), 4)
    decisions = play(budget, [0.05] * 4, lambda k: 1, lambda k: costs[k], 200)
    assert decisions[0].nodes > 0
    assert all(decision.nodes == 0 for decision in decisions[-50:])
    assert sum(costs[d.nodes] - 1.0 for d in decisions) < 3 * budgets.GRANT


def test_what_was_gained_is_spent_on_larger_lessons():
    """The same tree is kept further once more was gained than granted, also by earlier requests."""
    costs = [1.0 + 0.02 * n for n in range(64)]
    kept = []
    for gained in (-100.0, 0.0, 100.0):
        counts = Counts()
        counts.gained = gained
        budget = AdaptiveBudget(curve_of(costs), 63, counts)
        assert 0 <= counts.gained <= budgets.INHERITED
        tree = chain([0.5 * 0.9**n for n in range(63)])
        kept.append(budget.decide(tree).nodes)
    assert 0 < kept[0] == kept[1] < kept[2]


def test_drafting_pauses_where_it_does_not_pay_and_comes_back():
    """Longer and longer, with a try between; at once when there is something to gain."""
    costs = [1.0, 3.0]
    budget = AdaptiveBudget(curve_of(costs), 1)
    decisions = play(budget, [0.01], lambda k: 1, lambda k: costs[k], 300, draft=0.05)
    late = decisions[-100:]
    assert 0 < sum(d.drafted is not None for d in late) < 15
    assert all(d.reason == "does-not-pay" for d in late)
    costs[1] = 1.0
    budget._cost[1] = 1.0
    back = play(budget, [0.9], lambda k: 1 + k, lambda k: costs[k], 60, draft=0.05)
    assert all(d.nodes == 1 for d in back[-20:])


def test_the_level_of_the_cost_is_followed():
    """A machine that has become half as fast changes no decision, only what is expected."""
    costs = [1.0, 1.2, 1.4, 1.9]
    decisions = []
    for slower in (1.0, 2.0):
        budget = AdaptiveBudget(curve_of(costs), 3)
        played = play(
            budget, [0.5, 0.3, 0.1], lambda k: 1 + k // 2, lambda k, s=slower: s * costs[k], 300
        )
        decisions.append(played[-1])
        assert budget.level == pytest.approx(slower, rel=0.05)
    assert decisions[0].nodes == decisions[1].nodes
    assert decisions[1].expected_seconds == pytest.approx(
        2 * decisions[0].expected_seconds, rel=0.05
    )


def test_a_disturbed_pass_is_not_believed():
    """One pass that took a hundred times as long does not turn the rule over."""
    costs = [1.0, 1.2]
    budget = AdaptiveBudget(curve_of(costs), 1)
    play(budget, [0.5], lambda k: 1 + k, lambda k: costs[k], 50)
    budget.learn(
        budget.decide(chain([0.5])), 2, {"draft": 0.0, "verify": 120.0, "commit": 0, "observe": 0}
    )
    assert budget.level < 1.2
    assert budget.decide(chain([0.5])).nodes == 1


@given(st.integers(0, 256))
def test_a_number_is_a_number(nodes):
    """A fixed budget takes all that was drafted, and says nothing of seconds."""
    budget = start_budget(Settings(budget=nodes))
    assert isinstance(budget, FixedBudget)
    floors = budget.floors()
    assert isinstance(floors, Floors)
    assert (floors.most, len(floors.next)) == (nodes, nodes + 1)
    assert all(floor < 0 for floor in floors.next[:-1])
    assert floors.next[-1] == math.inf
    tree = chain([0.1] * min(nodes, 5))
    decision = budget.decide(tree)
    assert (decision.nodes, decision.expected_seconds) == (min(nodes, 5), None)


def test_an_adaptive_budget_needs_a_curve():
    """It would be guesswork otherwise."""
    with pytest.raises(ValueError, match="cost"):
        start_budget(Settings(budget="adaptive"))
