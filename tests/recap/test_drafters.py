"""What each method proposes from what it has seen. No model: rows are written by hand."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from recap.drafters import METHODS, Outcome, Rows
from recap.drafters.token_recycling import (
    CHILDREN_BY_DEPTH,
    full_template,
    rank_trust,
    ranked_template,
    template,
)
from recap.memory import PersistentMemory
from recap.prediction import GAP, SEED_STEP
from recap.provenance import provenance
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
            [padded[i] for i in places],
            [padded[i - 1] for i in places],
            [padded[i - 2] for i in places],
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


def test_longer_keys_outweigh_shorter_ones():
    """After [1, 2] the text goes on with 3, after [9, 2] with 4: the two-token key knows."""
    drafter = start("recap", suffix=False)
    seen(drafter, [1, 2], {3: 0.9, 4: 0.05})
    seen(drafter, [9, 2], {4: 0.9, 3: 0.05})
    tree = propose(drafter, [7, 1, 2], 10)
    assert children(tree)[0] == 3
    origin = provenance(tree, 1)
    assert origin.orders == 0b011
    assert origin.primary == 2
    assert origin.key == (1, 2)
    assert origin.source == "memory"
    assert sum(origin.weights) == pytest.approx(tree.fused[1])
    assert children(propose(drafter, [8, 8, 2], 10))[0] == 4  # one-token key: the latest write


def test_keys_of_nodes_run_through_the_tree():
    """A grandchild is looked up under its ancestors on the path."""
    drafter = start("recap", suffix=False)
    seen(drafter, [1, 2, 3, 4], {2: 1.0}, {3: 1.0}, {4: 1.0}, {5: 1.0})
    tree = propose(drafter, [1], 10)
    assert tree.token == [1, 2, 3, 4, 5]
    assert provenance(tree, 4).key == (2, 3, 4)


def test_contextual_memories_live_for_one_request():
    """The next request finds order 1 alone."""
    memory = PersistentMemory(VOCABULARY)
    seen(start("recap", memory), [1, 2, 3], {4: 0.9, 5: 0.1})
    tree = propose(start("recap", memory, suffix=False), [1, 2, 3], 10)
    assert [hit.order for hit in tree.lookups[0].hits] == [1]


def test_recap_plus_carries_contextual_entries_at_a_discount():
    """An earlier request's entry takes part, and says that it was carried."""
    memory = PersistentMemory(VOCABULARY)
    seen(start("recap-plus", memory), [1, 2, 3], {4: 0.9, 5: 0.1})
    drafter = start("recap-plus", memory, suffix=False, orders=(2, 3))
    tree = propose(drafter, [1, 2, 3], 10)
    assert [(hit.order, hit.carried) for hit in tree.lookups[0].hits] == [(3, True), (2, True)]
    assert provenance(tree, 1).source == "carried"
    assert provenance(tree, 1).supplier == "carried-3"
    seen(drafter, [1, 2, 3], {6: 0.9, 4: 0.1})
    tree = propose(drafter, [1, 2, 3], 10)
    assert children(tree)[:2] == [6, 4]  # the nearer memory wins
    assert provenance(tree, 2).source == "mixed"


def test_runner_up_is_offered_one_token_later():
    """The row that chose the root had a second choice."""
    plain, plus = start("recap", suffix=False), start("recap-plus", suffix=False, carry=0.0)
    for drafter in (plain, plus):
        seen(drafter, [1, 2], {3: 0.6, 4: 0.3})
    assert children(propose(plain, [1, 2, 3], 10)) == []
    tree = propose(plus, [1, 2, 3], 10)
    assert children(tree) == [4]
    assert provenance(tree, 1).source == "runner-up"


def test_suffix_shares_the_queue_and_the_budget():
    """It adds a path of its own, or a second source to nodes that are there."""
    drafter = start("recap", budget=3)
    text = [1, 2, 3, 4, 5, 6, 1, 2]
    tree = propose(drafter, text, 10, 3)
    assert tree.token[1:] == [3, 4, 5]
    assert provenance(tree, 1).source == "suffix"
    seen(drafter, text, {3: 0.9, 7: 0.05})
    tree = propose(drafter, text, 10, 3)
    assert tree.nodes == 3
    assert provenance(tree, 1).source == "mixed"
    assert sum(tree.fused[r] for r in range(1, len(tree)) if tree.parent[r] == 0) <= 1.0


