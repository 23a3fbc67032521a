"""What a picture shows, as data: scenes, charts and cards, sampled from a seed.

A picture is drawn from its facts and from nothing else (jitter and colour noise are facts too),
so one seed gives one picture and one set of true answers. Seeds are strings that begin with the
name of their space (`train/…`, `held-out/…`, `example/…`): held-out pictures are disjoint from
training pictures by construction. Non-goal: drawing (see `draw`) and words about it (`grammar`).

    >>> sample("scene", "held-out/scene/0").objects[0].shape in SHAPES
    True
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass

from recap.demo.words import (
    BACKGROUNDS,
    CHARTS,
    COLOURS,
    COUNTERS,
    HEADERS,
    ITEMS,
    PLACES,
    QUALITIES,
    SHAPES,
    SIZES,
    TOTAL,
)

RGB = tuple[int, int, int]
KINDS = ("scene", "chart", "card")


@dataclass(frozen=True)
class Thing:
    """One shape of a scene. `cell` is 0..8 in reading order; `shift` is pixels of 168."""

    colour: str
    shape: str
    size: str
    cell: int
    shift: tuple[float, float]
    rgb: RGB

    @property
    def place(self) -> str:
        return PLACES[self.cell]

    @property
    def row(self) -> int:
        return self.cell // 3

    @property
    def column(self) -> int:
        return self.cell % 3


@dataclass(frozen=True)
class Scene:
    """Coloured shapes on a 3x3 grid, in reading order of their cells."""

    background: str
    rgb: RGB
    objects: tuple[Thing, ...]
    kind: str = "scene"


@dataclass(frozen=True)
class Bar:
    """One bar: a whole value from 1 to 20."""

    label: str
    value: int
    colour: str
    rgb: RGB


@dataclass(frozen=True)
class Chart:
    """A horizontal bar chart; `first_row` (of six text rows, the title has row 0) and `drop`
    (pixels of 168) place the bars."""

    theme: str
    title: str
    bars: tuple[Bar, ...]
    rgb: RGB
    font: int
    first_row: int
    drop: float
    kind: str = "chart"


@dataclass(frozen=True)
class Line:
    """One printed line: words, then perhaps a number ("3.50" is a price, "12" is a count)."""

    words: tuple[str, ...]
    number: str = ""

    @property
    def text(self) -> str:
        return " ".join(self.words + ((self.number,) if self.number else ()))

    @property
    def name(self) -> str:
        return " ".join(self.words)

    @property
    def cents(self) -> int | None:
        """The price in cents, or None where the line has no price."""
        return round(float(self.number) * 100) if "." in self.number else None


@dataclass(frozen=True)
class Card:
    """A receipt (items with prices) or a label (words and counts) of 2 to 5 lines."""

    form: str
    lines: tuple[Line, ...]
    paper: RGB
    ink: RGB
    table: RGB
    font: int
    first_row: int
    drops: tuple[float, ...]
    kind: str = "card"

    @property
    def items(self) -> tuple[Line, ...]:
        """The priced lines without the total."""
        return tuple(
            line for line in self.lines if line.cents is not None and line.words != (TOTAL,)
        )

    @property
    def header(self) -> str:
        """The printed heading, or "" where the card has none."""
        first = self.lines[0]
        return first.name if first.name in HEADERS and not first.number else ""

    @property
    def total(self) -> str:
        """The printed total ("7.50"), or "" where the card has none."""
        last = self.lines[-1]
        return last.number if last.words == (TOTAL,) else ""


Picture = Scene | Chart | Card


def parts(picture: Picture) -> tuple[Thing, ...] | tuple[Bar, ...] | tuple[Line, ...]:
    """What a picture consists of: the shapes of a scene, the bars of a chart, lines of a card."""
    if isinstance(picture, Scene):
        return picture.objects
    return picture.bars if isinstance(picture, Chart) else picture.lines


def _noise(rng: random.Random, rgb: RGB, amount: int) -> RGB:
    return tuple(max(0, min(255, c + rng.randint(-amount, amount))) for c in rgb)  # type: ignore[return-value]


def sample_scene(rng: random.Random, crowded: bool = False) -> Scene:
    """A scene of 1 to 6 shapes, or of 3 to 9 when `crowded` (for teaching the vision tower)."""
    count = rng.randint(3, 9) if crowded else rng.choice((1, 2, 2, 3, 3, 4, 4, 5, 5, 6))
    background = rng.choice(list(BACKGROUNDS))
    things: list[Thing] = []
    for cell in sorted(rng.sample(range(9), count)):
        # A repeated shape or colour now and then makes counting and "which" worth asking.
        like = rng.choice(things) if things and rng.random() < 0.25 else None
        keep_colour = like is not None and rng.random() < 0.5
        colour = like.colour if like and keep_colour else rng.choice(list(COLOURS))
        shape = like.shape if like and not keep_colour else rng.choice(SHAPES)
        size = rng.choice(list(SIZES))
        slack = {"small": 10, "medium": 8, "large": 4}[size]
        shift = (rng.uniform(-slack, slack), rng.uniform(-slack, slack))
        things.append(Thing(colour, shape, size, cell, shift, _noise(rng, COLOURS[colour], 8)))
    return Scene(background, _noise(rng, BACKGROUNDS[background], 5), tuple(things))


def sample_chart(rng: random.Random, crowded: bool = False) -> Chart:
    """A chart of 2 to 5 bars (5 when `crowded`) with differing labels and colours."""
    count = 5 if crowded else rng.randint(2, 5)
    theme = rng.choice(list(CHARTS))
    titles, labels = CHARTS[theme]
    chosen = rng.sample(labels, count)
    if theme in ("days", "months"):
        chosen.sort(key=labels.index)
    colours = rng.sample([c for c in COLOURS if c != "white"], count)
    bars = tuple(
        Bar(label, rng.randint(1, 20), colour, _noise(rng, COLOURS[colour], 8))
        for label, colour in zip(chosen, colours, strict=True)
    )
    gray = rng.randint(244, 253)
    paper = (gray, gray, gray - rng.randint(0, 5))
    return Chart(
        theme,
        rng.choice(titles),
        bars,
        paper,
        font=rng.randrange(3),
        first_row=1 + (5 - count + rng.randint(0, 1)) // 2,
        drop=rng.uniform(-2, 2),
    )


def _price(rng: random.Random) -> str:
    whole = rng.randint(10, 19) if rng.random() < 0.2 else rng.randint(1, 9)
    return f"{whole}.{rng.randrange(0, 100, 5):02d}"


def _receipt_lines(rng: random.Random) -> list[Line]:
    count = rng.randint(2, 5)
    has_header = count >= 3 and rng.random() < 0.6
    has_total = count - has_header >= 3 and rng.random() < 0.6
    names = rng.sample(ITEMS, count - has_header - has_total)
    items = [Line((name,), _price(rng)) for name in names]
    lines = [Line((rng.choice(HEADERS),))] if has_header else []
    lines += items
    if has_total:
        cents = sum(line.cents or 0 for line in items)
        lines.append(Line((TOTAL,), f"{cents // 100}.{cents % 100:02d}"))
    return lines


def _label_lines(rng: random.Random) -> list[Line]:
    count = rng.randint(2, 5)
    lines = [Line((rng.choice(HEADERS),))] if rng.random() < 0.6 else []
    while len(lines) < count:
        draw = rng.random()
        if draw < 0.5:
            lines.append(Line((rng.choice(ITEMS),)))
        elif draw < 0.7:
            lines.append(Line((rng.choice(QUALITIES),)))
        else:
            lines.append(Line((rng.choice(COUNTERS),), str(rng.randint(1, 99))))
    return lines


def _crowded_lines(rng: random.Random) -> list[Line]:
    """Five lines of any printed words, perhaps a heading, the rest nearly all with a number."""
    words = [*ITEMS, *QUALITIES, *COUNTERS, *HEADERS, TOTAL]
    lines = []
    if rng.random() < 0.3:
        heading = rng.choice(HEADERS)
        words.remove(heading)  # a line of this name would be drawn as one
        lines.append(Line((heading,)))
    for name in rng.sample(words, 5 - len(lines)):
        kind = rng.random()
        cents = f"{rng.randrange(0, 100, 5):02d}"
        price = f"{rng.randint(10, 39) if kind > 0.7 else rng.randint(1, 9)}.{cents}"
        count = str(rng.randint(1, 99))
        lines.append(Line((name,), "" if kind < 0.1 else count if kind < 0.3 else price))
    return lines


def sample_card(rng: random.Random, crowded: bool = False) -> Card:
    """A receipt or a label; when `crowded`, five lines that make no sense but are full."""
    form = rng.choice(("receipt", "label"))
    if crowded:
        lines = _crowded_lines(rng)
    else:
        lines = _receipt_lines(rng) if form == "receipt" else _label_lines(rng)
    return Card(
        form,
        tuple(lines),
        paper=_noise(rng, rng.choice(((252, 250, 244), (250, 244, 224), (238, 246, 250))), 4),
        ink=_noise(rng, rng.choice(((24, 24, 28), (26, 44, 96), (96, 30, 36))), 8),
        table=_noise(rng, rng.choice(list(BACKGROUNDS.values())), 12),
        font=rng.randrange(3),
        first_row=(6 - len(lines) + rng.randint(0, 1)) // 2,
        drops=tuple(rng.uniform(-1, 1) for _ in lines),
    )


_SAMPLERS: dict[str, Callable[[random.Random, bool], Picture]] = {
    "scene": sample_scene,
    "chart": sample_chart,
    "card": sample_card,
}


def sample(kind: str, seed: str, crowded: bool = False) -> Picture:
    """The picture of `kind` ("scene", "chart", "card") that belongs to `seed`.

    A `crowded` one holds as many bars or lines as there can be, and more shapes and numbers on
    average: the vision tower learns more from each.
    """
    if kind not in _SAMPLERS:
        raise ValueError(f"unknown picture kind {kind!r}; known: {', '.join(KINDS)}")
    return _SAMPLERS[kind](random.Random(seed), crowded)
