"""Teaches the vision tower what a picture shows, with throw-away linear heads.

Trained end to end from nothing, the decoder learns the grammar and never looks at the picture:
the features say nothing yet, so nothing rewards attending to them. So the tower is taught first:
every merged token (28x28 pixels) names its own place, the background, the shape in its cell, the
word, the characters and the number printed in its row, or the bar that it belongs to. The heads are
linear, so that what they read is as easily read by the decoder, and they are dropped after
training.
"""

from __future__ import annotations

import functools

import numpy as np
import torch
from PIL import ImageFont
from torch import Tensor, nn
from torch.nn import functional

from recap.demo.draw import (
    BAR_LEFT,
    BAR_UNIT,
    CARD_SIZE,
    ROW,
    SIDE,
    font_for,
    line_middle,
    line_spans,
)
from recap.demo.facts import KINDS, Card, Chart, Picture, Scene
from recap.demo.forward import linear
from recap.demo.model import GRID, IMAGE_TOKENS, TEXT_WIDTH
from recap.demo.words import BACKGROUNDS, COLOURS, LEXICON, SHAPES, SIZES, WORD_INDEX

IGNORE = -100  # target of a token that a head says nothing about
CHARACTERS = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789."
CHAR_SLOTS = 4  # characters whose middle can lie in one 28-pixel token
DIGIT_SLOTS = 4  # tens, ones, tenths, hundredths; 10 means "no digit"
_COLOUR_NAMES, _SIZE_NAMES, _BACKGROUNDS = list(COLOURS), list(SIZES), list(BACKGROUNDS)

# Head -> (slots, classes). Slots are independent questions about the same token.
HEADS: dict[str, tuple[int, int]] = {
    "row": (1, GRID),
    "column": (1, GRID),
    "kind": (1, len(KINDS)),
    "occupied": (1, 2),
    "colour": (1, len(COLOURS)),
    "shape": (1, len(SHAPES)),
    "size": (1, len(SIZES)),
    "word": (1, len(LEXICON) + 1),
    "row_word": (1, len(LEXICON) + 1),
    "row_number": (DIGIT_SLOTS, 11),
    "characters": (CHAR_SLOTS, len(CHARACTERS) + 1),
    "background": (1, len(BACKGROUNDS)),
}


def digits_of(number: str) -> tuple[int, int, int, int]:
    """Tens, ones, tenths and hundredths of a printed number; 10 where there is none."""
    whole, _, cents = number.partition(".")
    tens, ones = (int(whole[-2]) if len(whole) > 1 else 10), int(whole[-1])
    return (tens, ones, int(cents[0]), int(cents[1])) if cents else (tens, ones, 10, 10)


@functools.lru_cache(maxsize=8192)
def _widths(font: ImageFont.FreeTypeFont, word: str) -> tuple[float, ...]:
    """Pixels from the left edge of `word` to the left edge of every character, and to its end."""
    return tuple(font.getlength(word[:i]) for i in range(len(word) + 1))


