"""The candidate tree against exhaustive search, naive masks and a naive walk."""

from __future__ import annotations

import itertools

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from recap.calibration import LEVELS, level_of
from recap.compiled import ints
from recap.fusion import Weighting
from recap.memory import PersistentMemory, RequestMemory
from recap.prediction import GAP, Prediction
from recap.search import KINDS, Extras, Limits, search
from recap.settings import Settings
from recap.tree import CandidateTree, Floors, accept
from tests.recap.predictions import table

#: Scores with few values, so that ties are common.
SCORES = st.sampled_from([0.0, 0.1, 0.25, 0.25, 0.5, 0.5, 1.0])


@st.composite
def worlds(draw):
    """A table: (depth, token) -> ranked continuations; at most three a token."""
    table = {}
    for depth, token in itertools.product(range(4), range(4)):
        count = draw(st.integers(0, 3))
        scores = sorted((draw(SCORES) for _ in range(count)), reverse=True)
        total = max(1.0, sum(scores))
        chosen = draw(st.permutations(range(4)))[:count]
        table[depth, token] = list(zip(chosen, (s / total for s in scores), strict=True))
    return table


def grow(world, floors, depth, trust, width=8):
    """The tree of a search in a memory that knows this world: a token for each depth and token."""
    predictions = [
        Prediction(
            tuple(4 * (level + 1) + after for after, _ in ranked),
            tuple(score for _, score in ranked),
            0.5,
            ranked[0][1],
            1,
            0,
        )
        for (level, _), ranked in world.items()
        if ranked
    ]
    options = Settings(orders=(1,), top_k=3)
    memory = RequestMemory(PersistentMemory(4 * 5), options)
    if predictions:
        own = [4 * level + token for (level, token), ranked in world.items() if ranked]
        gaps = [GAP] * len(own)
        memory.write(np.array([own, gaps, gaps]), table(predictions), range(len(own)))
    found = search(
        ints([0, GAP, GAP]),
        memory.readers(),
        Weighting.of(options),
        Extras.of(),
        trust,
        floors,
        Limits(depth, width),
    )
    tree = CandidateTree(0)
    tree.fill(found.nodes, found.scores, found.lookups)
    tree.token = [token % 4 for token in tree.token]
    return tree


@settings(deadline=None, max_examples=300)
@given(
    worlds(), st.integers(0, 20), st.integers(1, 4), st.integers(1, 3), st.sampled_from([1, 0.5])
)
def test_best_first_takes_the_most_probable_of_all_paths(world, budget, depth, width, factor):
    """The tree is the top-N of an exhaustive enumeration, in order, ties included."""
    flat = np.full((2 * KINDS, LEVELS), float(factor))
    tree = grow(world, Floors.fixed(budget), depth, flat, width)
    # All paths, as (probability, ranks from the root, tokens).
    everything = []
    frontier = [(1.0, (), (0,))]
    for level in range(depth):
        following = []
        for p, ranks, path in frontier:
            ranked = world[level, path[-1]][:width]
            for rank, (token, score) in enumerate(ranked):
                following.append((p * factor * score, (*ranks, rank), (*path, token)))
        everything += following
        frontier = following
    # Simulate the search with every candidate in one list: most probable, then lower rank, then
    # the parent that was added first.
    added = {(): 0}
    order: list[tuple[int, ...]] = []
    while len(order) < budget:
        waiting = [
            (-p, ranks[-1], added[ranks[:-1]], ranks, path)
            for p, ranks, path in everything
            if ranks[:-1] in added and ranks not in added
        ]
        if not waiting:
            break
        best = min(waiting)
        added[best[3]] = len(added)
        order.append(best[4])
    paths = [(0,)]
    for row in range(1, len(tree)):
        paths.append((*paths[tree.parent[row]], tree.token[row]))
    assert paths[1:] == order
    # Top-N: nothing left out is more probable than anything taken.
    taken = sorted(tree.path[1:])
    probabilities = sorted((p for p, _, _ in everything), reverse=True)[: len(taken)]
    assert taken == sorted(probabilities)
    assert all(tree.parent[row] < row for row in range(1, len(tree)))


