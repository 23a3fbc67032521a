"""Which prompts: a built-in set, a JSONL file, or one of the paper's benchmarks by name.

    items = load_set("demo", limit=12)
    items = load_set("prompts.jsonl")       # {"id", "prompt", "image"?, "category"?} a line
    items = load_set("textvqa", limit=50)   # through the optional package datasets

The order interleaves the categories, so that the first N of any set take all kinds.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from PIL import Image

from recap.errors import RecapError
from recap.targets.images import load_image

#: Category of a prompt that names none.
UNSORTED = "all"
#: Name of all the paper's benchmarks together.
PAPER = "paper"
#: Prompts that are drawn from a benchmark where no limit was given.
SAMPLE = 100


@dataclass(frozen=True)
class Item:
    """One prompt. `picture` opens its image, where it has one; `image` says which that is."""

    id: str
    prompt: str
    category: str = UNSORTED
    image: str | None = None
    picture: Callable[[], Image.Image] | None = None

    def open_picture(self) -> Image.Image | None:
        """The picture, decoded now. Raises `ImageError`."""
        return None if self.picture is None else self.picture()


def load_set(name: str, limit: int | None = None, seed: int = 0) -> list[Item]:
    """The prompts of a set, categories interleaved, the first `limit` of them.

    Several sets are joined by commas, and `PAPER` stands for all of the paper's: then each gives up
    to `limit` prompts, and is a category of its own. `seed` draws the sample of a benchmark. Raises
    `RecapError` that says what is wrong with a file, or what is missing.
    """
    from recap.bench.benchmarks import BENCHMARKS

    if limit is not None and limit < 1:
        raise RecapError(f"--limit must be at least 1, got {limit}.")
    if name == PAPER:
        names = list(BENCHMARKS)
    elif Path(name).is_file():  # which may have a comma in its name
        names = [name]
    else:
        names = [part.strip() for part in name.split(",") if part.strip()]
    if len(names) == 1:
        return _load_one(names[0], limit, seed)
    parts = {part: _load_one(part, limit, seed) for part in names}
    return interleave(
        [
            replace(item, id=f"{part}/{item.id}", category=part)
            for part, items in parts.items()
            for item in items
        ]
    )


def _load_one(name: str, limit: int | None, seed: int) -> list[Item]:
    from recap.bench.benchmarks import BENCHMARKS, load_benchmark
    from recap.bench.demo_set import demo_items

    if name == "demo":
        items = demo_items()
    elif name in BENCHMARKS:
        items = load_benchmark(BENCHMARKS[name], limit or SAMPLE, seed)
    elif Path(name).is_file():
        items = read_jsonl(Path(name))
    else:
        raise RecapError(
            f"There is no set of prompts {name!r}: neither a file nor one of demo, {PAPER}, "
            f"{', '.join(BENCHMARKS)}."
        )
    return interleave(items)[:limit]


def interleave(items: Sequence[Item]) -> list[Item]:
    """The first of each category, then the second of each, and so on."""
    places: dict[str, int] = {}
    order = {category: n for n, category in enumerate(dict.fromkeys(i.category for i in items))}
    keyed = []
    for item in items:
        place = places[item.category] = places.get(item.category, -1) + 1
        keyed.append((place, order[item.category], item))
    return [item for *_, item in sorted(keyed, key=lambda entry: entry[:2])]


def digest(items: Iterable[Item]) -> str:
    """A short digest of ids, prompts, categories and image names, in their order."""
    data = [[item.id, item.prompt, item.category, item.image] for item in items]
    return hashlib.sha256(json.dumps(data).encode()).hexdigest()[:16]


def read_jsonl(path: Path) -> list[Item]:
    """The prompts of a file; image paths are relative to it. Raises `RecapError` with the line."""
    try:
        lines = path.read_text("utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise RecapError(f"'{path.name}' cannot be read: {error}") from None
    items = [
        _item(line, f"'{path.name}' line {number}", path.parent)
        for number, line in enumerate(lines, start=1)
        if line.strip()
    ]
    if not items:
        raise RecapError(f"'{path.name}' holds no prompts.")
    seen: set[str] = set()
    for item in items:
        if item.id in seen:
            raise RecapError(f"'{path.name}' has the id {item.id!r} twice.")
        seen.add(item.id)
    return items


def _item(line: str, where: str, folder: Path) -> Item:
    try:
        data = json.loads(line)
    except ValueError as error:
        raise RecapError(f"{where} is not JSON: {error}") from None
    if not isinstance(data, dict):
        raise RecapError(f"{where} is not a JSON object.")
    values: dict[str, Any] = {}
    for name, needed in (("id", True), ("prompt", True), ("category", False), ("image", False)):
        value = data.get(name)
        if value is None and not needed:
            continue
        if name == "id" and type(value) is int:
            value = str(value)
        if not isinstance(value, str) or not value:
            raise RecapError(f"{where}: {name} must be text, got {value!r}.")
        values[name] = value
    if image := values.get("image"):
        path = folder / image
        if not path.is_file():
            raise RecapError(f"{where}: there is no image '{image}'.")
        values["picture"] = lambda: load_image(path)
    return Item(**values)
