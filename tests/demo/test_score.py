"""Parsing and scoring of answers, on answers made by hand."""

from __future__ import annotations

import pytest

from recap.demo import parse
from recap.demo.facts import sample
from recap.demo.score import (
    Share,
    attributes_right,
    best_alignment,
    same,
    scene_truth,
    words_right,
)
from tests.demo.tables import table_rows


def test_alignment_forgives_no_error_twice():
    """A missing element costs itself and does not shift the rest."""
    assert best_alignment("abcd", "abcd", same) == 4
    assert best_alignment("bcd", "abcd", same) == 3
    assert best_alignment("axbcd", "abcd", same) == 4
    assert best_alignment("", "abcd", same) == 0


def test_attributes_count_wrong_missing_and_invented():
    """Each costs its own attributes."""
    scene = next(s for i in range(99) if len((s := sample("scene", f"x/score/{i}")).objects) == 3)
    truth = scene_truth(scene)
    assert attributes_right(truth, scene) == (12, 12)
    assert attributes_right(truth[1:], scene) == (8, 12)
    assert attributes_right(None, scene) == (0, 12)
    wrong = [parse.Seen("none", truth[0].shape, truth[0].size, truth[0].place), *truth[1:]]
    assert attributes_right(wrong, scene) == (11, 12)
    assert attributes_right([*truth, truth[0]], scene) == (12, 16)


def test_words_count_in_order():
    """Words and numbers of a card, missing and invented ones."""
    card = sample("card", "x/score")
    lines = [line.text.split() for line in card.lines]
    total = sum(map(len, lines))
    assert words_right(lines, card) == (total, total)
    assert words_right([], card) == (0, total)
    assert words_right([*lines, ["extra"]], card) == (total, total + 1)


@pytest.mark.parametrize("text", ["", "{", "Sorry.", '{"shapes": 3}', "[1, 2]"])
def test_bad_json_is_no_list_of_shapes(text):
    """Whatever is not a list of objects gives None."""
    assert parse.shapes_in_json(text) is None


def test_numbers_of_shapes():
    """Words and digits count."""
    assert parse.number_of_shapes("There are three shapes here.") == 3
    assert parse.number_of_shapes("It has 4 shapes.") == 4
    assert parse.number_of_shapes("Nothing.") is None


def test_tables_need_a_head_and_equal_rows():
    """Ragged tables are no tables."""
    good = "| a | b |\n|---|---|\n| 1 | 2 |"
    assert table_rows(good) == [{"a": "1", "b": "2"}]
    assert table_rows(good + "\n| 1 |") is None
    assert table_rows("a, b") is None


def test_the_fruit_orange_is_not_the_colour():
    """A label that is also a colour is told from it."""
    assert parse.bars_in_prose("The first bar is orange, stands for orange and reaches 8.") == [
        ("orange", 8)
    ]
    assert parse.bars_in_prose("The orange bar belongs to fig; its value is 3.") == [("fig", 3)]
    assert parse.bars_in_prose("The red bar belongs to orange; its value is 3.") == [("orange", 3)]


def test_a_share_of_nothing_is_zero():
    """No division by zero."""
    assert Share().value == 0
