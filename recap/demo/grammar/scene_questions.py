"""Questions about scenes that pick out, compare or deny: which, what color, larger, is there."""

from __future__ import annotations

import random

from recap.demo.facts import Scene, Thing
from recap.demo.grammar.phrases import NUMBERS, a, cap, is_are, join
from recap.demo.grammar.registry import request
from recap.demo.grammar.scenes import (
    COLUMNS,
    ROWS,
    absent,
    colours_of,
    full,
    no_such,
    short,
    unique,
)
from recap.demo.words import COLOURS, SHAPES, SIZES


@request(
    "scene",
    "which",
    (
        "Which shapes are {what}?",
        "Name the {what} shapes.",
        "Which of the shapes are {what}?",
        "Show me everything that is {what}.",
    ),
)
def _which(scene: Scene, style: int, rng: random.Random):
    near = rng.choice(scene.objects)
    what = rng.choice((near.size, near.colour, rng.choice(list(SIZES)), rng.choice(list(COLOURS))))
    hits = [t for t in scene.objects if what in (t.size, t.colour)]
    named = [f"{t.colour if what == t.size else t.size} {t.shape} at the {t.place}" for t in hits]
    if not hits:
        return {"what": what}, f"None of the shapes {('are', 'is')[style % 2]} {what}."
    listed = join(f"the {name}" for name in named)
    return {"what": what}, (
        f"{cap(listed)} {is_are(len(hits))} {what}.",
        f"{cap(NUMBERS[len(hits)])}: {listed}.",
        f"{cap(listed)}.",
        f"What is {what}: {listed}.",
    )[style]


@request(
    "scene",
    "row",
    (
        "Which shapes are in the {row} row?",
        "What is in the {row} row?",
        "Read the {row} row from left to right.",
        "List the {row} row.",
    ),
    weight=1.5,
)
def _row(scene: Scene, style: int, rng: random.Random):
    row = rng.randrange(3)
    hits = [t for t in scene.objects if t.row == row]
    name = ROWS[row]
    if not hits:
        return {"row": name}, f"The {name} row is empty."
    listed = join(a(short(t)) for t in hits)
    sided = join(f"{a(short(t))} ({COLUMNS[t.column]})" for t in hits)
    return {"row": name}, (
        f"In the {name} row {is_are(len(hits))} {listed}.",
        f"The {name} row has {sided}.",
        f"From left to right: {listed}.",
        f"{cap(sided)}.",
    )[style]


@request(
    "scene",
    "color",
    (
        "What color is the {shape}?",
        "Which color does the {shape} have?",
        "What is the colour of the {shape}?",
        "Name the color of the {shape}.",
    ),
)
def _color(scene: Scene, style: int, rng: random.Random):
    shapes = [t.shape for t in scene.objects]
    single = [t for t in scene.objects if shapes.count(t.shape) == 1]
    if rng.random() < 0.2 or not single:
        shape = rng.choice([s for s in SHAPES if s not in shapes])
        return {"shape": shape}, f"There is no {shape} in this picture."
    thing = rng.choice(single)
    return {"shape": thing.shape}, (
        f"The {thing.shape} is {thing.colour}.",
        f"It has the color {thing.colour}.",
        f"{cap(thing.colour)}: the {thing.shape} at the {thing.place} is {thing.colour}.",
        f"The color of the {thing.shape} is {thing.colour}.",
    )[style]


@request(
    "scene",
    "size",
    (
        "How big is the {what}?",
        "What size is the {what}?",
        "Is the {what} small, medium or large?",
        "Tell me the size of the {what}.",
    ),
)
def _size(scene: Scene, style: int, rng: random.Random):
    if not unique(scene):
        return None
    thing = rng.choice(unique(scene))
    what = short(thing)
    return {"what": what}, (
        f"The {what} is {thing.size}.",
        f"Its size is {thing.size}.",
        f"It is {thing.size}.",
        f"The size of the {what} is {thing.size}.",
    )[style]


def _relations(one: Thing, two: Thing) -> list[tuple[str, bool, bool]]:
    """(relation, whether it holds, whether it is about size) for one and two."""
    order = list(SIZES)
    bigger = order.index(one.size) - order.index(two.size)
    return [
        ("left of", one.column < two.column, False),
        ("right of", one.column > two.column, False),
        ("above", one.row < two.row, False),
        ("below", one.row > two.row, False),
        ("larger than", bigger > 0, True),
        ("smaller than", bigger < 0, True),
    ]


