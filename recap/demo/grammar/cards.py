"""Requests about printed cards: reading lines, finding prices, and saying what is not there."""

from __future__ import annotations

import json
import random

from recap.demo.facts import Card, Line
from recap.demo.grammar.phrases import NUMBERS, ORDINALS, cap, counted, join
from recap.demo.grammar.registry import request
from recap.demo.words import ITEMS, TOTAL


def _texts(card: Card) -> list[str]:
    return [line.text for line in card.lines]


def _about(card: Card) -> str:
    return "a receipt" if card.items else "a label"


def _dearest(card: Card) -> list[Line]:
    top = max(line.cents or 0 for line in card.items)
    return [line for line in card.items if line.cents == top]


def _cheapest(card: Card) -> list[Line]:
    low = min(line.cents or 0 for line in card.items)
    return [line for line in card.items if line.cents == low]


@request(
    "card",
    "describe",
    (
        "Describe the picture.",
        "What do you see?",
        "What is in the picture?",
        "Describe this image briefly.",
        "Write a short caption.",
        "Sum up the card in one sentence.",
    ),
    weight=1.5,
)
def _describe(card: Card, style: int, rng: random.Random):
    n, texts = len(card.lines), _texts(card)
    kind = _about(card)
    return {}, (
        f"The picture shows {kind} with {counted(n, 'line')}: {join(texts)}.",
        f"I see {kind}. It says {join(texts)}.",
        f"A printed card with {counted(n, 'line')}, from {texts[0]} to {texts[-1]}.",
        f"{cap(kind)} that reads {join(texts)}.",
        f"{cap(kind)}: {', '.join(line.name for line in card.lines)}.",
        f"It is {kind} of {counted(n, 'line')} that begins with {card.lines[0].name}.",
    )[style]


def _line_sentence(line: Line, index: int, last: bool, pattern: int) -> str:
    at = "At last" if last else "Then"
    if line.cents is not None:
        have = "comes to" if line.words == (TOTAL,) else "you can have for"
        return (
            f"The {ORDINALS[index]} line is {line.name} at a price of {line.number}, printed in"
            " clear letters.",
            f"In line {index + 1} we have {line.name}, and the price beside it is {line.number}.",
            f"{at} the card lists {line.name}, which {have} {line.number}.",
        )[pattern]
    if line.number:
        return (
            f"The {ORDINALS[index]} line says {line.name} with the number {line.number}, printed in"
            " clear letters.",
            f"In line {index + 1} we read {line.name}, and the number beside it is {line.number}.",
            f"{at} the card says {line.name}, which has the number {line.number}.",
        )[pattern]
    return (
        f"The {ORDINALS[index]} line says {line.name}, printed in clear letters.",
        f"In line {index + 1} we read {line.name}, and there is no number beside it.",
        f"{at} the card says {line.name}, which has no number.",
    )[pattern]


@request(
    "card",
    "detail",
    (
        "Describe the picture in detail.",
        "Tell me everything about this card.",
        "Give a detailed description.",
        "Explain the card line by line.",
        "Walk me through the picture.",
        "Describe every line in detail.",
    ),
    weight=2.5,
)
def _detail(card: Card, style: int, rng: random.Random):
    n, kind = len(card.lines), _about(card)
    opening = (
        f"This is {kind} with {counted(n, 'printed line')}.",
        f"The card looks like {kind}, and it has {counted(n, 'line')}.",
        f"We look at {kind} of {counted(n, 'line')}, printed on light paper.",
        f"On light paper I find {counted(n, 'line')}, which I read from top to bottom.",
        f"Let us begin at the top. There are {counted(n, 'line')} on {kind}.",
        f"{cap(counted(n, 'line'))} are printed here, and together they make {kind}.",
    )[style]
    body = []
    for index, line in enumerate(card.lines):
        # One wording for an answer; "then" and "at last" need a line before them.
        pattern = (style + n) % 3
        pattern = 0 if pattern == 2 and index == 0 else pattern
        body.append(_line_sentence(line, index, index == n - 1, pattern))
    if len(card.items) > 1:
        top, low = _dearest(card), _cheapest(card)
        if top[0].cents == low[0].cents:
            closing = f"Everything costs the same, {top[0].number}."
        else:
            closing = (
                f"The most expensive is {join(x.name for x in top)} at {top[0].number},"
                f" and the cheapest is {join(x.name for x in low)} at {low[0].number}."
            )
        closing += (
            f" A total of {card.total} is printed." if card.total else " No total is printed."
        )
    else:
        closing = "There are no prices on it, only words" + (
            " and numbers." if any(line.number for line in card.lines) else "."
        )
    if n <= 4:
        closing += " The letters are large and clear, and the paper has a thin edge."
    return {}, " ".join([opening, *body, closing])


