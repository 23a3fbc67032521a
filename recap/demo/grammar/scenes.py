"""Requests about scenes: what the shapes are, where they are, and what they are not."""

from __future__ import annotations

import json
import random

from recap.demo.facts import Scene, Thing
from recap.demo.grammar.phrases import NUMBERS, a, cap, counted, is_are, join, plural
from recap.demo.grammar.registry import request
from recap.demo.words import COLOURS, PLACES, SHAPES

ROWS = ("top", "middle", "bottom")
COLUMNS = ("left", "center", "right")


def full(thing: Thing) -> str:
    """'small red circle'."""
    return f"{thing.size} {thing.colour} {thing.shape}"


def short(thing: Thing) -> str:
    """'red circle'."""
    return f"{thing.colour} {thing.shape}"


def unique(scene: Scene) -> list[Thing]:
    """The shapes that their colour and shape name alone tell apart."""
    names = [short(t) for t in scene.objects]
    return [t for t in scene.objects if names.count(short(t)) == 1]


def absent(scene: Scene, rng: random.Random) -> tuple[str, str]:
    """A (colour, shape) that is not there, half of the time with a colour or shape that is."""
    there = {(t.colour, t.shape) for t in scene.objects}
    near = rng.choice(scene.objects)
    while True:
        pair = (rng.choice(list(COLOURS)), rng.choice(SHAPES))
        draw = rng.random()
        if draw < 0.25:
            pair = (near.colour, pair[1])
        elif draw < 0.5:
            pair = (pair[0], near.shape)
        if pair not in there:
            return pair


def no_such(scene: Scene, colour: str, shape: str) -> str:
    """Says that it is not there, and names the first shape that comes near."""
    text = f"There is no {colour} {shape} in this picture"
    same_shape = [t for t in scene.objects if t.shape == shape]
    same_colour = [t for t in scene.objects if t.colour == colour]
    if same_shape:
        first = same_shape[0]
        return f"{text}, but there is {a(first.colour)} {shape} at the {first.place}."
    if same_colour:
        first = same_colour[0]
        return f"{text}; what is {colour} is a {first.shape} at the {first.place}."
    return f"{text}."


@request(
    "scene",
    "describe",
    (
        "Describe the picture.",
        "What do you see?",
        "What is in the picture?",
        "Describe this image briefly.",
        "Write a short caption.",
        "Sum up the picture in one sentence.",
    ),
    weight=2.0,
)
def _describe(scene: Scene, style: int, rng: random.Random):
    things, back = scene.objects, scene.background
    listed = join(a(full(t)) for t in things)
    if style == 0:
        answer = (
            f"The picture shows {counted(len(things), 'shape')} on a {back} background: {listed}."
        )
    elif style == 1:
        answer = f"I see {listed} on {back}."
    elif style == 2:
        placed = join(f"{a(short(t))} at the {t.place}" for t in things)
        answer = f"There {is_are(len(things))} {placed}."
    elif style == 3:
        answer = f"{cap(listed)}, drawn on a {back} ground."
    elif style == 4:
        names = join(short(t) for t in things)
        answer = f"{cap(counted(len(things), 'shape'))} on {back}: {names}."
    else:
        answer = f"A {back} picture with {listed}."
    return {}, answer


def _sentence(thing: Thing, pattern: int) -> str:
    place = thing.place
    return (
        f"At the {place} there is {a(full(thing))} with a thin dark edge.",
        f"{cap(a(thing.size))} {thing.shape} in {thing.colour} sits at the {place}, with some free"
        " space around it.",
        f"The {place} holds {a(thing.colour)} {thing.shape} of {thing.size} size, drawn in one"
        " plain color.",
        f"At the {place} you find {a(thing.shape)}; it is {thing.size} and {thing.colour}, and it"
        " stands alone there.",
        f"There is {a(thing.colour)} {thing.shape}; its size is {thing.size}, and its place is the"
        f" {place}.",
    )[pattern]


def _row_summary(scene: Scene, style: int) -> str:
    per_row = [sum(t.row == r for t in scene.objects) for r in range(3)]
    if style % 2:
        clauses = [
            f"{NUMBERS[n] if n else 'none'} in the {name} row"
            for name, n in zip(ROWS, per_row, strict=True)
        ]
        return f"Counted by rows there are {join(clauses)}."
    clauses = [
        f"the {name} row has {counted(n, 'shape')}" if n else f"the {name} row is empty"
        for name, n in zip(ROWS, per_row, strict=True)
    ]
    return f"{cap(join(clauses))}."


