"""Settings, limits and links out of any range."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import httpx
import pytest

from app import links
from tests.hardening.hostile.inputs import SCRIPT
from tests.server import Server
from tests.visitor import RefusedError, Visitor

HUGE = 10**400


@pytest.mark.parametrize(
    ("settings", "named"),
    [
        ({"budget": -1}, "budget"), ({"budget": 257}, "budget"), ({"budget": HUGE}, "budget"),
        ({"budget": "63"}, "budget"), ({"budget": None}, "budget"), ({"budget": 3.5}, "budget"),
        ({"top_k": 0}, "top_k"), ({"width": 33}, "width"), ({"max_depth": 10**9}, "max_depth"),
        ({"alpha": -0.1}, "alpha"), ({"alpha": [1]}, "alpha"), ({"epsilon": True}, "epsilon"),
        ({"orders": []}, "orders"), ({"orders": [4]}, "orders"), ({"orders": {"1": 2}}, "orders"),
        ({"specificity": [3, 2, 1]}, "specificity"), ({"specificity": [1, 2]}, "specificity"),
        ({"fusion": "magic"}, "fusion"), ({"suffix": "yes"}, "suffix"),
        ({"persistent_capacity": 2**40}, "persistent_capacity"), ({"seed_rows": 0}, "seed_rows"),
        ({"../../etc": 1}, "etc"), ({"__class__": 1}, "__class__"),
        ({"x" * 9000: 1}, "not a setting"),
        ([], "settings"), ("budget", "settings"), (7, "settings"),
    ],
)  # fmt: skip
def test_settings_out_of_range_are_named(
    visit: Callable[[], Visitor], settings: Any, named: str
) -> None:
    """Through the endpoint; an empty list is no object either."""
    with pytest.raises(RefusedError, match=named) as refused:
        visit().call("decode", None, "Hello!", "recap", 2, settings)
    assert len(str(refused.value)) < 400


@pytest.mark.parametrize("most", [0, -1, 10**9, HUGE, 1.5, True, None, "5", [5]])
def test_a_limit_out_of_range_is_refused(visit: Callable[[], Visitor], most: Any) -> None:
    """In words that name it."""
    with pytest.raises(RefusedError, match="max_new_tokens"):
        visit().call("decode", None, "Hello!", "recap", most, None)


@pytest.mark.parametrize("limit", [0, -5, 1e308, 10**12, None, "x", float("1e999")])
def test_the_form_with_an_impossible_limit(visit: Callable[[], Visitor], limit: Any) -> None:
    """A slider's value can be anything in a request."""
    visitor = visit()
    try:
        view = visitor.run(prompt="Hello!", limit=limit)
    except (RefusedError, ValueError):  # JSON has no infinity
        return
    assert json.loads(view["end"])["finish"] == "error"


@pytest.mark.parametrize(
    "query",
    [
        {"prompt": "x", "settings": "[" * 9000}, {"prompt": "x", "settings": "9" * 9000},
        {"prompt": "x", "settings": '{"budget": 1e999}'}, {"prompt": "x", "tokens": "9" * 9000},
        {"prompt": SCRIPT, "method": SCRIPT}, {"prompt": "x", "example": "-1"},
        {"prompt": "x", "model": "../../etc/passwd"}, {"prompt": "\0\u202e"},
    ],
)  # fmt: skip
def test_hostile_links_open_the_page(
    visit: Callable[[], Visitor], server: Server, query: dict[str, str]
) -> None:
    """What makes no sense is left aside; nothing of it stands unescaped in the page."""
    links.read(query)
    answer = httpx.get(server.address, params=query)
    assert answer.status_code == 200
    assert "<script>alert(1)" not in answer.text
