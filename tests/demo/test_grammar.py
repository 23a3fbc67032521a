"""Questions and answers: true, varied, deterministic, and of every promised type."""

from __future__ import annotations

import random
import re

import pytest

from recap.demo import parse
from recap.demo.facts import KINDS, sample
from recap.demo.grammar import REGISTRY, build_turn, text_turn, turn_about
from recap.demo.grammar.phrases import disturb
from recap.demo.score import scene_truth
from tests.demo.tables import table_rows

PICTURES = 60


def _answers(kind, name):
    """(picture, answer) of every phrasing of one request type about many pictures."""
    rng = random.Random(f"x/{kind}/{name}")
    for index in range(PICTURES):
        picture = sample(kind, f"x/{name}/{index}")
        for style in range(len(REGISTRY[kind][name].questions)):
            turn = build_turn(kind, name, picture, rng, style)
            if turn is not None:
                yield picture, turn


@pytest.mark.parametrize("kind", KINDS)
def test_enough_request_types_and_phrasings(kind):
    """At least 12 request types a kind of picture, each with at least 4 phrasings."""
    assert len(REGISTRY[kind]) >= 12
    for entry in REGISTRY[kind].values():
        assert len(set(entry.questions)) >= 4


def test_scene_descriptions_and_lists_are_true():
    """Prose, JSON and tables name exactly the shapes that are there, in reading order."""
    for scene, turn in _answers("scene", "detail"):
        assert parse.shapes_in_prose(turn.answer) == scene_truth(scene)
        assert parse.number_of_shapes(turn.answer) == len(scene.objects)
    for scene, turn in _answers("scene", "json"):
        assert parse.shapes_in_json(turn.answer) == scene_truth(scene)
    for scene, turn in _answers("scene", "table"):
        rows = table_rows(turn.answer)
        seen = [parse.Seen(r["color"], r["shape"], r["size"], r["place"]) for r in rows]
        assert seen == scene_truth(scene)


def test_places_are_true():
    """Where-answers name the place of the shape that was asked about, or deny it."""
    for scene, turn in _answers("scene", "where"):
        wanted = re.search(r"(\w+) (\w+)[?.]?$", turn.question).groups()
        places = {t.place for t in scene.objects if (t.colour, t.shape) == wanted}
        if turn.answer.startswith("There is no"):
            assert not places
        else:
            said = re.findall("|".join(sorted(parse.PLACES, key=len)[::-1]), turn.answer)
            assert {said[-1]} == places  # "center column" may come before it


def test_existence_is_true():
    """Yes where the asked-about shape is there, no where it is not."""
    for scene, turn in _answers("scene", "yesno"):
        colour, shape = re.search(r"\ban? (\w+) (\w+)", turn.question).groups()
        there = any((t.colour, t.shape) == (colour, shape) for t in scene.objects)
        assert turn.answer.startswith("Yes" if there else "No")


def test_chart_values_are_true():
    """Prose, JSON and tables give every bar's label and value."""
    for chart, turn in _answers("chart", "detail"):
        assert parse.bars_in_prose(turn.answer) == [(b.label, b.value) for b in chart.bars]
    for chart, turn in _answers("chart", "json"):
        assert parse.bars_in_json(turn.answer) == [(b.label, b.value) for b in chart.bars]
    for chart, turn in _answers("chart", "table"):
        rows = table_rows(turn.answer)
        assert [(r["label"], int(r["value"])) for r in rows] == [
            (b.label, b.value) for b in chart.bars
        ]


def test_sums_and_differences_are_right():
    """Every equation in an answer holds, and the sum is that of the bars."""
    for name in ("sum", "compare"):
        for chart, turn in _answers("chart", name):
            for a, sign, b, c in re.findall(r"(\d+) ([+-]) (\d+) = (\d+)", turn.answer):
                assert int(a) + int(b) * (1 if sign == "+" else -1) == int(c)
            if name == "sum":
                total = int(re.findall(r"\d+", turn.answer)[-1])
                assert total == sum(b.value for b in chart.bars)


def test_highest_and_lowest_are_right():
    """The number in the answer is the extreme, and the named label has it."""
    for name, choose in (("highest", max), ("lowest", min)):
        for chart, turn in _answers("chart", name):
            extreme = choose(b.value for b in chart.bars)
            assert int(re.findall(r"\d+", turn.answer)[0]) == extreme
            for bar in chart.bars:
                if bar.value == extreme:
                    assert bar.label.lower() in turn.answer.lower()


def test_transcriptions_are_true():
    """Line-by-line readings and JSON give the printed words in order."""
    for card, turn in _answers("card", "read"):
        words = [word for line in card.lines for word in line.text.split()]
        said = re.sub(r"\b(\d)\. ", "", turn.answer) if "1. " in turn.answer else turn.answer
        if "\n" in turn.answer and "1. " not in turn.answer:
            assert [w for line in parse.printed_lines(turn.answer) for w in line] == words
        assert all(word in said for word in words)
    for _, turn in _answers("card", "json"):
        assert parse.load_json(turn.answer) is not None


def test_prices_are_true():
    """The price in the answer is printed beside the item, or the item is not on the card."""
    for card, turn in _answers("card", "price"):
        numbers = re.findall(r"\d+\.\d\d", turn.answer)
        asked = [line for line in card.items if re.search(rf"\b{line.name}\b", turn.question)]
        assert numbers == [line.number for line in asked]


def test_an_answer_depends_on_facts_and_phrasing_only():
    """The same picture, phrasing and slots give the same answer: greedy can be right."""
    for kind in KINDS:
        answers: dict[tuple, str] = {}
        picture = sample(kind, "x/same")
        for seed in range(400):
            rng = random.Random(seed)
            name = rng.choice(list(REGISTRY[kind]))
            turn = build_turn(kind, name, picture, rng)
            if turn is not None:
                key = (name, turn.question)
                assert answers.setdefault(key, turn.answer) == turn.answer


def test_detailed_descriptions_are_long_enough(tokenizer):
    """Detailed descriptions have about 80 to 200 tokens."""
    for kind in KINDS:
        lengths = [len(tokenizer(t.answer).input_ids) for _, t in _answers(kind, "detail")]
        assert max(lengths) <= 200
        assert sum(lengths) / len(lengths) >= 80


def test_disturbed_questions_ask_the_same():
    """Other words, lower case or a 'please' leave the content words alone."""
    rng = random.Random(0)
    seen = {disturb("Where is the red circle?", rng) for _ in range(200)}
    assert len(seen) > 5
    assert all("red circle" in question for question in seen)


def test_requests_without_a_picture_answer_without_one():
    """Text-only turns never state facts of a picture."""
    rng = random.Random(0)
    turns = [text_turn(rng) for _ in range(200)]
    kinds = {turn.type for turn in turns}
    assert {"greeting", "abilities", "speculation", "no_picture"} <= kinds
    for turn in turns:
        assert "shapes on" not in turn.answer


def test_requests_of_another_kind_are_declined():
    """Asking a scene for its highest bar gets an answer that says so."""
    rng = random.Random(0)
    foreign = [
        turn
        for i in range(1500)
        if (turn := turn_about(sample("scene", f"x/{i}"), rng)).type == "foreign"
    ]
    assert foreign
    assert all("this picture shows colored shapes" in turn.answer for turn in foreign)