@request(
    "scene",
    "detail",
    (
        "Describe the picture in detail.",
        "Tell me everything about this picture.",
        "Give a detailed description.",
        "Explain what is where in the picture.",
        "Walk me through the picture.",
        "Describe every shape in detail.",
    ),
    weight=3.5,
)
def _detail(scene: Scene, style: int, rng: random.Random):
    things, back = scene.objects, scene.background
    n = len(things)
    shapes = counted(n, "shape")
    opening = (
        f"This picture shows {shapes} on a {back} background.",
        f"The background is {back}, and on it {is_are(n)} {shapes}.",
        f"We look at {shapes} before a {back} background.",
        f"On {back} ground I find {shapes}, which I name from left to right and top to bottom.",
        f"Let us begin at the top. There {is_are(n)} {shapes} on {back} in all.",
        f"{cap(shapes)} {is_are(n)} drawn here, on a {back} background.",
    )[style]
    # One wording for an answer, as people write, that turns for the bottom row. Which one it is
    # depends on the phrasing, so a token continues differently in another answer.
    body = [_sentence(thing, (style + (thing.row == 2)) % 5) for thing in things]
    empty = 9 - n
    closing = (
        f"The other {NUMBERS[empty]} places are empty.",
        f"That leaves {counted(empty, 'place')} empty.",
        f"Nothing is drawn in the other {NUMBERS[empty]} places.",
        f"The colors used are {join(colours_of(scene))}.",
        f"Its colors are {join(colours_of(scene))}.",
        f"All other places, {NUMBERS[empty]} of nine, stay empty.",
    )[style]
    if n <= 2:
        closing += (
            " It is a quiet picture: the drawing is plain, the edges are thin and dark,"
            " and there is much free space around."
        )
    return {}, " ".join([opening, *body, _row_summary(scene, style), closing])


def colours_of(scene: Scene) -> list[str]:
    return list(dict.fromkeys(t.colour for t in scene.objects))


@request(
    "scene",
    "count",
    (
        "How many shapes are there?",
        "Count the shapes.",
        "How many things do you see?",
        "What is the number of shapes in the picture?",
        "How many objects are in this image?",
    ),
)
def _count(scene: Scene, style: int, rng: random.Random):
    n = len(scene.objects)
    names = join(a(short(t)) for t in scene.objects)
    return {}, (
        f"There {is_are(n)} {counted(n, 'shape')}.",
        f"I count {NUMBERS[n]}: {names}.",
        f"{cap(NUMBERS[n])}: {names}.",
        f"The number of shapes is {n}.",
        f"The image has {counted(n, 'object')} in it, {names}.",
    )[style]


@request(
    "scene",
    "count_of",
    (
        "How many {what} are there?",
        "Count the {what}.",
        "How many {what} do you see?",
        "Tell me the number of {what}.",
    ),
)
def _count_of(scene: Scene, style: int, rng: random.Random):
    by_shape = rng.random() < 0.5
    seen = rng.random() < 0.7
    if by_shape:
        word = rng.choice(scene.objects).shape if seen else rng.choice(SHAPES)
        hits = [t for t in scene.objects if t.shape == word]
        what, what_one = plural(word, 2), word
        named = join(f"{a(t.colour)} one at the {t.place}" for t in hits)
    else:
        word = rng.choice(scene.objects).colour if seen else rng.choice(list(COLOURS))
        hits = [t for t in scene.objects if t.colour == word]
        what, what_one = f"{word} shapes", f"{word} shape"
        named = join(f"{a(t.shape)} at the {t.place}" for t in hits)
    n = len(hits)
    if not n:
        return {"what": what}, (
            f"There are no {what} in this picture.",
            f"I count none: there are no {what} here.",
            f"I see no {what}.",
            f"None of the shapes fit: there are no {what}.",
        )[style]
    return {"what": what}, (
        f"There {is_are(n)} {NUMBERS[n]} {what_one if n == 1 else what}: {named}.",
        f"I count {NUMBERS[n]}: {named}.",
        f"I see {NUMBERS[n]} {what_one if n == 1 else what}, {named}.",
        f"The number of {what} is {n}.",
    )[style]


