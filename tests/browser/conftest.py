"""A real server and a real Chromium. Without a browser these tests are skipped, in CI never."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.server import running_server

CHROMIUM_FLAGS = (
    "--no-sandbox", "--disable-gpu", "--disable-background-networking",
    "--disable-component-update",
    # A camera that shows a test picture, and nobody is asked for it.
    "--use-fake-device-for-media-stream", "--use-fake-ui-for-media-stream",
)  # fmt: skip


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Everything here drives a browser."""
    here = Path(__file__).resolve().parent
    for item in items:
        if item.path.is_relative_to(here):
            item.add_marker(pytest.mark.browser)


def _missing(reason: str) -> None:
    if os.environ.get("CI"):
        pytest.fail(f"In CI the browser tests never skip: {reason}")
    pytest.skip(reason)


@pytest.fixture(scope="session")
def chromium() -> Iterator[Any]:
    """Debian's Chromium, driven by playwright."""
    try:
        from playwright.sync_api import sync_playwright
    except ImportError:
        _missing("playwright is not installed: pip install playwright")
    names = ("chromium", "chromium-browser", "google-chrome")
    path = next(filter(None, map(shutil.which, names)), None)
    if path is None:
        _missing("there is no Chromium: apt-get install chromium")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=list(CHROMIUM_FLAGS))
        yield browser
        browser.close()


@pytest.fixture(scope="session")
def server() -> Iterator[str]:
    """`python app.py`; its address."""
    with running_server() as running:
        yield running.address


@pytest.fixture(scope="session")
def simulated() -> Iterator[str]:
    """The app on a model that is slow or fails on request (`tests.simulated`); its address."""
    with running_server(
        "-m", "tests.simulated", RECAP_QUEUE_LENGTH="2", RECAP_STALL_SECONDS="1"
    ) as running:
        yield running.address


class Visit:
    """One open tab, its console, and what a test does again and again."""

    def __init__(self, page: Any) -> None:
        self.page = page
        self.problems: list[str] = []
        self.foreign: list[str] = []
        page.on("console", self._console)
        page.on("pageerror", lambda error: self.problems.append(str(error)))
        page.on("request", self._request)

    def _console(self, message: Any) -> None:
        if message.type == "error":
            self.problems.append(message.text)

    def _request(self, request: Any) -> None:
        if not re.match(r"(http://127\.0\.0\.1|data:|blob:|file:)", request.url):
            self.foreign.append(request.url)

    def open(self, address: str) -> None:
        self.page.goto(address)
        self.page.wait_for_function(
            "globalThis.Recap?.page?.parts && document.querySelector('#recap-run')"
        )
        self.page.wait_for_selector(".recap-view .tree-svg .node")

    def store(self, expression: str) -> Any:
        """Something of the page's store: `store("run.steps.length")`."""
        return self.page.evaluate(f"Recap.page.store.{expression}")

    def remove_picture(self) -> None:
        """Take the picture away."""
        self.page.locator("#recap-picture button[aria-label='Remove Image']").click()
        self.page.wait_for_selector("#recap-picture img", state="detached")

    def ask(self, prompt: str, *, method: str = "RECAP", tokens: int = 48) -> None:
        self.page.fill("#recap-prompt textarea", prompt)
        self.page.get_by_label(method, exact=True).first.check()
        self.page.fill("#recap-limit input[type=number]", str(tokens))
        self.page.locator("#recap-limit input[type=number]").blur()

    def run(self) -> None:
        serial = self.store("serial")
        self.page.click("#recap-run")
        self.page.wait_for_function(f"Recap.page.store.serial > {serial}")

    def finish(self) -> None:
        self.page.wait_for_function("Recap.page.store.run.status === 'done'", timeout=60_000)
        self.page.wait_for_function(
            "Recap.page.store.run.steps.length === Recap.page.store.run._raw.length"
        )

    def skip(self) -> None:
        self.page.evaluate("document.activeElement.blur()")
        self.page.keyboard.press("End")
        self.page.wait_for_function(
            "Recap.page.store.frontier === Recap.page.store.run.steps.length"
        )

    def key(self, *keys: str) -> None:
        """Press keys with the focus on the page itself."""
        self.page.evaluate("document.activeElement.blur()")
        for key in keys:
            self.page.keyboard.press(key)

    @property
    def answer(self) -> str:
        """The text that stands in the answer, without the end mark."""
        return self.page.evaluate(
            "[...document.querySelectorAll('.answer-text .tok:not(.end)')]"
            ".map((e) => e.textContent).join('')"
        )

    @property
    def shown_tokens(self) -> list[int]:
        return self.store("run.tokens.map((t) => t.token)")


@pytest.fixture
def visit(chromium: Any, server: str) -> Iterator[Callable[..., Visit]]:
    """Open the page in a context of its own; afterwards its console must be silent."""
    contexts, visits = [], []

    def open_page(path: str = "/", **options: Any) -> Visit:
        settings = {"viewport": {"width": 1280, "height": 900}, "accept_downloads": True, **options}
        context = chromium.new_context(**settings)
        contexts.append(context)
        made = Visit(context.new_page())
        visits.append(made)
        made.open(server + path if path.startswith("/") else path)
        return made

    yield open_page
    for context in contexts:
        context.close()
    for made in visits:
        assert made.problems == []
        assert made.foreign == []


@pytest.fixture(scope="session")
def target() -> Any:
    """The same model as the server's, to compare with."""
    from app.models import default_model
    from recap.targets import load_target

    return load_target(default_model(), device="cpu")
