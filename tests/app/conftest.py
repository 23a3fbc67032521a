"""A small target and a few recorded runs, shared by the tests of the app's logic."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from app.jobs import Asked
from app.line import Turnstile
from app.models import ModelShelf
from recap.drafters import METHODS
from recap.session import Session
from recap.targets import Target, load_target
from recap.trace import Trace


@pytest.fixture(scope="session")
def target() -> Target:
    return load_target("tiny-random", device="cpu", dtype="float32")


@pytest.fixture(scope="session")
def traces(target: Target) -> dict[str, Trace]:
    """Two requests a method on one memory; the second one's trace."""
    session = Session(target)
    found = {}
    for name in METHODS:
        for prompt in ("Say something.", "Say something else."):
            settings = METHODS[name].settings(budget=63)
            run = session.run(prompt, None, name, settings=settings, max_new_tokens=40)
            found[name] = run.finish_all()
    return found


@pytest.fixture
def trace(traces: dict[str, Trace]) -> Trace:
    return traces["recap"]


@pytest.fixture
def shelf(target: Target) -> ModelShelf:
    return ModelShelf(load=lambda name: target)


@pytest.fixture
def turnstile() -> Turnstile:
    return Turnstile()


@pytest.fixture(scope="session")
def ask() -> Callable[..., Asked]:
    """What a person asks for, with a few things changed."""

    def make(method: str = "recap", tokens: int = 40, prompt: str = "Say something.") -> Asked:
        # An adaptive budget would follow the clock, and two runs would not be the same.
        return Asked(prompt, None, method, METHODS[method].settings(budget=63), tokens)

    return make
