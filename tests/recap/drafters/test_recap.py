"""What RECAP and RECAP+ propose from what they have seen."""

from __future__ import annotations

import numpy as np
import pytest

from recap.drafters import METHODS, Outcome
from recap.memory import PersistentMemory
from recap.prediction import GAP, SEED_STEP
from recap.provenance import provenance
from tests.recap.drafters.by_hand import (
    VOCABULARY,
    above,
    adaptive,
    children,
    propose,
    rows_of,
    seen,
    start,
)


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
    assert [hit.order for hit in tree.lookups.hits(0)] == [1]


def test_recap_plus_carries_contextual_entries_at_a_discount():
    """An earlier request's entry takes part, and says that it was carried."""
    memory = PersistentMemory(VOCABULARY)
    seen(start("recap-plus", memory), [1, 2, 3], {4: 0.9, 5: 0.1})
    drafter = start("recap-plus", memory, suffix=False, orders=(2, 3))
    tree = propose(drafter, [1, 2, 3], 10)
    assert [(hit.order, hit.carried) for hit in tree.lookups.hits(0)] == [(3, True), (2, True)]
    assert provenance(tree, 1).source == "carried"
    assert provenance(tree, 1).supplier == "carried-3"
    seen(drafter, [1, 2, 3], {6: 0.9, 4: 0.1})
    tree = propose(drafter, [1, 2, 3], 10)
    assert children(tree)[:2] == [6, 4]  # the nearer memory wins
    assert provenance(tree, 2).source == "mixed"


def test_what_has_no_weight_is_no_source():
    """With back-off the longest hit decides alone; a carried entry behind it mixes nothing in."""
    memory = PersistentMemory(VOCABULARY)
    seen(start("recap-plus", memory), [1, 2, 3], {4: 0.9, 5: 0.1})
    drafter = start("recap-plus", memory, suffix=False, runner_up=0.0, fusion="back-off")
    seen(drafter, [7, 8, 3], {6: 0.9, 4: 0.1})  # now order 1 is this request's
    tree = propose(drafter, [1, 2, 3], 10)
    assert next((hit.order, hit.carried) for hit in tree.lookups.hits(0)) == (3, True)
    assert children(tree)[0] == 4
    assert provenance(tree, 1).orders == 0b111
    assert provenance(tree, 1).source == "carried"


@pytest.mark.parametrize(("trust", "source"), [(0.0, "memory"), (1.0, "suffix"), (0.5, "mixed")])
def test_what_adds_nothing_is_no_source(trust, source):
    """A suffix that nobody trusts, and a memory that leaves it everything."""
    drafter = start("recap", suffix_trust=trust)
    seen(drafter, [1, 2], {3: 0.9, 4: 0.1})
    tree = propose(drafter, [1, 2, 3, 1, 2], 10)
    assert children(tree)[0] == 3
    assert provenance(tree, 1).source == source


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


def test_texts_of_earlier_requests_continue_a_longer_match():
    """RECAP+ finds there what this request's own text does not say, and says where it is from."""
    memory = PersistentMemory(VOCABULARY)
    propose(start("recap-plus", memory), [1, 2, 3, 4, 5], 10)
    for name, wanted in (("recap", []), ("recap-plus", [4, 5])):
        drafter = start(name, memory.copy())
        tree = propose(drafter, [9, 2, 3], 10)
        assert tree.token[1:] == wanted
        assert [found.carried for found in tree.lookups.suffix] == [True for _ in wanted]
    plus = start("recap-plus", memory)
    tree = propose(plus, [2, 3, 6, 2, 3], 10)  # as long a match of its own
    assert tree.token[1] == 6
    assert not tree.lookups.suffix[0].carried
    assert start("recap-plus", memory, persist=False).memory.texts.tokens.tolist() == []


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
    assert [h.order for h in propose(drafter, [GAP, 1], 10).lookups.hits(0)] == [1]


def test_nothing_is_drafted_behind_the_end():
    """An EOS may be a node; it has no children."""
    method = METHODS["recap"]
    for ends, wanted in ((frozenset(), [1, 2, 3, 4]), (frozenset([3]), [1, 2, 3])):
        drafter = method.start(PersistentMemory(VOCABULARY), method.settings(suffix=False), ends)
        seen(drafter, [1, 2, 3], {2: 1.0}, {3: 1.0}, {4: 1.0})
        assert propose(drafter, [1], 10).token == wanted


def test_accepted_rows_win_in_recap():
    """Rejected rows are written first."""
    drafter = start("recap", suffix=False)
    rows = rows_of({5: 0.9, 6: 0.1}, {7: 0.9, 8: 0.1})
    drafter.observe(Outcome(np.array([[4, 4], [GAP] * 2, [GAP] * 2]), rows, [0], [5], 0, 0))
    assert propose(drafter, [4], 1).token[1] == 5


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
