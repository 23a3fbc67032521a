"""Prompt lookup proposes one chain."""

from __future__ import annotations

from recap.provenance import provenance
from tests.recap.drafters.by_hand import propose, start


def test_prompt_lookup_copies_a_chain():
    """As many tokens as fit, from the most recent occurrence."""
    drafter = start("prompt-lookup", max_depth=3)
    tree = propose(drafter, [1, 2, 3, 4, 5, 1, 2], 10)
    assert tree.token == [2, 3, 4, 5]
    assert tree.parent == [-1, 0, 1, 2]
    assert provenance(tree, 2).source == "suffix"
    assert propose(drafter, [1, 2, 3, 4, 5, 1, 2, 9], 10).nodes == 0
