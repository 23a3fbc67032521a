"""Questions and answers about the demo pictures, and a few that need none.

>>> turns = turns_about(sample("chart", "train/0/0"), random.Random(0), 3)
>>> turns[0].question, turns[0].answer
"""

from __future__ import annotations

import random

from recap.demo.facts import KINDS, Picture, sample
from recap.demo.grammar import cards, charts, chat, scene_questions, scenes, stories
from recap.demo.grammar.phrases import disturb
from recap.demo.grammar.registry import REGISTRY, RequestType, Turn, build_turn

__all__ = [
    "REGISTRY",
    "RequestType",
    "Turn",
    "build_turn",
    "cards",
    "charts",
    "scene_questions",
    "scenes",
    "stories",
    "text_turn",
    "turn_about",
]

# Share of turns about a picture that belong to another kind of picture, and to none at all.
FOREIGN_SHARE, CHAT_SHARE = 0.03, 0.015


def _choose(kind: str, rng: random.Random) -> str:
    entries = REGISTRY[kind]
    return rng.choices(list(entries), [e.weight for e in entries.values()])[0]


def turn_about(picture: Picture, rng: random.Random) -> Turn:
    """A random turn about `picture`, in a random phrasing, the question slightly disturbed."""
    while True:
        draw = rng.random()
        if draw < FOREIGN_SHARE:
            kind = rng.choice([k for k in KINDS if k != picture.kind])
            other = sample(kind, f"foreign/{rng.random()}")
            pair = chat.foreign_turn(picture, picture.kind, other, rng)
            turn = Turn("foreign", *pair) if pair else None
        elif draw < FOREIGN_SHARE + CHAT_SHARE:
            turn = build_turn("text", _choose("text", rng), None, rng)
        else:
            turn = build_turn(picture.kind, _choose(picture.kind, rng), picture, rng)
        if turn is not None:
            return Turn(turn.type, disturb(turn.question, rng), turn.answer)


def text_turn(rng: random.Random) -> Turn:
    """A random turn without a picture; one in four asks about a picture that is not there."""
    if rng.random() < 0.25:
        picture = sample(rng.choice(KINDS), f"unseen/{rng.random()}")
        question = turn_about(picture, rng)
        if question.type not in REGISTRY["text"]:
            return Turn("no_picture", question.question, chat.NO_PICTURE)
    turn = build_turn("text", _choose("text", rng), None, rng)
    assert turn is not None
    return Turn(turn.type, disturb(turn.question, rng), turn.answer)
