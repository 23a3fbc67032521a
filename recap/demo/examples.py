"""Draws the example pictures of the app, each with a suggested prompt.

Seeds are `example/…`, outside training. Two pictures look like photographs and are there to show
what the model does not know.
"""

from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np
from PIL import Image, ImageFilter

from recap.demo.draw import draw_smooth
from recap.demo.facts import sample

SIDE = 504  # pixels: three times the model's resolution, crisp on a screen
PHOTO_SIDE = 336  # pixels: photographs do not compress as drawings do
PALETTE = 128  # colours of the saved PNG files, which keeps them small

# (file, kind, seed, prompt): prompts of every flavour, so that a click shows another strength.
_DRAWN = (
    ("scene-1", "scene", 26, "Describe the picture in detail."),
    ("scene-2", "scene", 29, "List the shapes as JSON."),
    ("scene-3", "scene", 35, "Tell me a little story about the picture."),
    ("scene-4", "scene", 23, "Where is everything?"),
    ("scene-5", "scene", 38, "Make a markdown table."),
    ("chart-1", "chart", 33, "Explain the chart bar by bar."),
    ("chart-2", "chart", 25, "What is the sum of all bars?"),
    ("chart-3", "chart", 30, "Which bar is the highest?"),
    ("chart-4", "chart", 39, "List the bars as JSON."),
    ("card-1", "card", 5, "Read the text."),
    ("card-2", "card", 29, "Explain the card line by line."),
    ("card-3", "card", 31, "What is the most expensive item?"),
)
_TEXT_PROMPTS = ("How does speculative decoding work?", "What is RECAP?", "What can you do?")


def _noise(rng: np.random.Generator, octaves: int, roughness: float) -> np.ndarray:
    """(SIDE, SIDE) float in about 0..1: smooth noise of several scales, like clouds."""
    total = np.zeros((SIDE, SIDE), dtype=np.float32)
    weight, weights = 1.0, 0.0
    for octave in range(octaves):
        cells = 3 * 2**octave
        grid = Image.fromarray(rng.random((cells, cells)).astype(np.float32))
        total += weight * np.asarray(grid.resize((SIDE, SIDE), Image.Resampling.BICUBIC))
        weights += weight
        weight *= roughness
    return total / weights


def _mix(low: tuple, high: tuple, share: np.ndarray) -> np.ndarray:
    share = np.clip(share, 0, 1)[..., None]
    return np.array(low, dtype=np.float32) * (1 - share) + np.array(high, dtype=np.float32) * share


def _finish(pixels: np.ndarray, rng: np.random.Generator, blur: float) -> Image.Image:
    """Film grain, a dark rim and a little blur: what makes a rendering look taken."""
    y, x = np.mgrid[-1 : 1 : SIDE * 1j, -1 : 1 : SIDE * 1j]
    pixels = pixels * (1 - 0.22 * (x**2 + y**2)[..., None])
    image = Image.fromarray(np.clip(pixels, 0, 255).astype(np.uint8))
    soft = np.asarray(image.filter(ImageFilter.GaussianBlur(blur)), dtype=np.float32)
    soft += rng.normal(0, 3.0, soft.shape[:2])[..., None]
    return Image.fromarray(np.clip(soft, 0, 255).astype(np.uint8))


