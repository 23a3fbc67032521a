"""Links that reopen an example, a prompt, settings and a step.

A picture is never put into a link: an example is named by its number, and others stay out.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from gradio.data_classes import FileData

from app import assets
from app.hosting import Host
from recap.drafters import METHODS
from recap.errors import SettingsError
from recap.settings import Settings

#: Longest prompt that a link may carry, in characters.
_MAX_PROMPT = 4000
#: New tokens where a link names none.
_LIMIT = 160


@dataclass(frozen=True)
class Link:
    """What a link says. `example` is a number in `assets.examples()`, or None."""

    prompt: str
    method: str = "recap"
    example: int | None = None
    limit: int = _LIMIT
    model: str | None = None
    step: int | None = None
    changes: dict[str, Any] = field(default_factory=dict)

    @property
    def settings(self) -> Settings:
        """The method's settings with the link's changes. Raises `SettingsError`."""
        base = METHODS[self.method].settings().to_json()
        return Settings.from_json({**base, **self.changes})


def write(link: Link) -> str:
    """The link's query, without the question mark."""
    query: dict[str, Any] = {"prompt": link.prompt, "method": link.method, "tokens": link.limit}
    for name, value in (("example", link.example), ("model", link.model), ("step", link.step)):
        if value is not None:
            query[name] = value
    if link.changes:
        query["settings"] = json.dumps(link.changes, separators=(",", ":"))
    return urlencode(query, errors="replace")


def read(query: dict[str, str], most: int = Host.max_new_tokens) -> Link | None:
    """The link in a page's query; None where there is none or where it makes no sense.

    `most` new tokens are taken: a link may come from an app that takes more.
    """
    if not query.get("prompt") or query.get("method", "recap") not in METHODS:
        return None
    try:
        link = Link(
            prompt=query["prompt"][:_MAX_PROMPT],
            method=query.get("method", "recap"),
            example=_number(query, "example", 0, len(assets.examples()) - 1),
            limit=min(_number(query, "tokens", 1, 1_000_000) or _LIMIT, most),
            model=query.get("model") or None,
            step=_number(query, "step", 0, 100_000),
            changes=dict(json.loads(query.get("settings") or "{}")),
        )
        _ = link.settings
    except (ValueError, TypeError, RecursionError, SettingsError):
        return None
    return link


def picture_of(link: Link) -> dict[str, Any] | None:
    """The picture of the link's example, as the browser's picture input holds one."""
    path = assets.examples()[link.example].image if link.example is not None else None
    return FileData(path=str(path), orig_name=path.name).model_dump() if path else None


def changes(settings: Settings, method: str) -> dict[str, Any]:
    """Settings that are not the method's own."""
    own = METHODS[method].settings().to_json()
    return {name: value for name, value in settings.to_json().items() if value != own[name]}


def example_of(path: str | None) -> int | None:
    """The number of the example with this picture (or with none), by its content.

    None where it is no example's, or not there any more.
    """
    try:
        chosen = Path(path).read_bytes() if path else None
    except OSError:
        return None
    for number, example in enumerate(assets.examples()):
        if (example.image.read_bytes() if example.image else None) == chosen:
            return number
    return None


def _number(query: dict[str, str], name: str, low: int, high: int) -> int | None:
    text = query.get(name)
    if text is None:
        return None
    value = int(text)
    return value if low <= value <= high else None
