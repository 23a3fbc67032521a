"""Draws the facts of a picture with Pillow, crisp at any scale.

Coordinates are pixels of a 168x168 picture (six rows of 28 pixels: one row of merged vision
tokens each); `draw` multiplies them by `scale`. Text uses Pillow's bundled Aileron and two
DejaVu fonts that lie in `recap/demo/fonts/`.

    >>> draw(sample("chart", "example/chart/0"), scale=2).size
    (336, 336)
"""

from __future__ import annotations

import functools
import math
from pathlib import Path

import numpy as np
from PIL import Image, ImageDraw, ImageFont

from recap.demo.facts import Card, Chart, Picture, Scene, Thing
from recap.demo.words import SIZES

SIDE = 168  # pixels: 12x12 patches of 14, 6x6 merged tokens of 28
ROW = 28  # pixels: one row of merged tokens
BAR_LEFT, BAR_UNIT, BAR_THICK = 60.0, 3.8, 17.0  # chart geometry, pixels of 168
CARD_LEFT, CARD_RIGHT = 13.0, 155.0  # where the text of a card starts and where numbers end
CARD_SIZE, SPACE = 16.5, 7.5  # height of the letters of a card and width of its spaces

_FONT_FILES = (None, "DejaVuSansMono-Bold.ttf", "DejaVuSerif-Bold.ttf")
# The DejaVu faces run wide; this keeps the longest line inside the card.
_FONT_FACTOR = (1.08, 0.92, 0.88)


@functools.lru_cache(maxsize=256)
def _font(index: int, pixels: int) -> ImageFont.FreeTypeFont:
    name = _FONT_FILES[index]
    if name is None:
        return ImageFont.load_default(size=pixels)  # type: ignore[return-value]
    return ImageFont.truetype(str(Path(__file__).parent / "fonts" / name), pixels)


def font_for(index: int, size: float, scale: int) -> ImageFont.FreeTypeFont:
    """The face `index` (0..2) at `size` pixels of 168, times `scale`."""
    return _font(index, max(6, round(size * _FONT_FACTOR[index] * scale)))


def _polygon(cx: float, cy: float, r: float, angles: list[float], radii: list[float]) -> list:
    return [
        (cx + r * k * math.sin(math.radians(a)), cy - r * k * math.cos(math.radians(a)))
        for a, k in zip(angles, radii, strict=True)
    ]


def _outline(shape: str, cx: float, cy: float, r: float) -> list[tuple[float, float]]:
    """The closed outline of `shape` with radius `r` around (cx, cy)."""
    if shape == "square":
        k = 0.86 * r
        return [(cx - k, cy - k), (cx + k, cy - k), (cx + k, cy + k), (cx - k, cy + k)]
    if shape == "triangle":
        return [(cx, cy - r), (cx + r, cy + 0.8 * r), (cx - r, cy + 0.8 * r)]
    if shape == "diamond":
        return [(cx, cy - r), (cx + 0.72 * r, cy), (cx, cy + r), (cx - 0.72 * r, cy)]
    if shape == "star":
        return _polygon(cx, cy, 1.08 * r, [36 * i for i in range(10)], [1, 0.45] * 5)
    if shape == "hexagon":
        return _polygon(cx, cy, r, [60 * i + 30 for i in range(6)], [1] * 6)
    if shape == "cross":
        a, b = 0.34 * r, 0.95 * r
        corners = [(a, a), (a, b), (-a, b), (-a, a), (-b, a), (-b, -a)]
        corners += [(-a, -a), (-a, -b), (a, -b), (a, -a), (b, -a), (b, a)]
        return [(cx + x, cy + y) for x, y in corners]
    if shape == "arrow":
        corners = [(-1, -0.32), (0.1, -0.32), (0.1, -0.85), (1, 0), (0.1, 0.85), (0.1, 0.32)]
        return [(cx + x * r, cy + y * r) for x, y in [*corners, (-1, 0.32)]]
    if shape == "heart":
        points = []
        for i in range(48):
            t = 2 * math.pi * i / 48
            x = 16 * math.sin(t) ** 3
            y = 13 * math.cos(t) - 5 * math.cos(2 * t) - 2 * math.cos(3 * t) - math.cos(4 * t)
            points.append((cx + r * x / 16, cy - r * (y + 2.5) / 15.5))
        return points
    if shape == "drop":
        top = [(cx, cy - r)]
        arc = [math.radians(a) for a in range(-40, 221, 10)]
        k = 0.66 * r
        return top + [(cx + k * math.cos(a), cy + 0.34 * r + k * math.sin(a)) for a in arc]
    if shape == "moon":
        outer = [math.radians(a) for a in range(40, 321, 10)]
        inner = [math.radians(a) for a in range(310, 49, -10)]
        edge = [(cx + r * (math.cos(a) + 0.2), cy + r * math.sin(a)) for a in outer]
        bite = [(cx + r * (0.62 + 0.78 * math.cos(a)), cy + r * 0.86 * math.sin(a)) for a in inner]
        return edge + bite
    raise ValueError(f"unknown shape {shape!r}")


def _draw_thing(canvas: ImageDraw.ImageDraw, thing: Thing, back: tuple, scale: int) -> None:
    cx = (56 * thing.column + 28 + thing.shift[0]) * scale
    cy = (56 * thing.row + 28 + thing.shift[1]) * scale
    r = SIZES[thing.size] / 2 * scale
    edge = tuple(int(c * 0.55) for c in thing.rgb)
    width = max(1, round(0.9 * scale))
    if thing.shape in ("circle", "ring"):
        box = (cx - r, cy - r, cx + r, cy + r)
        canvas.ellipse(box, fill=thing.rgb, outline=edge, width=width)
        if thing.shape == "ring":
            k = 0.5 * r
            canvas.ellipse((cx - k, cy - k, cx + k, cy + k), fill=back, outline=edge, width=width)
        return
    points = _outline(thing.shape, cx, cy, r)
    canvas.polygon(points, fill=thing.rgb)
    canvas.line([*points, points[0], points[1]], fill=edge, width=width, joint="curve")