def mountains(seed: int) -> Image.Image:
    """An evening landscape: sky with clouds, three ranges in haze, a lake."""
    rng = np.random.default_rng(seed)
    y, x = np.mgrid[0 : 1 : SIDE * 1j, 0 : 1 : SIDE * 1j]
    pixels = _mix((72, 98, 150), (250, 190, 132), y / 0.62)
    clouds = np.clip((_noise(rng, 5, 0.55) - 0.52) * 4, 0, 1) * np.clip(1.2 - 1.6 * y, 0, 1)
    pixels = pixels * (1 - 0.5 * clouds[..., None]) + 0.5 * clouds[..., None] * 245
    sun = np.exp(-((x - 0.68) ** 2 + (y - 0.46) ** 2) / 0.004)
    pixels += sun[..., None] * np.array((90, 70, 30), dtype=np.float32)
    for index, (base, height, colour) in enumerate(
        ((0.52, 0.20, (126, 122, 150)), (0.60, 0.17, (84, 88, 112)), (0.68, 0.13, (44, 54, 62)))
    ):
        ridge = _noise(np.random.default_rng(seed + index + 1), 7, 0.55)[SIDE // 2]
        line = base - height * (ridge - 0.35)
        inside = y > line[None, :]
        texture = 0.86 + 0.28 * _noise(rng, 7, 0.8)
        shade = np.array(colour, dtype=np.float32) * texture[..., None]
        pixels = np.where(inside[..., None], shade, pixels)
    lake = y > 0.76
    mirrored = pixels[::-1]
    ripple = (np.sin(y * 420 + 9 * _noise(rng, 4, 0.6)) * 6)[..., None]
    pixels = np.where(lake[..., None], mirrored * 0.72 + ripple + 8, pixels)
    return _finish(pixels, rng, 0.9)


def fruit_bowl(seed: int) -> Image.Image:
    """Shaded round fruit on a wooden table, with soft shadows."""
    rng = np.random.default_rng(seed)
    y, x = np.mgrid[0 : 1 : SIDE * 1j, 0 : 1 : SIDE * 1j]
    grain = np.sin((y * 60 + 5 * _noise(rng, 5, 0.6)) * math.pi) * 0.5 + 0.5
    wood = _mix((112, 74, 44), (150, 104, 66), grain)
    wall = _mix((176, 170, 160), (128, 124, 120), x * 0.7 + 0.3 * _noise(rng, 3, 0.5))
    pixels = np.where((y > 0.52)[..., None], wood, wall)
    fruits = (
        (0.36, 0.60, 0.150, (196, 60, 46)),
        (0.62, 0.57, 0.165, (226, 146, 40)),
        (0.49, 0.70, 0.140, (140, 164, 60)),
        (0.75, 0.73, 0.110, (120, 52, 84)),
        (0.24, 0.75, 0.105, (222, 190, 70)),
    )
    for cx, cy, radius, colour in fruits:
        shadow = np.exp(
            -(
                ((x - cx - 0.05) / (1.2 * radius)) ** 2
                + ((y - cy - 0.9 * radius) / (0.4 * radius)) ** 2
            )
        )
        pixels = pixels * (1 - 0.55 * shadow[..., None])
        dx, dy = (x - cx) / radius, (y - cy) / radius
        distance = np.sqrt(dx**2 + dy**2)
        height = np.sqrt(np.clip(1 - distance**2, 0, 1))
        light = np.clip(-0.5 * dx - 0.6 * dy + 0.62 * height, 0, 1)
        skin = np.array(colour, dtype=np.float32) * (0.30 + 0.85 * light)[..., None]
        skin *= (0.90 + 0.20 * _noise(rng, 6, 0.75))[..., None]
        skin += 150 * np.exp(-((dx + 0.4) ** 2 + (dy + 0.45) ** 2) / 0.02)[..., None]
        edge = np.clip((1 - distance) * 60, 0, 1)[..., None]
        pixels = pixels * (1 - edge) + skin * edge
    return _finish(pixels, rng, 1.1)


def _save(image: Image.Image, path: Path, colours: int = PALETTE) -> None:
    image.quantize(colours, dither=Image.Dither.NONE).save(path, optimize=True)


def write_examples(output: Path) -> list[Path]:
    """Draw everything into `output`, with `examples.json`; returns the paths written."""
    output.mkdir(parents=True, exist_ok=True)
    entries: list[dict[str, str | None]] = []
    paths: list[Path] = []
    for name, kind, seed, prompt in _DRAWN:
        path = output / f"{name}.png"
        _save(draw_smooth(sample(kind, f"example/{kind}/{seed}")), path)
        entries.append({"image": path.name, "prompt": prompt, "kind": kind})
        paths.append(path)
    photos = (
        ("photo-1", mountains(7), "Describe the picture."),
        ("photo-2", fruit_bowl(5), "What do you see?"),
    )
    for name, image, prompt in photos:
        path = output / f"{name}.png"
        image.resize((PHOTO_SIDE, PHOTO_SIDE), Image.Resampling.LANCZOS).save(path, optimize=True)
        entries.append({"image": path.name, "prompt": prompt, "kind": "photo"})
        paths.append(path)
    entries += [{"image": None, "prompt": prompt, "kind": "text"} for prompt in _TEXT_PROMPTS]
    listing = output / "examples.json"
    listing.write_text(json.dumps(entries, indent=2) + "\n")
    return [*paths, listing]