def test_seeds_fill_the_memory_but_not_over_decoding():
    """The prompt's rows are keys too, weaker than what decoding wrote."""
    memory = PersistentMemory(VOCABULARY)
    drafter = start("recap", memory, suffix=False)
    seen(drafter, [1, 2], {2: 0.9, 3: 0.1}, {8: 0.9, 9: 0.1}, step=SEED_STEP)
    assert children(propose(drafter, [2], 10))[0] == 8
    seen(drafter, [2], {7: 0.9, 9: 0.1}, step=0)
    again = start("recap", memory, suffix=False)
    seen(again, [2], {8: 0.9, 9: 0.1}, step=SEED_STEP)
    assert children(propose(again, [5, 2], 10))[0] == 7


def test_placeholders_are_never_keys():
    """A gap before or at the root leaves nothing to look up."""
    drafter = start("recap", suffix=False)
    seen(drafter, [GAP, 1], {3: 1.0}, {4: 1.0})
    assert propose(drafter, [5, GAP], 10).nodes == 0
    assert [h.order for h in propose(drafter, [GAP, 1], 10).lookups[0].hits] == [1]


def test_depth_is_limited():
    """No node lies deeper than what can still be emitted."""
    drafter = start("recap")
    seen(drafter, [1, 1, 1, 1], *[{1: 0.9, 2: 0.1}] * 4)
    tree = propose(drafter, [1, 1, 1, 1], 3)
    assert max(tree.depth) == 3
    assert propose(start("token-recycling"), [1], 0).nodes == 0


def test_nothing_is_drafted_behind_the_end():
    """An EOS may be a node; it has no children."""
    method = METHODS["recap"]
    for ends, wanted in ((frozenset(), [1, 2, 3, 4]), (frozenset([3]), [1, 2, 3])):
        drafter = method.start(PersistentMemory(VOCABULARY), method.settings(suffix=False), ends)
        seen(drafter, [1, 2, 3], {2: 1.0}, {3: 1.0}, {4: 1.0})
        assert propose(drafter, [1], 10).token == wanted


def test_token_recycling_has_80_nodes_in_6_depths():
    """The shape of the method's public code."""
    assert [sum(counts) for counts in CHILDREN_BY_DEPTH] == [8, 21, 25, 15, 8, 3]
    memory = PersistentMemory(VOCABULARY)
    drafter = start("token-recycling", memory)
    for token in range(VOCABULARY):
        ids = [(token * 3 + k) % VOCABULARY for k in range(1, 9)]
        seen(drafter, [token], dict(zip(ids, [0.3, 0.2, 0.1, 0.09, 0.08, 0.07, 0.06, 0.05])))  # noqa: B905
    tree = propose(drafter, [4], 10)
    depths = [tree.depth[1:].count(depth) for depth in range(1, 7)]
    assert depths == [8, 21, 25, 15, 8, 3]
    assert tree.template
    for row in range(1, len(tree)):
        ids = [(tree.token[tree.parent[row]] * 3 + k) % VOCABULARY for k in range(1, 9)]
        siblings = [r for r in range(1, len(tree)) if tree.parent[r] == tree.parent[row]]
        assert tree.token[row] == ids[siblings.index(row)]


def test_token_recycling_ignores_settings_that_are_not_its_own():
    """One order, overwritten: whatever else is set."""
    memory = PersistentMemory(VOCABULARY)
    drafter = start("token-recycling", memory, orders=(1, 2, 3), blend=0.5, carry=0.5)
    seen(drafter, [3, 4], {5: 0.5, 6: 0.3})
    seen(drafter, [3, 4], {7: 0.5, 6: 0.3})
    tree = propose(drafter, [3, 4], 10)
    assert tree.token == [4, 7, 6]
    assert {hit.order for hit in tree.lookups[0].hits} == {1}


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


def test_token_recycling_leaves_out_what_it_has_not_seen():
    """A token never seen has no children; the rest of the shape stays."""
    drafter = start("token-recycling")
    assert propose(drafter, [4], 10).nodes == 0
    seen(drafter, [4], {5: 0.5, 6: 0.3})
    assert propose(drafter, [4], 10).token == [4, 5, 6]


def test_prompt_rows_are_written_only_where_a_method_seeds():
    """Token Recycling discards the prefill's predictions; RECAP may be told to."""
    for name, changes in (("token-recycling", {}), ("recap", {"seed_prompt": False})):
        memory = PersistentMemory(VOCABULARY)
        seen(start(name, memory, **changes), [4], {5: 0.5, 6: 0.3}, step=SEED_STEP)
        assert memory.entries()[1] == 0
    memory = PersistentMemory(VOCABULARY)
    seen(start("recap", memory), [4], {5: 0.5, 6: 0.3}, step=SEED_STEP)
    assert memory.entries()[1] == 1