@settings(deadline=None, max_examples=200)
@given(
    worlds(),
    st.lists(st.sampled_from([0.0, 0.3, 0.7, 1.0]), min_size=2 * LEVELS, max_size=2 * LEVELS),
    st.lists(st.sampled_from([-1.0, 0.0, 0.05, 0.2, 0.6]), min_size=1, max_size=20),
)
def test_calibrated_trees_keep_the_order_and_stop_at_the_floors(world, factors, floors):
    """Whatever the factors: prefix-closed, never rising, siblings below one, and cut by the floors.

    The reference grows the whole tree, and walks along it until a node is not above its floor.
    """

    trust = np.zeros((2 * KINDS, LEVELS))  # of order 1 at the root, and below it
    trust[1], trust[1 + KINDS] = factors[LEVELS:], factors[:LEVELS]

    def grown(values):
        return grow(world, Floors.of(np.array([*values, np.inf])), 4, trust)

    whole, part = grown([-1.0] * 200), grown(floors)
    assert whole.path[1:] == sorted(whole.path[1:], reverse=True)
    for row in range(len(whole)):
        children = [r for r in range(1, len(whole)) if whole.parent[r] == row]
        assert sum(whole.path[r] for r in children) <= whole.path[row] * (1 + 1e-9)
        for r in children:
            table = factors[:LEVELS] if whole.depth[row] else factors[LEVELS:]
            fused = whole.fused[r]
            assert whole.path[r] <= whole.path[row] * fused * table[level_of(fused)] + 1e-12
    count = 0
    while count < min(len(floors), whole.nodes) and whole.path[count + 1] > floors[count]:
        count += 1
    assert part.token == whole.token[: count + 1]
    assert part.path == whole.path[: count + 1]


def test_cutting_keeps_a_prefix_and_its_lookups():
    """As if the search had stopped there."""
    world = {(level, token): [(0, 0.75), (1, 0.25)] for level in range(3) for token in range(2)}
    flat = np.full((2 * KINDS, LEVELS), 1.0)
    whole = grow(world, Floors.fixed(9), 4, flat)
    for nodes in range(9):
        tree, part = (
            grow(world, Floors.fixed(9), 4, flat),
            grow(world, Floors.fixed(nodes), 4, flat),
        )
        tree.cut(nodes)
        assert (tree.nodes, tree.token, tree.parent) == (nodes, part.token, part.parent)
        assert tree.contexts().tolist() == whole.contexts()[:, : nodes + 1].tolist()
        assert tree.ancestry().shape == (nodes + 1, nodes + 1)
        assert set(part.lookups.expanded) <= set(tree.lookups.expanded)
        assert max(tree.lookups.expanded) <= nodes
        assert set(tree.lookups.entry) == set(range(len(tree.lookups.entries)))
        for row in tree.lookups.expanded:
            assert tree.lookups.hits(row) == whole.lookups.hits(row)


@st.composite
def trees(draw, largest: int = 70):
    """A random tree whose siblings have different tokens."""
    tree = CandidateTree(draw(st.integers(0, 5)))
    taken = set()
    for _ in range(draw(st.integers(0, largest))):
        parent, token = draw(st.integers(0, len(tree) - 1)), draw(st.integers(0, 5))
        if (parent, token) not in taken:
            taken.add((parent, token))
            tree.add(parent, token, 0.5, 0.5)
    return tree


def ancestors(tree: CandidateTree, row: int) -> set[int]:
    """The row and everything above it."""
    seen = {row}
    while row:
        row = tree.parent[row]
        seen.add(row)
    return seen


@settings(deadline=None)
@given(trees())
def test_a_row_sees_its_ancestors_and_itself(tree):
    """And its position is its depth: as many ancestors as steps from the root."""
    ancestry = tree.ancestry()
    for row in range(len(tree)):
        seen = ancestors(tree, row)
        assert set(ancestry[row].nonzero()[0].tolist()) == seen
        assert tree.depth[row] == len(seen) - 1


@settings(deadline=None)
@given(trees(), st.data())
def test_keys_come_from_ancestors_not_neighbours(tree, data):
    """`previous` and `before` are the tokens of the parent and its parent."""
    row = data.draw(st.integers(0, len(tree) - 1))
    path = [row]
    while path[-1]:
        path.append(tree.parent[path[-1]])
    if len(path) > 1:
        assert tree.previous[row] == tree.token[path[1]]
    if len(path) > 2:
        assert tree.before[row] == tree.token[path[2]]


@settings(deadline=None)
@given(trees(), st.data())
def test_acceptance_is_a_walk_from_the_root(tree, data):
    """Follow the child that is the row's choice, as long as there is one."""
    choices = data.draw(st.lists(st.integers(0, 5), min_size=len(tree), max_size=len(tree)))
    path = [0]
    while True:
        children = [
            row
            for row in range(1, len(tree))
            if tree.parent[row] == path[-1] and tree.token[row] == choices[path[-1]]
        ]
        if not children:
            break
        path.append(children[0])
    assert accept(tree, choices) == path
