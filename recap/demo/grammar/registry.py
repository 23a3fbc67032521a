"""Request types: questions in several phrasings, and one function that answers them truly.

An answer is a function of the facts, the phrasing and the asked-about slots, never of chance:
greedy decoding can then be right word for word, while the wording still varies with the question.

    @request("scene", "background", ("What color is the background?", "Name the background."))
    def _background(scene, style, rng):
        return {}, f"The background is {scene.background}."
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

# (picture, style, rng) -> (slots of the question, answer), or None where it cannot be asked.
# `rng` chooses what is asked about, never how it is answered.
Answerer = Callable[[Any, int, random.Random], tuple[dict[str, str], str] | None]


@dataclass(frozen=True)
class Turn:
    """One request and its true answer."""

    type: str
    question: str
    answer: str


@dataclass(frozen=True)
class RequestType:
    """`weight` is how often it is drawn beside the others of its kind."""

    name: str
    questions: tuple[str, ...]
    answer: Answerer
    weight: float


REGISTRY: dict[str, dict[str, RequestType]] = {"scene": {}, "chart": {}, "card": {}, "text": {}}


def request(
    kind: str, name: str, questions: tuple[str, ...], weight: float = 1.0
) -> Callable[[Answerer], Answerer]:
    """Register an answerer for the request type `name` of picture kind `kind`."""

    def register(answer: Answerer) -> Answerer:
        REGISTRY[kind][name] = RequestType(name, questions, answer, weight)
        return answer

    return register


def build_turn(
    kind: str, name: str, picture: Any, rng: random.Random, style: int | None = None
) -> Turn | None:
    """A turn of one type about `picture`; `style` fixes the phrasing, or chance chooses."""
    entry = REGISTRY[kind][name]
    chosen = rng.randrange(len(entry.questions)) if style is None else style
    result = entry.answer(picture, chosen, rng)
    if result is None:
        return None
    slots, answer = result
    return Turn(name, entry.questions[chosen].format(**slots), answer)
