"""Little stories about a picture, with its facts in the leading parts."""

from __future__ import annotations

import random

from recap.demo.facts import Card, Chart, Scene
from recap.demo.grammar.phrases import NUMBERS, a, cap, counted, join
from recap.demo.grammar.registry import request

_QUESTIONS = (
    "Tell me a little story about the picture.",
    "Write a short story about it.",
    "Make up a story.",
    "Tell a bedtime story about this picture.",
)


@request("scene", "story", _QUESTIONS, weight=1.5)
def _scene_story(scene: Scene, style: int, rng: random.Random):
    things, back = scene.objects, scene.background
    hero, others = things[0], things[1:]
    name = f"{hero.size} {hero.colour} {hero.shape}"
    if style == 0:
        text = f"Once upon a time {a(name)} lived at the {hero.place} of a {back} land."
        if others:
            friends = join(f"the {t.colour} {t.shape} at the {t.place}" for t in others)
            text += f" Every morning it waved to {friends}."
            text += " In the evening they told each other what they had seen, and then they slept."
        else:
            text += " Nobody else was there, so it sang to itself and was content."
    elif style == 1:
        text = f"The {hero.colour} {hero.shape} was tired of the {hero.place}."
        if others:
            last = others[-1]
            text += (
                f' "I am {hero.size}," it said, "and I want to travel." So it set out across the'
                f" {back} plain towards the {last.place}, where {a(f'{last.size} {last.colour}')}"
                f" {last.shape} had kept a seat for it."
            )
        else:
            text += f" But where could {a(hero.shape)} go in a {back} world? It stayed, and smiled."
    elif style == 2:
        text = f"In the land of {back} there {'was' if not others else 'were'} "
        text += counted(len(things), "friend") + "."
        text += "".join(
            f" {cap(('the first', 'another', 'one more')[min(i, 2)])} was {a(t.colour)} {t.shape}"
            f" and lived at the {t.place}."
            for i, t in enumerate(things)
        )
        text += " They were happy, because each had a place of its own."
    else:
        text = (
            f"It was night, and the {back} hills were quiet. At the {hero.place} {a(name)} yawned."
        )
        for thing in others[:3]:
            text += f" The {thing.colour} {thing.shape} at the {thing.place} closed its eyes."
        text += " Good night, little shapes. Sleep well."
    return {}, text


@request("chart", "story", _QUESTIONS, weight=0.8)
def _chart_story(chart: Chart, style: int, rng: random.Random):
    top = max(chart.bars, key=lambda bar: bar.value)
    low = min(chart.bars, key=lambda bar: bar.value)
    tall, small = f"{top.colour} bar of {top.label}", f"{low.colour} bar of {low.label}"
    if top.value == low.value:
        return {}, (
            f"Once upon a time {counted(len(chart.bars), 'bar')} raced each other, and all of them"
            f" stopped at {top.value}. They laughed and called it a draw."
        )
    return {}, (
        f"Once upon a time there was a race called {chart.title}. The {tall} ran to {top.value}"
        f" and won. The {small} came only to {low.value}, but it did not mind.",
        f'"Look how long I am," said the {tall}, which was proud of its {top.value}.'
        f' "I have {low.value}," said the {small}, "and that is enough for me."',
        f"In a chart called {chart.title} lived {counted(len(chart.bars), 'bar')}. The longest,"
        f" {top.label}, had {top.value}, and it shared them with {low.label}, who had {low.value}.",
        f"The day was over. The {tall} counted to {top.value}, the {small} counted to {low.value},"
        " and then all of them fell asleep.",
    )[style]


@request("card", "story", _QUESTIONS, weight=0.5)
def _card_story(card: Card, style: int, rng: random.Random):
    first, last = card.lines[0].name, card.lines[-1].name
    n = NUMBERS[len(card.lines)]
    return {}, (
        f"Once upon a time somebody wrote {n} lines on a card. It began with {first} and ended"
        f" with {last}, and everyone who read it nodded.",
        f"A traveler found a card in the grass. {cap(n)} lines were printed on it. The first said"
        f" {first}, the last said {last}, and the traveler kept it for luck.",
        f"There was a card that could talk. All day it said {first}, and when it was tired it"
        f" whispered {last}.",
        f"Before sleep the child read the card once more, from {first} to {last}, and then the"
        " light went out.",
    )[style]