def _draw_scene(canvas: ImageDraw.ImageDraw, scene: Scene, scale: int) -> None:
    # A thin frame: the outermost patches look like the edge, which tells the tower where it is.
    side, edge = SIDE * scale, tuple(int(c * 0.8) for c in scene.rgb)
    canvas.rectangle((0, 0, side - 1, side - 1), outline=edge, width=2 * scale)
    for thing in scene.objects:
        _draw_thing(canvas, thing, scene.rgb, scale)


def _text(
    canvas: ImageDraw.ImageDraw,
    at: tuple[float, float],
    text: str,
    font: ImageFont.FreeTypeFont,
    fill: tuple,
    scale: int,
    anchor: str = "lm",
) -> None:
    canvas.text((at[0] * scale, at[1] * scale), text, font=font, fill=fill, anchor=anchor)


def _draw_chart(canvas: ImageDraw.ImageDraw, chart: Chart, scale: int) -> None:
    ink = (40, 42, 48)
    title = font_for(chart.font, 16.5, scale)
    label = font_for(chart.font, 14.5, scale)
    _text(canvas, (SIDE / 2, 15), chart.title, title, ink, scale, "mm")
    top = ROW * chart.first_row + 2 + chart.drop
    bottom = top + ROW * len(chart.bars) - 4
    for value in (5, 10, 15, 20):
        x = (BAR_LEFT + BAR_UNIT * value) * scale
        canvas.line((x, top * scale, x, bottom * scale), fill=(222, 224, 228), width=scale)
    for index, bar in enumerate(chart.bars):
        y = ROW * (chart.first_row + index) + 14 + chart.drop
        _text(canvas, (BAR_LEFT - 4, y), bar.label, label, ink, scale, "rm")
        right = BAR_LEFT + BAR_UNIT * bar.value
        box = (BAR_LEFT, y - BAR_THICK / 2, right, y + BAR_THICK / 2)
        edge = tuple(int(c * 0.7) for c in bar.rgb)
        canvas.rectangle([v * scale for v in box], fill=bar.rgb, outline=edge, width=scale)
        _text(canvas, (right + 4, y), str(bar.value), title, ink, scale)
    x = BAR_LEFT * scale
    canvas.line((x, top * scale, x, bottom * scale), fill=ink, width=max(1, scale))


def line_spans(card: Card, index: int, scale: int) -> list[tuple[str, float, float]]:
    """Where the words of line `index` stand: (word, left, right) in pixels of 168."""
    line = card.lines[index]
    font = font_for(card.font, CARD_SIZE, scale)
    widths = [font.getlength(word) / scale for word in line.words]
    total = sum(widths) + SPACE * (len(widths) - 1)
    # A heading stands in the middle, items at the left, all numbers at the right margin: where a
    # word or digit can stand varies little, which is what makes it readable at 168 pixels.
    left = (SIDE - total) / 2 if line.name == card.header else CARD_LEFT
    spans = []
    for word, width in zip(line.words, widths, strict=True):
        spans.append((word, left, left + width))
        left += width + SPACE
    if line.number:
        width = font.getlength(line.number) / scale
        spans.append((line.number, CARD_RIGHT - width, CARD_RIGHT))
    return spans


def line_middle(card: Card, index: int) -> float:
    """The height of the middle of line `index`, in pixels of 168."""
    return ROW * (card.first_row + index) + 14 + card.drops[index]


def _draw_card(canvas: ImageDraw.ImageDraw, card: Card, scale: int) -> None:
    font = font_for(card.font, CARD_SIZE, scale)
    edge = tuple(int(c * 0.75) for c in card.table)
    box = (5, 3, SIDE - 5, SIDE - 3)
    canvas.rounded_rectangle(
        [v * scale for v in box], radius=5 * scale, fill=card.paper, outline=edge, width=scale
    )
    for index, _ in enumerate(card.lines):
        for word, left, _right in line_spans(card, index, scale):
            _text(canvas, (left, line_middle(card, index)), word, font, card.ink, scale)


def draw(picture: Picture, scale: int = 2) -> Image.Image:
    """The picture as an RGB image of `168 * scale` pixels a side."""
    side = SIDE * scale
    ground = picture.table if isinstance(picture, Card) else picture.rgb
    image = Image.new("RGB", (side, side), ground)
    canvas = ImageDraw.Draw(image)
    if isinstance(picture, Scene):
        _draw_scene(canvas, picture, scale)
    elif isinstance(picture, Chart):
        _draw_chart(canvas, picture, scale)
    else:
        _draw_card(canvas, picture, scale)
    return image


def draw_smooth(picture: Picture, scale: int = 3) -> Image.Image:
    """As `draw`, at twice the scale and halved: smooth edges, for pictures that people look at."""
    return draw(picture, scale * 2).reduce(2)


def to_pixels(image: Image.Image) -> np.ndarray:
    """(3, 168, 168) uint8, resized as the exported image processor does (bicubic)."""
    small = image.resize((SIDE, SIDE), Image.Resampling.BICUBIC)
    return np.asarray(small).transpose(2, 0, 1).copy()
