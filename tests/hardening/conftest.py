"""One real server for the tests of this folder, and visitors to it."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from tests.server import Server, running_server
from tests.visitor import Visitor


@pytest.fixture(scope="session")
def server() -> Iterator[Server]:
    with running_server(RECAP_GRACE_SECONDS="1") as running:
        yield running


@pytest.fixture
def visit(server: Server) -> Iterator[Callable[[], Visitor]]:
    """Open the page as somebody new."""
    visitors: list[Visitor] = []

    def make() -> Visitor:
        visitors.append(Visitor(server.address).__enter__())
        return visitors[-1]

    yield make
    for visitor in visitors:
        visitor.leave()