@request(
    "card",
    "read",
    (
        "Read the text.",
        "What is written on the card?",
        "Read everything that is printed.",
        "What does it say?",
        "Copy the text.",
        "Transcribe the card.",
    ),
    weight=3.5,
)
def _read(card: Card, style: int, rng: random.Random):
    texts = _texts(card)
    if style in (1, 3):
        return (
            {},
            f"It says {join(texts)}." if style == 3 else f"The card reads {', '.join(texts)}.",
        )
    if style == 2:
        return {}, "\n".join(f"{i}. {text}" for i, text in enumerate(texts, 1))
    return {}, "\n".join(texts)


@request(
    "card",
    "line",
    (
        "What is in the {nth} line?",
        "Read the {nth} line.",
        "What does the {nth} line say?",
        "Read line {number}.",
        "What is written in line {number}?",
    ),
    weight=1.5,
)
def _line(card: Card, style: int, rng: random.Random):
    index = rng.randrange(5) if rng.random() < 0.3 else rng.randrange(len(card.lines))
    nth, n = ORDINALS[index], len(card.lines)
    slots = {"nth": nth, "number": str(index + 1)}
    if index >= n:
        return slots, f"There is no {nth} line: the card has only {NUMBERS[n]}."
    text = card.lines[index].text
    return slots, (
        f"The {nth} line is {text}.",
        f"It reads {text}.",
        f"The {nth} line says {text}.",
        f"Line {index + 1}: {text}.",
        f"In line {index + 1} is written {text}.",
    )[style]


@request(
    "card",
    "count",
    (
        "How many lines are there?",
        "Count the lines.",
        "How many lines of text do you see?",
        "What is the number of lines?",
    ),
)
def _count(card: Card, style: int, rng: random.Random):
    n = len(card.lines)
    names = join(line.name for line in card.lines)
    return {}, (
        f"There are {counted(n, 'line')}.",
        f"I count {NUMBERS[n]}: {names}.",
        f"I see {counted(n, 'line')} of text, {names}.",
        f"The number of lines is {n}.",
    )[style]


@request(
    "card",
    "price",
    (
        "How much is the {item}?",
        "What does the {item} cost?",
        "What is the price of the {item}?",
        "Find the price of the {item}.",
        "Tell me what they want for the {item}.",
    ),
    weight=2.0,
)
def _price(card: Card, style: int, rng: random.Random):
    names = [line.name for line in card.lines]
    if not card.items or rng.random() < 0.2:
        item = rng.choice([i for i in ITEMS if i not in names])
        if not card.items:
            return {"item": item}, f"There is no price for {item}: the card has no prices."
        listed = join(line.name for line in card.items)
        return {"item": item}, f"There is no {item} on the card; it lists {listed}."
    line = rng.choice(card.items)
    return {"item": line.name}, (
        f"The {line.name} is {line.number}.",
        f"The {line.name} costs {line.number}.",
        f"The price of the {line.name} is {line.number}.",
        f"{line.number}.",
        f"They want {line.number} for the {line.name}.",
    )[style]


@request(
    "card",
    "dearest",
    (
        "What is the most expensive item?",
        "Which item costs the most?",
        "Name the highest price.",
        "What is dearest?",
    ),
)
def _most(card: Card, style: int, rng: random.Random):
    if not card.items:
        return {}, "The card has no prices."
    top = _dearest(card)
    name, number = join(line.name for line in top), top[0].number
    return {}, (
        f"The most expensive item is {name} at {number}.",
        f"{cap(name)} costs the most, {number}.",
        f"The highest price is {number}, for {name}.",
        f"{cap(name)}, with a price of {number}.",
    )[style]


@request(
    "card",
    "cheapest",
    (
        "What is the cheapest item?",
        "Which item costs the least?",
        "Name the lowest price.",
        "What can I buy with little money?",
    ),
)
def _least(card: Card, style: int, rng: random.Random):
    if not card.items:
        return {}, "The card has no prices."
    low = _cheapest(card)
    name, number = join(line.name for line in low), low[0].number
    return {}, (
        f"The cheapest item is {name} at {number}.",
        f"{cap(name)} costs the least, {number}.",
        f"The lowest price is {number}, for {name}.",
        f"Take the {name}; you pay only {number}.",
    )[style]


