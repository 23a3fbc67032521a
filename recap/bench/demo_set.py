"""The built-in set: 48 requests about drawn pictures that training never saw.

A third each are about scenes, charts and cards. Within a kind there is what a memory can carry over
and what it must not: two wordings over four pictures each, several prompts over one picture, and
requests that share neither.
"""

from __future__ import annotations

import itertools
import random
from functools import partial

from PIL import Image

from recap.bench.sets import Item

#: Request types of a kind. The first is asked of many pictures; the first `_SHARED` of one picture.
_TYPES = {
    "scene": ("detail", "json", "story", "table", "describe", "positions", "where", "row"),
    "chart": ("detail", "json", "table", "story", "describe", "sum", "order", "value"),
    "card": ("detail", "json", "read", "table", "describe", "story", "dearest", "price"),
}
_SHARED = 6
#: Pictures that the first type is asked of, besides the one that all types are asked of.
_PICTURES = 8
#: Shapes, bars or lines that a picture has at least.
_PARTS = 4
#: Requests with a picture and a wording of their own.
_SINGLE = 2


def demo_items() -> list[Item]:
    """The set, 16 requests a kind. The pictures are drawn when they are opened."""
    return [item for kind in _TYPES for item in _kind(kind)]


def _kind(kind: str) -> list[Item]:
    types = _TYPES[kind]
    over_pictures = [(f"{kind}-pictures-{n}", f"p{n}", types[0], n // 4) for n in range(_PICTURES)]
    over_prompts = [(f"{kind}-prompts-{n}", "one", types[n], 2) for n in range(_SHARED)]
    single = [(f"{kind}-single-{n}", f"s{n}", types[-1 - n], 3 + n) for n in range(_SINGLE)]
    # Repeats lie apart, as they do where people ask.
    others = over_prompts + single
    order = [entry for pair in zip(over_pictures, others, strict=True) for entry in pair]
    return [_item(kind, *entry) for entry in order]


def _item(kind: str, identity: str, picture: str, name: str, style: int) -> Item:
    seed = _seed(kind, picture)
    return Item(
        identity, _question(kind, name, seed, style), kind, seed, partial(_draw, kind, seed)
    )


def _seed(kind: str, picture: str) -> str:
    """The first picture of this name with so much on it that answers have a middle."""
    from recap.demo.facts import parts, sample

    seeds = (f"bench/{kind}/{picture}/{n}" for n in itertools.count())
    return next(seed for seed in seeds if len(parts(sample(kind, seed))) >= _PARTS)


def _draw(kind: str, seed: str) -> Image.Image:
    from recap.demo.draw import draw_smooth
    from recap.demo.facts import sample

    return draw_smooth(sample(kind, seed))


def _question(kind: str, name: str, seed: str, style: int) -> str:
    """A wording of a request type, with what it asks about filled in from the picture."""
    from recap.demo.facts import sample
    from recap.demo.grammar import REGISTRY, build_turn

    styles = len(REGISTRY[kind][name].questions)
    turn = build_turn(kind, name, sample(kind, seed), random.Random(seed), style % styles)
    if turn is None:
        raise ValueError(f"{name} cannot be asked of {seed}")
    return turn.question