@request(
    "scene",
    "compare",
    (
        "Is the {one} {relation} the {two}?",
        "Would you say that the {one} is {relation} the {two}?",
        "Compare: is the {one} {relation} the {two}?",
        "True or false: the {one} is {relation} the {two}.",
    ),
    weight=1.5,
)
def _compare(scene: Scene, style: int, rng: random.Random):
    things = unique(scene)
    if len(things) < 2:
        return None
    one, two = rng.sample(things, 2)
    relation, holds, about_size = rng.choice(_relations(one, two))
    slots = {"one": short(one), "two": short(two), "relation": relation}
    facts = (
        f"the {short(one)} is {one.size} and the {short(two)} is {two.size}"
        if about_size
        else f"the {short(one)} is at the {one.place} and the {short(two)} at the {two.place}"
    )
    verdict = ("No", "Yes")[holds]
    truth = ("False", "True")[holds]
    return slots, (
        f"{verdict}, {facts}.",
        f"{verdict}. Look: {facts}.",
        f"{cap(facts)}, so {('no', 'yes')[holds]}.",
        f"{truth}: {facts}.",
    )[style]


@request(
    "scene",
    "larger",
    (
        "Which is larger, the {one} or the {two}?",
        "What is bigger: the {one} or the {two}?",
        "Compare the sizes of the {one} and the {two}.",
        "Compare the {one} with the {two}.",
    ),
)
def _larger(scene: Scene, style: int, rng: random.Random):
    things = unique(scene)
    if len(things) < 2:
        return None
    one, two = rng.sample(things, 2)
    slots = {"one": short(one), "two": short(two)}
    if style == 3:
        return slots, (
            f"The {short(one)} is {one.size} and at the {one.place};"
            f" the {short(two)} is {two.size} and at the {two.place}."
        )
    order = list(SIZES)
    delta = order.index(one.size) - order.index(two.size)
    if delta == 0:
        return slots, f"Neither: both are {one.size}."
    big, little = (one, two) if delta > 0 else (two, one)
    return slots, (
        f"The {short(big)} is larger: it is {big.size}, and the {short(little)} is {little.size}.",
        f"The {short(big)}, which is {big.size}.",
        f"The {short(one)} is {one.size} and the {short(two)} is {two.size}.",
    )[style]


@request(
    "scene",
    "yesno",
    (
        "Is there {what}?",
        "Do you see {what}?",
        "Is {what} in the picture?",
        "Can you find {what}?",
        "Does the picture show {what}?",
    ),
    weight=1.5,
)
def _yesno(scene: Scene, style: int, rng: random.Random):
    if rng.random() < 0.5:
        colour, shape = absent(scene, rng)
        lower = no_such(scene, colour, shape)
        answer = f"No. {lower}" if style % 2 else f"No, {lower[0].lower()}{lower[1:]}"
        return {"what": a(f"{colour} {shape}")}, answer
    thing = rng.choice(scene.objects)
    first = next(t for t in scene.objects if short(t) == short(thing))
    what = short(first)
    return {"what": a(what)}, (
        f"Yes, there is {a(what)} at the {first.place}.",
        f"Yes, I see {a(what)}. It is at the {first.place}.",
        f"Yes, at the {first.place}.",
        f"Yes, I find it at the {first.place}; it is {first.size}.",
        f"Yes, it shows {a(full(first))}.",
    )[style]


@request(
    "scene",
    "colors",
    (
        "Which colors are there?",
        "What colors do you see?",
        "Name all the colors.",
        "List the colors of the shapes.",
    ),
)
def _colors(scene: Scene, style: int, rng: random.Random):
    names = colours_of(scene)
    return {}, (
        f"The colors are {join(names)}." if len(names) > 1 else f"The only color is {names[0]}.",
        f"I see {join(names)}.",
        f"{cap(join(names))}, on a {scene.background} background.",
        f"{cap(', '.join(names))}.",
    )[style]


@request(
    "scene",
    "background",
    (
        "What color is the background?",
        "What is the background like?",
        "Describe the background.",
        "Which background does the picture have?",
    ),
    weight=0.5,
)
def _background(scene: Scene, style: int, rng: random.Random):
    return {}, (
        f"The background is {scene.background}.",
        f"It is a plain {scene.background} color.",
        f"The background is plain and {scene.background}, with a thin frame.",
        f"A {scene.background} background.",
    )[style]
