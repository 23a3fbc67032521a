"""Facts and drawings: determinism, disjoint seeds, what the image processor makes of them."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from recap.demo.draw import SIDE, draw, draw_smooth, to_pixels
from recap.demo.export import image_processor
from recap.demo.facts import KINDS, sample
from recap.demo.forward import patchify
from recap.demo.heads import HEADS, IGNORE, digits_of, targets_of
from recap.demo.words import COLOURS, LEXICON, SHAPES, SIZES


@pytest.mark.parametrize("kind", KINDS)
def test_one_seed_gives_one_picture(kind):
    """The same seed gives the same facts and pixels, another seed gives others."""
    one, again, other = (sample(kind, seed) for seed in ("x/1", "x/1", "x/2"))
    assert one == again != other
    assert np.array_equal(to_pixels(draw(one)), to_pixels(draw(again)))
    assert not np.array_equal(to_pixels(draw(one)), to_pixels(draw(other)))


@pytest.mark.parametrize("kind", KINDS)
def test_held_out_pictures_are_not_training_pictures(kind):
    """Held-out and training seeds are different strings, and so are the pictures."""
    held_out = {sample(kind, f"held-out/{kind}/{i}") for i in range(200)}
    trained = {sample(kind, f"train/{seed}/joint/{i}") for seed in (0, 1) for i in range(1000)}
    assert not held_out & trained


def test_pictures_offer_the_promised_variety():
    """At least 12 colours, 12 shapes, 3 sizes and a few hundred printed words."""
    assert len(COLOURS) >= 12
    assert len(SHAPES) >= 12
    assert len(SIZES) == 3
    assert len(LEXICON) >= 200


def test_facts_stay_in_their_ranges():
    """Scenes of 1 to 6 shapes, charts of 2 to 5 bars from 1 to 20, cards of 2 to 5 lines."""
    for index in range(300):
        scene = sample("scene", f"x/{index}")
        cells = [thing.cell for thing in scene.objects]
        assert 1 <= len(cells) <= 6
        assert cells == sorted(set(cells))
        chart = sample("chart", f"x/{index}")
        assert 2 <= len(chart.bars) <= 5
        assert all(1 <= bar.value <= 20 for bar in chart.bars)
        assert len({bar.label for bar in chart.bars}) == len(chart.bars)
        assert len({bar.colour for bar in chart.bars}) == len(chart.bars)
        card = sample("card", f"x/{index}")
        assert 2 <= len(card.lines) <= 5
        if card.total:
            assert round(float(card.total) * 100) == sum(line.cents for line in card.items)


def test_unknown_kind_is_named():
    """The error lists the kinds that there are."""
    with pytest.raises(ValueError, match="scene, chart, card"):
        sample("photo", "x/1")


@pytest.mark.parametrize("kind", KINDS)
def test_patches_equal_those_of_the_image_processor(kind):
    """Training sees what the exported image processor gives, bit for bit."""
    image = draw(sample(kind, "x/patches"), 3)
    inputs = image_processor()(images=[image], return_tensors="pt")
    assert inputs["image_grid_thw"].tolist() == [[1, SIDE // 14, SIDE // 14]]
    ours = patchify(torch.from_numpy(to_pixels(image))[None])[0]
    theirs = inputs["pixel_values"].view(144, 3, 2, 14 * 14)
    assert torch.equal(theirs[:, :, 0], theirs[:, :, 1])
    assert torch.equal(ours, theirs[:, :, 0].reshape(144, -1))


@pytest.mark.parametrize("kind", KINDS)
def test_smooth_and_plain_drawings_agree(kind):
    """What people see and what training sees differ at edges only."""
    picture = sample(kind, "x/smooth")
    plain = to_pixels(draw(picture)).astype(int)
    smooth = to_pixels(draw_smooth(picture)).astype(int)
    assert np.abs(plain - smooth).mean() < 6


def test_vision_targets_say_what_is_there():
    """The tokens of a cell name its shape; empty cells are unoccupied and unnamed."""
    scene = sample("scene", "x/heads", crowded=True)
    targets = targets_of(scene)
    assert {name: board.shape for name, board in targets.items()} == {
        name: (36, slots) for name, (slots, _) in HEADS.items()
    }
    for thing in scene.objects:
        token = 2 * thing.row * 6 + 2 * thing.column
        assert SHAPES[targets["shape"][token, 0]] == thing.shape
        assert targets["occupied"][token, 0] == 1
    assert targets["occupied"].sum() == 4 * len(scene.objects)
    assert (targets["colour"][targets["occupied"] == 0] == IGNORE).all()


def test_vision_targets_spell_the_printed_words():
    """Characters, words and numbers of a card stand in the rows where they are drawn."""
    card = sample("card", "x/words")
    targets = targets_of(card)
    for index, line in enumerate(card.lines):
        row = slice(6 * (card.first_row + index), 6 * (card.first_row + index) + 6)
        names = {LEXICON[i - 1] for i in targets["row_word"][row, 0]}
        assert names == {line.words[0]}
        expected = digits_of(line.number) if line.number else (10, 10, 10, 10)
        assert (targets["row_number"][row] == expected).all()
        assert (targets["characters"][row] > 0).sum() == len(line.text.replace(" ", ""))


def test_digits_of_numbers():
    """Tens, ones, tenths, hundredths; 10 where there is no digit."""
    assert digits_of("7") == (10, 7, 10, 10)
    assert digits_of("20") == (2, 0, 10, 10)
    assert digits_of("3.50") == (10, 3, 5, 0)


def test_vision_targets_spell_the_values_of_bars():
    """Labels and values of a chart are spelt in the row of their bar."""
    chart = sample("chart", "x/values")
    characters = targets_of(chart)["characters"].reshape(6, -1)
    for index, bar in enumerate(chart.bars):
        row = characters[chart.first_row + index]
        assert (row > 0).sum() == len(bar.label) + len(str(bar.value))