def test_what_is_believed_of_ranks_can_be_true():
    """At most one of them is what the target wants."""
    assert sum(map(rank_trust, range(8))) <= 1


@pytest.mark.parametrize("budget", [1, 8, 16, 24, 32, 48, 79])
def test_smaller_templates_are_prefix_closed_and_not_breadth_first(budget):
    """A deep first-rank path is worth more than the eighth child."""
    rows = [row for row, _ in template(budget)]
    assert len(rows) == budget
    assert rows == sorted(rows)
    shape = full_template()
    ranks: dict[int, list[int]] = {}
    for row in rows:
        parent, rank, _ = shape[row - 1]
        assert not parent or parent in rows
        ranks.setdefault(parent, []).append(rank)
    assert all(found == list(range(len(found))) for found in ranks.values())
    if 8 <= budget < 48:
        assert len(ranks[0]) < 8 or budget > 24
        assert len(ranks) > 1


@given(
    st.lists(
        st.lists(st.sampled_from([0.0, 0.1, 0.3, 0.3, 0.8, 1.0]), min_size=8, max_size=8),
        min_size=6,
        max_size=6,
    ),
    st.integers(0, 80),
)
def test_the_best_of_the_shape_is_taken_and_closed_under_prefixes(rates, count):
    """Whatever the rates by rank and depth: no node left out is likelier than one taken."""

    def chance(row):
        parent, rank, depth = full_template()[row - 1]
        return rates[depth][rank] * (chance(parent) if parent else 1.0)

    ranked = ranked_template(rates)
    taken = [row for row, _ in ranked[:count]]
    assert [p for _, p in ranked] == [chance(row) for row, _ in ranked]
    assert sorted(row for row, _ in ranked) == list(range(1, 81))
    for place, row in enumerate(taken):
        parent = full_template()[row - 1][0]
        assert not parent or parent in taken[:place]
    left = [chance(row) for row, _ in ranked[count:]]
    assert not taken or not left or min(map(chance, taken)) >= max(left)


def test_prompt_lookup_copies_a_chain():
    """As many tokens as fit, from the most recent occurrence."""
    drafter = start("prompt-lookup", max_depth=3)
    tree = propose(drafter, [1, 2, 3, 4, 5, 1, 2], 10)
    assert tree.token == [2, 3, 4, 5]
    assert tree.parent == [-1, 0, 1, 2]
    assert provenance(tree, 2).source == "suffix"
    assert propose(drafter, [1, 2, 3, 4, 5, 1, 2, 9], 10).nodes == 0


def test_last_row_wins_in_token_recycling():
    """Two rows of one token in a pass: no order but the rows' own."""
    drafter = start("token-recycling")
    rows = rows_of({5: 0.9, 6: 0.1}, {7: 0.9, 8: 0.1})
    drafter.observe(Outcome([4, 4], [GAP, GAP], [GAP, GAP], rows, [0], [5], 0, 0))
    assert propose(drafter, [4], 1).token[1] == 7


def test_accepted_rows_win_in_recap():
    """Rejected rows are written first."""
    drafter = start("recap", suffix=False)
    rows = rows_of({5: 0.9, 6: 0.1}, {7: 0.9, 8: 0.1})
    drafter.observe(Outcome([4, 4], [GAP, GAP], [GAP, GAP], rows, [0], [5], 0, 0))
    assert propose(drafter, [4], 1).token[1] == 5


def adaptive(name, memory, **changes):
    """A drafter within an adaptive budget."""
    method = METHODS[name]
    return method.start(memory, method.settings(**{**changes, "budget": "adaptive"}))


def above(least, nodes=80):
    """Floors that leave out what is not more probable than this."""
    return Floors.of(np.array([least] * nodes + [np.inf]))


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
    for group in range(12):
        for level in range(20):
            memory.counts.cells[group, level] = [0.0, 60.0]
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


def test_a_tree_is_the_prefix_of_the_one_without_floors():
    """Floors end the search; they change nothing before that."""
    memory = PersistentMemory(VOCABULARY)
    drafter = adaptive("recap", memory)
    text = [1, 2, 3, 4, 2, 3, 1, 4, 3, 2, 1, 2, 3]
    spread = {1: 0.3, 2: 0.25, 3: 0.2, 4: 0.1}
    seen(drafter, text, *[spread] * len(text))
    whole = drafter.propose(text, 10, above(-1.0))
    for least in (0.5, 0.1, 0.02):
        part = drafter.propose(text, 10, above(least))
        count = sum(p > least for p in whole.path[1:])
        assert part.nodes == count
        assert part.token == whole.token[: count + 1]
        assert part.path == whole.path[: count + 1]
