"""Token Recycling: its template at every budget, and what fills it."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from recap.drafters import Outcome
from recap.drafters.token_recycling import (
    CHILDREN_BY_DEPTH,
    full_template,
    rank_trust,
    ranked_template,
    template,
)
from recap.memory import PersistentMemory
from recap.prediction import GAP
from tests.recap.drafters.by_hand import VOCABULARY, propose, rows_of, seen, start


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
    assert {hit.order for hit in tree.lookups.hits(0)} == {1}


def test_token_recycling_leaves_out_what_it_has_not_seen():
    """A token never seen has no children; the rest of the shape stays."""
    drafter = start("token-recycling")
    assert propose(drafter, [4], 10).nodes == 0
    seen(drafter, [4], {5: 0.5, 6: 0.3})
    assert propose(drafter, [4], 10).token == [4, 5, 6]


def test_what_is_believed_of_ranks_can_be_true():
    """At most one of them is what the target wants."""
    assert sum(map(rank_trust, range(8))) <= 1


@pytest.mark.parametrize("budget", [1, 8, 16, 24, 32, 48, 79])
def test_smaller_templates_are_prefix_closed_and_not_breadth_first(budget):
    """A deep first-rank path is worth more than the eighth child."""
    rows = template(budget)[0].tolist()
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

    rows, chances = (found.tolist() for found in ranked_template(np.array(rates)))
    taken = rows[:count]
    assert chances == pytest.approx([chance(row) for row in rows])
    assert sorted(rows) == list(range(1, 81))
    for place, row in enumerate(taken):
        parent = full_template()[row - 1][0]
        assert not parent or parent in taken[:place]
    left = [chance(row) for row in rows[count:]]
    assert not taken or not left or min(map(chance, taken)) >= max(left)


def test_last_row_wins_in_token_recycling():
    """Two rows of one token in a pass: no order but the rows' own."""
    drafter = start("token-recycling")
    rows = rows_of({5: 0.9, 6: 0.1}, {7: 0.9, 8: 0.1})
    drafter.observe(Outcome(np.array([[4, 4], [GAP] * 2, [GAP] * 2]), rows, [0], [5], 0, 0))
    assert propose(drafter, [4], 1).token[1] == 7
