"""Requests about scenes: what the shapes are, where they are, and what they are not."""

from __future__ import annotations

import json
import random

from recap.demo.facts import Scene, Thing
from recap.demo.grammar.phrases import NUMBERS, a, cap, counted, is_are, join, plural
from recap.demo.grammar.registry import request
from recap.demo.words import BACKGROUNDS, COLOURS, PLACES, SHAPES, SIZES

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


def _absent(scene: Scene, rng: random.Random) -> tuple[str, str]:
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
        f"At the {place} there is {a(full(thing))}.",
        f"{cap(a(thing.size))} {thing.shape} in {thing.colour} sits at the {place}.",
        f"The {place} holds {a(thing.colour)} {thing.shape} of {thing.size} size.",
        f"At the {place} you find a {thing.shape}; it is {thing.size} and {thing.colour}.".replace(
            "a arrow", "an arrow"
        ),
        f"Then comes {a(thing.colour)} {thing.shape}, {thing.size}, at the {place}.",
    )[pattern].replace("find a arrow", "find an arrow")


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
    # The pattern turns with the phrasing and with the row, so the wording follows the picture.
    body = []
    for index, thing in enumerate(things):
        pattern = (style + index + thing.row) % 5
        body.append(_sentence(thing, 0 if pattern == 4 and index == 0 else pattern))
    empty = 9 - n
    closing = (
        f"The other {NUMBERS[empty]} places are empty.",
        f"That leaves {counted(empty, 'place')} empty.",
        f"Nothing is drawn in the other {NUMBERS[empty]} places.",
        f"The colors used are {join(_colours(scene))}.",
        f"Its colors are {join(_colours(scene))}.",
        f"All other places, {NUMBERS[empty]} of nine, stay empty.",
    )[style]
    if n <= 2:
        closing += (
            " It is a quiet picture: the drawing is plain, the edges are thin and dark,"
            " and there is much free space around."
        )
    return {}, " ".join([opening, *body, _row_summary(scene, style), closing])


def _colours(scene: Scene) -> list[str]:
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
        colour, shape = _absent(scene, rng)
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
        colour, shape = _absent(scene, rng)
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
    names = _colours(scene)
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
    assert scene.background in BACKGROUNDS
    return {}, (
        f"The background is {scene.background}.",
        f"It is a plain {scene.background} color.",
        f"The background is plain and {scene.background}, with a thin frame.",
        f"A {scene.background} background.",
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
