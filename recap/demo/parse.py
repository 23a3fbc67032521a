"""Reads facts back out of answers, without the grammar: words, numbers and JSON only.

It knows the vocabulary of the pictures and nothing of the sentences that the grammar makes, so it
can judge both the grammar and the model.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import Any

from recap.demo.words import CHARTS, COLOURS, PLACES, SHAPES, SIZES

_NUMBER_WORDS = ["zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine"]
# Longer names first: "center" is also the end of "top center".
_PLACES = re.compile("|".join(sorted(PLACES, key=len, reverse=True)))
_LABELS = {label.lower(): label for _, labels in CHARTS.values() for label in labels}


def _any(names: Any) -> re.Pattern[str]:
    return re.compile(r"\b(" + "|".join(names) + r")\b")


_COLOUR, _SHAPE, _SIZE = _any(COLOURS), _any(SHAPES), _any(SIZES)


@dataclass(frozen=True)
class Seen:
    """What an answer says of one shape."""

    colour: str
    shape: str
    size: str
    place: str

    def agreement(self, other: Seen) -> int:
        """How many of the four attributes are the same."""
        mine = (self.colour, self.shape, self.size, self.place)
        return sum(
            a == b
            for a, b in zip(mine, (other.colour, other.shape, other.size, other.place), strict=True)
        )


def sentences(text: str) -> list[str]:
    """Sentences and lines; a point between digits ends nothing."""
    return [part for part in re.split(r"(?<=[.!?])\s+|\n", text) if part]


def shapes_in_prose(answer: str) -> list[Seen]:
    """The shapes of a detailed description: sentences that name all four attributes."""
    seen = []
    for sentence in sentences(answer):
        lower = sentence.lower()
        parts = [pattern.findall(lower) for pattern in (_COLOUR, _SHAPE, _SIZE)]
        places = _PLACES.findall(lower)
        if all(len(p) == 1 for p in parts) and len(places) == 1:
            seen.append(Seen(parts[0][0], parts[1][0], parts[2][0], places[0]))
    return seen


def number_of_shapes(answer: str) -> int | None:
    """The first number that stands before "shape" or "shapes", or None."""
    found = re.search(r"\b(" + "|".join(_NUMBER_WORDS) + r"|\d+) shapes?\b", answer.lower())
    if not found:
        return None
    word = found.group(1)
    return int(word) if word.isdigit() else _NUMBER_WORDS.index(word)


def load_json(answer: str) -> Any:
    """The parsed answer, or None where it is not JSON."""
    try:
        return json.loads(answer)
    except ValueError:
        return None


def shapes_in_json(answer: str) -> list[Seen] | None:
    """The shapes of a JSON answer, or None where it does not parse or has another form."""
    data = load_json(answer)
    rows = data.get("shapes") if isinstance(data, dict) else data
    if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
        return None
    keys = ("color", "shape", "size", "place")
    return [Seen(*(str(row.get(key, "")) for key in keys)) for row in rows]


def bars_in_json(answer: str) -> list[tuple[str, int]] | None:
    """(label, value) of every bar of a JSON answer, or None where it does not parse."""
    data = load_json(answer)
    rows: Any
    if isinstance(data, dict) and "bars" not in data:
        rows = [{"label": label, "value": value} for label, value in data.items()]
    else:
        rows = data.get("bars") if isinstance(data, dict) else data
    if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
        return None
    pairs = []
    for row in rows:
        value = row.get("value")
        pairs.append((str(row.get("label", "")), value if isinstance(value, int) else -1))
    return pairs


def bars_in_prose(answer: str) -> list[tuple[str, int]]:
    """(label, value) of the sentences that name one colour, one label and one number."""
    pairs = []
    for sentence in sentences(re.sub(r'"[^"]*"', "", answer)):
        lower = sentence.lower()
        words = re.findall(r"[a-z]+", lower)
        colours = [w for w in words if w in COLOURS]
        labels = [w for w in words if w in _LABELS]
        # "orange" is a fruit as well as a colour: it is the label where it is said twice or where
        # the sentence names another colour and no other label.
        if set(labels) == {"orange"}:
            labels = ["orange"] if len(labels) == 2 or len(set(colours)) == 2 else []
        else:
            labels = [w for w in labels if w != "orange"]
        numbers = re.findall(r"\d+", lower)
        if colours and len(labels) == 1 and len(numbers) == 1:
            pairs.append((_LABELS[labels[0]], int(numbers[0])))
    return pairs


def printed_lines(answer: str) -> list[list[str]]:
    """The words of every line of a transcription."""
    return [line.split() for line in answer.split("\n")]