class TargetBoard:
    """The targets of one picture: head -> (36, slots) int16, IGNORE where nothing is asked."""

    def __init__(self, kind: str) -> None:
        self.boards = {
            name: np.full((GRID, GRID, slots), IGNORE, dtype=np.int16)
            for name, (slots, _) in HEADS.items()
        }
        self.boards["row"][..., 0] = np.arange(GRID)[:, None]
        self.boards["column"][..., 0] = np.arange(GRID)[None, :]
        self.boards["kind"][...] = KINDS.index(kind)

    def text(self, y: float, spans: list[tuple[str, float, float]], font, scale: int) -> None:
        """Printed words on a line of height `y`: (word, left, right) in pixels of 168."""
        row = min(GRID - 1, int(y // ROW))
        word_row = self.boards["word"][row, :, 0]
        characters = self.boards["characters"][row]
        best = np.full(GRID, 6.0)  # less overlap than this names nothing
        filled = [0] * GRID
        for word, left, right in spans:
            for column in range(GRID):
                overlap = min(right, (column + 1) * ROW) - max(left, column * ROW)
                if word in WORD_INDEX and overlap > best[column]:
                    best[column] = overlap
                    word_row[column] = WORD_INDEX[word] + 1
            edges = [left + width / scale for width in _widths(font, word)]
            for i, character in enumerate(word):
                column = int((edges[i] + edges[i + 1]) / 2 // ROW)
                if 0 <= column < GRID and filled[column] < CHAR_SLOTS:
                    characters[column, filled[column]] = CHARACTERS.index(character) + 1
                    filled[column] += 1

    def gist(self, y: float, word: str, number: str) -> None:
        """What every token of a row should know: its first word and its number."""
        row = min(GRID - 1, int(y // ROW))
        self.boards["row_word"][row, :, 0] = WORD_INDEX[word] + 1
        self.boards["row_number"][row] = digits_of(number) if number else (10,) * DIGIT_SLOTS

    def finish_text(self) -> None:
        """Everything unnamed so far is empty, and should be known to be."""
        for name in ("word", "row_word", "characters"):
            board = self.boards[name]
            board[board == IGNORE] = 0
        board = self.boards["row_number"]
        board[board == IGNORE] = 10

    def flat(self) -> dict[str, np.ndarray]:
        """head -> (36, slots) int16."""
        return {name: board.reshape(IMAGE_TOKENS, -1) for name, board in self.boards.items()}


def targets_of(picture: Picture, scale: int = 2) -> dict[str, np.ndarray]:
    """head -> (36, slots) int16 targets of `picture` as drawn at `scale`."""
    board = TargetBoard(picture.kind)
    if isinstance(picture, Scene):
        board.boards["occupied"][...] = 0
        board.boards["background"][...] = _BACKGROUNDS.index(picture.background)
        for thing in picture.objects:
            rows = slice(2 * thing.row, 2 * thing.row + 2)
            columns = slice(2 * thing.column, 2 * thing.column + 2)
            board.boards["occupied"][rows, columns] = 1
            board.boards["colour"][rows, columns] = _COLOUR_NAMES.index(thing.colour)
            board.boards["shape"][rows, columns] = SHAPES.index(thing.shape)
            board.boards["size"][rows, columns] = _SIZE_NAMES.index(thing.size)
    elif isinstance(picture, Chart):
        _chart_targets(board, picture, scale)
    else:
        _card_targets(board, picture, scale)
    return board.flat()


def _chart_targets(board: TargetBoard, chart: Chart, scale: int) -> None:
    font = font_for(chart.font, 16.5, scale)
    words = chart.title.split()
    width = font.getlength(chart.title) / scale
    left = (SIDE - width) / 2
    spans = []
    for index, word in enumerate(words):
        start = left + font.getlength(" ".join(words[:index]) + " " * (index > 0)) / scale
        spans.append((word, start, start + font.getlength(word) / scale))
    board.text(15, spans, font, scale)
    board.gist(15, words[0], "")
    label_font = font_for(chart.font, 14.5, scale)
    for index, bar in enumerate(chart.bars):
        y = ROW * (chart.first_row + index) + 14 + chart.drop
        width = label_font.getlength(bar.label) / scale
        right = BAR_LEFT - 4
        board.text(y, [(bar.label, right - width, right)], label_font, scale)
        left = BAR_LEFT + BAR_UNIT * bar.value + 4
        printed = str(bar.value)
        board.text(y, [(printed, left, left + font.getlength(printed) / scale)], font, scale)
        board.gist(y, bar.label, str(bar.value))
        board.boards["colour"][int(y // ROW), :, 0] = _COLOUR_NAMES.index(bar.colour)
    board.finish_text()


def _card_targets(board: TargetBoard, card: Card, scale: int) -> None:
    font = font_for(card.font, CARD_SIZE, scale)
    for index, line in enumerate(card.lines):
        y = line_middle(card, index)
        board.text(y, line_spans(card, index, scale), font, scale)
        board.gist(y, line.words[0], line.number)
    board.finish_text()


class VisionHeads(nn.Module):
    """One linear layer for all heads, split afterwards."""

    def __init__(self) -> None:
        super().__init__()
        self.widths = [slots * classes for slots, classes in HEADS.values()]
        self.project = nn.Linear(TEXT_WIDTH, sum(self.widths))

    def forward(
        self, features: Tensor, targets: dict[str, Tensor]
    ) -> tuple[Tensor, dict[str, tuple[int, int]]]:
        """The mean of the heads' losses, and head -> (right, asked).

        features: (pictures, 36, 192) float; targets: head -> (pictures, 36, slots) int64.
        """
        losses, right = [], {}
        outputs = linear(features, self.project.weight, self.project.bias).split(
            self.widths, dim=-1
        )
        for (name, (_, classes)), output in zip(HEADS.items(), outputs, strict=True):
            logits = output.reshape(-1, classes)
            wanted = targets[name].reshape(-1)
            keep = wanted != IGNORE
            if not bool(keep.any()):
                continue
            logits, wanted = logits[keep], wanted[keep]
            losses.append(functional.cross_entropy(logits, wanted))
            # Empty space is easy: count only tokens that show something.
            blank = {"word": 0, "row_word": 0, "characters": 0, "row_number": 10}.get(name, -1)
            shown = wanted != blank
            hits = (logits.argmax(-1) == wanted) & shown
            right[name] = (int(hits.sum()), int(shown.sum()))
        return torch.stack(losses).sum() / len(HEADS), right
