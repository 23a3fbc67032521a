"""What the collector is told, and that it still collects."""

from __future__ import annotations

import gc
import weakref

from recap.collector import calm_collector


class Node:
    """Something that can be in a cycle."""

    other: Node


def test_it_looks_less_often_and_still_finds_cycles():
    """Objects from before are left alone; a cycle from afterwards goes when it looks."""
    before, frozen = gc.get_threshold(), gc.get_freeze_count()
    gc.set_threshold(700, 10, 10)  # a command may have run in this process
    try:
        calm_collector()
        assert gc.get_threshold()[0] > 700
        assert gc.get_freeze_count() > frozen
        assert gc.isenabled()
        node = Node()
        node.other = node
        gone = weakref.ref(node)
        del node
        gc.collect()
        assert gone() is None
    finally:
        gc.set_threshold(*before)
        gc.unfreeze()