@request(
    "card",
    "sum",
    (
        "What is the total?",
        "How much is it all together?",
        "What do I have to pay?",
        "Read the total.",
    ),
)
def _total(card: Card, style: int, rng: random.Random):
    if not card.total:
        return {}, (
            "No total is printed on this card.",
            "I cannot say: no total is printed.",
            "The card does not tell, since it has no total.",
            "There is no total on this card.",
        )[style]
    return {}, (
        f"The total is {card.total}.",
        f"All together it is {card.total}.",
        f"You have to pay {card.total}.",
        f"The total reads {card.total}.",
    )[style]


@request(
    "card",
    "yesno",
    (
        "Does the card mention {word}?",
        "Is {word} on the card?",
        "Can you find the word {word}?",
        "Do you see {word}?",
    ),
    weight=1.5,
)
def _yesno(card: Card, style: int, rng: random.Random):
    words = [word for line in card.lines for word in line.words]
    if rng.random() < 0.5:
        word = rng.choice([w for w in ITEMS if w not in words])
        return {"word": word}, (
            f"No, it does not mention {word}.",
            f"No, {word} is not on the card.",
            f"No, I cannot find {word}; I read {join(line.name for line in card.lines)}.",
            f"No, there is no {word} here.",
        )[style]
    word = rng.choice(words)
    index = next(i for i, line in enumerate(card.lines) if word in line.words)
    return {"word": word}, (
        f"Yes, in the {ORDINALS[index]} line.",
        f"Yes, {word} is in line {index + 1}.",
        f"Yes, the {ORDINALS[index]} line has it: {card.lines[index].text}.",
        f"Yes, I see {word} in the {ORDINALS[index]} line.",
    )[style]


@request(
    "card",
    "heading",
    (
        "What is the heading?",
        "Read the heading.",
        "What is printed at the top?",
        "What is the first word?",
    ),
)
def _heading(card: Card, style: int, rng: random.Random):
    first = card.lines[0]
    if style == 2:
        return {}, f"At the top is printed {first.text}."
    if style == 3:
        return {}, f"The first word is {first.words[0]}."
    if not card.header:
        return {}, f"There is no heading; the first line is {first.text}."
    return {}, (f"The heading is {card.header}.", f"It reads {card.header}.")[style]


@request(
    "card",
    "form",
    (
        "What kind of card is this?",
        "Is this a receipt or a label?",
        "What is this?",
        "Is this a receipt?",
    ),
    weight=0.7,
)
def _form(card: Card, style: int, rng: random.Random):
    kind = _about(card)
    why = (
        "it lists prices"
        if card.items
        else "it has words" + (" and numbers" if any(x.number for x in card.lines) else "")
    )
    return {}, (
        f"It is {kind}, since {why}.",
        f"It looks like {kind}: {why}.",
        f"This is {kind} with {counted(len(card.lines), 'line')}.",
        f"{'Yes' if card.items else 'No'}, it is {kind}: {why}.",
    )[style]


@request(
    "card",
    "json",
    (
        "List the lines as JSON.",
        "Give me JSON.",
        "Describe the picture as JSON.",
        "Return the card as a JSON object.",
        "Output the text as JSON.",
    ),
    weight=2.5,
)
def _json(card: Card, style: int, rng: random.Random):
    if style in (0, 4):
        return {}, json.dumps(_texts(card))
    rows = [{"text": line.name, "number": line.number} for line in card.lines]
    if style == 1:
        return {}, json.dumps(rows)
    return {}, json.dumps({"kind": _about(card).split()[1], "lines": rows})


@request(
    "card",
    "table",
    (
        "Make a markdown table.",
        "List the lines in a table.",
        "Show the card as a markdown table.",
        "Put the text into a table.",
    ),
    weight=1.5,
)
def _table(card: Card, style: int, rng: random.Random):
    if style % 2:
        head = ["| line | text | number |", "|---|---|---|"]
        rows = [f"| {i} | {x.name} | {x.number or '-'} |" for i, x in enumerate(card.lines, 1)]
    else:
        head = ["| text | number |", "|---|---|"]
        rows = [f"| {x.name} | {x.number or '-'} |" for x in card.lines]
    return {}, "\n".join(head + rows)