@request(
    "scene",
    "where",
    (
        "Where is the {what}?",
        "Where do you see the {what}?",
        "In which place is the {what}?",
        "Find the {what}.",
        "Locate the {what}.",
        "What is the position of the {what}?",
    ),
    weight=2.5,
)
def _where(scene: Scene, style: int, rng: random.Random):
    if rng.random() < 0.2 or not unique(scene):
        colour, shape = absent(scene, rng)
        return {"what": f"{colour} {shape}"}, no_such(scene, colour, shape)
    thing = rng.choice(unique(scene))
    what, place = short(thing), thing.place
    row, column = ROWS[thing.row], COLUMNS[thing.column]
    return {"what": what}, (
        f"The {what} is at the {place}.",
        f"I see it at the {place}.",
        f"It is in the {row} row, {column} column: the {place}.",
        f"Found it: the {what} sits at the {place}, and it is {thing.size}.",
        f"The {thing.size} {what} is at the {place}.",
        f"Its position is the {place}.",
    )[style]


@request(
    "scene",
    "at",
    (
        "What is at the {place}?",
        "What do you see at the {place}?",
        "Which shape is at the {place}?",
        "Is there something at the {place}?",
        "Tell me about the {place}.",
    ),
    weight=2.0,
)
def _at(scene: Scene, style: int, rng: random.Random):
    place = rng.choice(scene.objects).place if rng.random() < 0.75 else rng.choice(PLACES)
    thing = next((t for t in scene.objects if t.place == place), None)
    if thing is None:
        return {"place": place}, (
            f"Nothing is at the {place}.",
            f"I see nothing at the {place}.",
            f"No shape is there: the {place} is empty.",
            f"No, the {place} is empty.",
            f"The {place} is empty.",
        )[style]
    return {"place": place}, (
        f"{cap(a(full(thing)))} is at the {place}.",
        f"I see {a(full(thing))} there.",
        f"It is {a(thing.shape)}, {thing.colour} and {thing.size}.",
        f"Yes, {a(full(thing))}.",
        f"The {place} holds {a(thing.colour)} {thing.shape}. Its size is {thing.size}.",
    )[style]


@request(
    "scene",
    "positions",
    (
        "Where is everything?",
        "List the positions of all shapes.",
        "Give me a bullet list with places.",
        "Note every shape with its place.",
    ),
    weight=2.0,
)
def _positions(scene: Scene, style: int, rng: random.Random):
    if style in (0, 2):
        return {}, "\n".join(f"- {short(t)}: {t.place}" for t in scene.objects)
    if style == 1:
        return {}, "\n".join(f"{i}. {t.place}: {full(t)}" for i, t in enumerate(scene.objects, 1))
    return {}, "; ".join(f"{t.place}, {full(t)}" for t in scene.objects) + "."


@request(
    "scene",
    "json",
    (
        "List the shapes as JSON.",
        "Give me JSON.",
        "Describe the picture as JSON.",
        "Return the scene as a JSON object.",
        "Output JSON with shape, color, size and place.",
    ),
    weight=3.5,
)
def _json(scene: Scene, style: int, rng: random.Random):
    if style in (0, 1, 4):
        rows = [
            {"shape": t.shape, "color": t.colour, "size": t.size, "place": t.place}
            for t in scene.objects
        ]
        return {}, json.dumps(rows)
    rows = [
        {"place": t.place, "size": t.size, "color": t.colour, "shape": t.shape}
        for t in scene.objects
    ]
    return {}, json.dumps({"background": scene.background, "count": len(rows), "shapes": rows})


@request(
    "scene",
    "table",
    (
        "Make a markdown table.",
        "List the shapes in a table.",
        "Show the picture as a markdown table.",
        "Put the shapes into a table.",
    ),
    weight=2.0,
)
def _table(scene: Scene, style: int, rng: random.Random):
    if style % 2:
        head = ["| place | shape | color | size |", "|---|---|---|---|"]
        rows = [f"| {t.place} | {t.shape} | {t.colour} | {t.size} |" for t in scene.objects]
    else:
        head = ["| shape | color | size | place |", "|---|---|---|---|"]
        rows = [f"| {t.shape} | {t.colour} | {t.size} | {t.place} |" for t in scene.objects]
    return {}, "\n".join(head + rows)
