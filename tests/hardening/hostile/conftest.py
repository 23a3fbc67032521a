"""Hostile input goes the way that a visitor's input goes, through HTTP and Gradio.

The engine's own refusals are tested beside the engine (`tests/recap`).
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.server import ROOT, Server
from tests.visitor import Visitor


@pytest.fixture(autouse=True)
def _the_server_goes_on(server: Server, visit: Callable[[], Visitor]):
    """After each case: it still answers, and no line of our own code has failed."""
    before = len(server.output)
    yield
    assert visit().run(prompt="Hello!", limit=2)["status"] == "done"
    own = [line for line in server.output[before:].splitlines() if str(ROOT / "app") in line]
    own += [line for line in server.output[before:].splitlines() if str(ROOT / "recap") in line]
    assert own == []
