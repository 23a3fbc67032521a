"""What lies in the repository for the page: scripts, styles, example pictures, bundled traces."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from recap.errors import TraceError
from recap.trace import Trace

ROOT = Path(__file__).resolve().parents[1]
STATIC = Path(__file__).resolve().parent / "static"
EXAMPLES = ROOT / "assets" / "examples"
TRACES = ROOT / "assets" / "traces"

#: In this order: each file may use what the ones before it define.
VIEW_SCRIPTS = (
    "words.js", "store.js", "tree_layout.js", "tree.js", "answer.js", "timeline.js", "player.js",
    "inspector.js", "numbers.js", "memory.js", "tour.js", "view.js",
)  # fmt: skip
PAGE_SCRIPTS = (*VIEW_SCRIPTS, "race.js", "page.js")


@dataclass(frozen=True)
class Example:
    """A suggested prompt and the picture that it suits, if it needs one."""

    image: Path | None
    prompt: str
    kind: str


@cache
def script(names: tuple[str, ...]) -> str:
    """The scripts as one text, safe inside a script element."""
    text = "\n".join((STATIC / name).read_text("utf-8") for name in names)
    return text.replace("</script", "<\\/script")


@cache
def style(*names: str) -> str:
    """The style sheets as one text."""
    return "\n".join((STATIC / name).read_text("utf-8") for name in names)


@cache
def examples() -> tuple[Example, ...]:
    """The example pictures with their suggested prompts; none where they are not there."""
    listed = EXAMPLES / "examples.json"
    if not listed.is_file():
        return ()
    found = []
    for entry in json.loads(listed.read_text("utf-8")):
        path = EXAMPLES / entry["image"] if entry["image"] else None
        if path is None or path.is_file():
            found.append(Example(path, entry["prompt"], entry.get("kind", "")))
    return tuple(found)


@dataclass(frozen=True)
class FirstView:
    """What the page shows before anybody has asked anything."""

    trace: Trace
    show: int
    caption: str
    example: int | None


@cache
def first_view() -> FirstView | None:
    """The bundled trace at its instructive step; None where it is missing or unreadable."""
    described = TRACES / "first.json"
    if not described.is_file():
        return None
    about: dict[str, Any] = json.loads(described.read_text("utf-8"))
    try:
        trace = Trace.load(TRACES / about["trace"])
    except TraceError:
        return None
    return FirstView(trace, about["show"], about["caption"], about.get("example"))
