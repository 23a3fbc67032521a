"""Small pieces of English that all the grammars use."""

from __future__ import annotations

import random
from collections.abc import Iterable

NUMBERS = ("no", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten")
ORDINALS = ("first", "second", "third", "fourth", "fifth")


def a(phrase: str) -> str:
    """'a red circle', 'an orange star'."""
    return f"an {phrase}" if phrase[0] in "aeiou" else f"a {phrase}"


def join(parts: Iterable[str], last: str = "and") -> str:
    """'x', 'x and y', 'x, y and z'."""
    items = list(parts)
    if len(items) < 2:
        return "".join(items)
    return f"{', '.join(items[:-1])} {last} {items[-1]}"


def cap(text: str) -> str:
    """The first letter as a capital, the rest untouched."""
    return text[:1].upper() + text[1:]


def plural(noun: str, count: int) -> str:
    """'circle' or 'circles', 'box' or 'boxes', as `count` asks."""
    if count == 1:
        return noun
    return noun + ("es" if noun.endswith(("s", "x")) else "s")


def counted(count: int, noun: str) -> str:
    """'one circle', 'two circles', 'no circles'."""
    return f"{NUMBERS[count]} {plural(noun, count)}"


def is_are(count: int) -> str:
    """'is' for one, 'are' for the rest, none included."""
    return "is" if count == 1 else "are"


_SYNONYMS = (
    ("picture", "image", 0.20),
    ("picture", "photo", 0.06),
    ("image", "picture", 0.15),
    ("the picture", "this picture", 0.15),
    ("What is ", "What's ", 0.12),
    ("Where is ", "Where's ", 0.12),
    ("color", "colour", 0.12),
    ("Describe ", "Please describe ", 0.08),
    ("Give me ", "I want ", 0.08),
    ("Tell me about ", "Can you tell me about ", 0.08),
    ("How many ", "Tell me how many ", 0.05),
    ("Is there ", "Can you see ", 0.05),
)


def disturb(question: str, rng: random.Random) -> str:
    """The question as people type it: other words for the same, lower case, no full stop, or a
    'please'. It still asks for the same answer."""
    for word, other, share in _SYNONYMS:
        if rng.random() < share:
            question = question.replace(word, other)
    draw = rng.random()
    if draw < 0.10:
        question = question[:1].lower() + question[1:]
    elif draw < 0.16:
        question = question.lower()
    draw = rng.random()
    if draw < 0.15:
        question = question.rstrip("?.")
    elif draw < 0.20:
        question = f"{question.rstrip('?.')}, please{question[-1] if question[-1] in '?.' else ''}"
    elif draw < 0.24 and "lease" not in question:
        question = f"Please {question[:1].lower()}{question[1:]}"
    elif draw < 0.27:
        question = f"{question.rstrip('?.')} please"
    return question
