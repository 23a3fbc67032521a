"""A little of the fuzz script, so that every change meets some of it."""

import pytest

from tests.hardening.fuzz import SURFACES, fuzz


@pytest.mark.parametrize(
    ("surface", "inputs"), [("traces", 150), ("pictures", 600), ("settings", 300)]
)
def test_nothing_but_clean_errors(surface, inputs):
    """Some inputs are refused and some are not: both ways are looked at."""
    assert set(SURFACES) == {"traces", "pictures", "settings"}
    seen = fuzz(surface, inputs)
    assert seen.total() >= inputs
    assert len(seen) > 1
