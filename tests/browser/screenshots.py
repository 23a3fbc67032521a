"""Take the pictures that the README shows: `python -m tests.browser.screenshots ADDRESS`.

The server must be running. Writes PNG files and one animated WebP to `assets/screenshots`.
"""

from __future__ import annotations

import io
import shutil
import sys
from pathlib import Path
from typing import Any

from PIL import Image
from playwright.sync_api import Browser, sync_playwright

from app import assets

OUT = Path(__file__).resolve().parents[2] / "assets" / "screenshots"
FRAME = (1280, 820)


def main(address: str) -> None:
    """Visit the page in all the states that are worth a look."""
    OUT.mkdir(parents=True, exist_ok=True)
    chromium = shutil.which("chromium") or shutil.which("google-chrome")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=chromium, args=["--no-sandbox", "--disable-gpu"]
        )
        for name, take in (
            ("light", _first), ("dark", _first), ("narrow", _first), ("inspector", _inspector),
            ("mid-run", _mid_run), ("finished", _finished), ("error", _error), ("race", _race),
        ):  # fmt: skip
            page = _open(browser, address, name)
            take(page)
            page.screenshot(path=OUT / f"{name}.png")
            page.context.close()
        _animate(_open(browser, address, "light"))
        browser.close()


def _open(browser: Browser, address: str, name: str) -> Any:
    dark, narrow = name == "dark", name == "narrow"
    context = browser.new_context(
        viewport={"width": 375 if narrow else FRAME[0], "height": 812 if narrow else FRAME[1]},
        color_scheme="dark" if dark else "light",
        device_scale_factor=2 if narrow else 1,
    )
    page = context.new_page()
    page.goto(address + ("/?__theme=dark" if dark else ""))
    page.wait_for_selector(".tree-svg .node")
    page.wait_for_timeout(700)
    return page


def _first(page: Any) -> None:
    page.mouse.move(1, 1)


def _inspector(page: Any) -> None:
    page.evaluate("Recap.page.store.select('bonus')")
    page.wait_for_timeout(200)
    page.locator(".inspector").scroll_into_view_if_needed()


def _run(page: Any) -> None:
    serial = page.evaluate("Recap.page.store.serial")
    page.click("#recap-run")
    page.wait_for_function(f"Recap.page.store.serial > {serial}")


def _mid_run(page: Any) -> None:
    _run(page)
    page.wait_for_function(
        "Recap.page.store.frontier > 9 && Recap.page.store.step.nodes.length > 6"
    )
    page.wait_for_timeout(60)


def _finished(page: Any) -> None:
    _run(page)
    page.wait_for_function("Recap.page.store.run.status === 'done'")
    page.evaluate("document.activeElement.blur()")
    page.keyboard.press("End")
    page.wait_for_timeout(400)


def _error(page: Any) -> None:
    page.fill("#recap-prompt textarea", " ")
    page.click("#recap-run")
    page.wait_for_selector("#recap-ask-notice .recap-notice:not(:empty)")
    page.wait_for_timeout(300)


def _race(page: Any) -> None:
    page.click("#recap-race")
    page.wait_for_selector(".compare:not([hidden])", timeout=60_000)
    page.wait_for_timeout(600)
    page.locator("#recap-tabs").evaluate("(e) => window.scrollTo(0, e.offsetTop - 8)")
    page.wait_for_timeout(300)


def _animate(page: Any) -> None:
    """A run as it is seen at the page's pace, in few colours."""
    frames = [_frame(page)]
    _finished(page)  # so that the memory knows something
    _run(page)
    while len(frames) < 60:
        page.wait_for_timeout(180)
        frames.append(_frame(page))
        done = page.evaluate(
            "Recap.page.store.run.status === 'done' &&"
            " Recap.page.store.frontier === Recap.page.store.run.steps.length"
        )
        if done:
            break
    frames[0].save(
        OUT / "run.webp", save_all=True, append_images=frames[1:],
        duration=[1200, *[250] * (len(frames) - 2), 2500], loop=0, quality=60, method=6,
    )  # fmt: skip


def _frame(page: Any) -> Image.Image:
    picture = Image.open(io.BytesIO(page.screenshot())).convert("RGB")
    return picture.resize((960, 960 * FRAME[1] // FRAME[0]), Image.Resampling.LANCZOS)


if __name__ == "__main__":
    assert assets.first_view() is not None, "record the traces first: python -m app.record_traces"
    main(sys.argv[1].rstrip("/"))
