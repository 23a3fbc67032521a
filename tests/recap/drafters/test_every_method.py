"""What holds for every method: limits, reasons, floors, and what is kept."""

from __future__ import annotations

import pytest

from recap.drafters import METHODS
from recap.memory import PersistentMemory
from recap.prediction import SEED_STEP
from tests.recap.drafters.by_hand import VOCABULARY, above, adaptive, propose, seen, start


def test_depth_is_limited():
    """No node lies deeper than what can still be emitted."""
    drafter = start("recap")
    seen(drafter, [1, 1, 1, 1], *[{1: 0.9, 2: 0.1}] * 4)
    tree = propose(drafter, [1, 1, 1, 1], 3)
    assert max(tree.depth) == 3
    assert propose(start("token-recycling"), [1], 0).nodes == 0


@pytest.mark.parametrize(
    ("name", "changes", "reason"),
    [
        ("recap", {"budget": 0}, "off"),
        ("token-recycling", {"budget": 0}, "off"),
        ("prompt-lookup", {"budget": 0}, "off"),
        ("autoregressive", {}, "off"),
        ("recap", {}, "cold"),
        ("token-recycling", {}, "cold"),
        ("prompt-lookup", {}, "no-hit"),
    ],
)
def test_an_empty_tree_says_why(name, changes, reason):
    """One fixed word each."""
    drafter = start(name, **changes)
    budget = changes.get("budget", METHODS[name].defaults.get("budget", 80))
    assert propose(drafter, [1, 2, 3], 10, budget).reason == reason
    if reason == "cold":
        seen(drafter, [7], {5: 0.5, 6: 0.3})
        assert propose(drafter, [1, 2, 3], 10).reason == "no-hit"


@pytest.mark.parametrize("name", METHODS)
def test_without_a_budget_every_method_is_off(name):
    """However much it knows."""
    drafter, text = start(name, budget=0), [1, 2, 3, 1, 2, 3]
    seen(drafter, text, *[{1: 0.5, 2: 0.3, 3: 0.1}] * len(text))
    tree = propose(drafter, text, 10, 0)
    assert (tree.nodes, tree.reason) == (0, "off")


def test_prompt_rows_are_written_only_where_a_method_seeds():
    """Token Recycling discards the prefill's predictions; RECAP may be told to."""
    for name, changes in (("token-recycling", {}), ("recap", {"seed_prompt": False})):
        memory = PersistentMemory(VOCABULARY)
        seen(start(name, memory, **changes), [4], {5: 0.5, 6: 0.3}, step=SEED_STEP)
        assert memory.entries()[1] == 0
    memory = PersistentMemory(VOCABULARY)
    seen(start("recap", memory), [4], {5: 0.5, 6: 0.3}, step=SEED_STEP)
    assert memory.entries()[1] == 1


@pytest.mark.parametrize("name", ["recap", "recap-plus", "token-recycling", "prompt-lookup"])
def test_nothing_below_the_floor_is_proposed_and_it_is_learnt_all_the_same(name):
    """Proposals that nobody verified are judged by the root's own choice: trust grows and falls."""
    text = [1, 2, 3, 1, 2, 3, 1, 2]
    for right in (True, False):
        memory = PersistentMemory(VOCABULARY)
        drafter = adaptive(name, memory, suffix=False)
        seen(drafter, text[:6], {2: 0.7, 5: 0.2}, {3: 0.7, 5: 0.2}, {1: 0.7, 5: 0.2})
        first = drafter.propose(text, 10, above(-1.0)).path[1]
        for _ in range(12):
            assert drafter.propose(text, 10, above(2.0)).reason == "does-not-pay"
            seen(drafter, text, {3: 0.7, 5: 0.2} if right else {7: 0.7, 5: 0.2})
            if not right:  # put back what the next proposal is made of
                seen(drafter, text, {3: 0.7, 5: 0.2})
        last = drafter.propose(text, 10, above(-1.0)).path[1]
        assert (last > first) is right


@pytest.mark.parametrize("persist", [True, False])
@pytest.mark.parametrize("name", ["recap", "recap-plus", "token-recycling"])
def test_what_guesses_were_worth_is_kept_only_where_memory_persists(name, persist):
    """Without persistence a session's counts are neither written nor read."""
    memory = PersistentMemory(VOCABULARY)
    text = [1, 2, 3, 1, 2, 3, 1, 2]
    drafter = adaptive(name, memory, suffix=False, persist=persist)
    seen(drafter, text[:6], {2: 0.7, 5: 0.2}, {3: 0.7, 5: 0.2}, {1: 0.7, 5: 0.2})
    untaught = drafter.propose(text, 10, above(-1.0)).path
    seen(drafter, text, {3: 0.7, 5: 0.2})
    assert bool(memory.counts.cells) is persist
    memory.counts.reserve(12, 20)
    memory.counts.table[:] = 0.0, 60.0
    drafter = adaptive(name, memory, suffix=False, persist=persist)
    seen(drafter, text[:6], {2: 0.7, 5: 0.2}, {3: 0.7, 5: 0.2}, {1: 0.7, 5: 0.2})
    again = drafter.propose(text, 10, above(-1.0)).path
    assert (again[1] == untaught[1]) is not persist


@pytest.mark.parametrize("name", [name for name in METHODS if not METHODS[name].remembers])
def test_a_method_that_remembers_nothing_leaves_nothing(name):
    """Nor does it read what is there: a run is the same whatever came before it."""
    memory, text = PersistentMemory(VOCABULARY), [1, 2, 3, 1, 2, 3, 1, 2]
    paths = []
    for _ in range(2):
        drafter = adaptive(name, memory)
        paths.append(drafter.propose(text, 10, above(-1.0)).path)
        seen(drafter, text, {7: 0.7, 5: 0.2})
        assert not memory.counts.cells
        assert not any(memory.entries().values())
    assert paths[0] == paths[1]
