"""Packs several requests about one picture into one training row.

A row is the chat prefix with its picture, then segments: question and answer. Every segment sees
the prefix and itself and no other segment, at the positions that it would have alone, so a row
teaches exactly what separate conversations would, while the picture is encoded once. A segment
without a picture carries its own prefix and does not see the picture either.
"""

from __future__ import annotations

import random
from dataclasses import dataclass

import torch
from torch import Tensor
from transformers import PreTrainedTokenizerFast

from recap.demo.facts import Picture
from recap.demo.grammar import text_turn, turn_about
from recap.demo.model import GRID, IMAGE_TOKENS

LENGTH = 256  # tokens a row
IGNORE = -100
TEXT_ONLY_SHARE = 0.1  # rows that begin with a request without a picture
_TRIES = 5  # how often a turn that does not fit is replaced


@dataclass
class Rows:
    """A batch of packed rows; see `pack_rows` for the shapes."""

    ids: Tensor
    labels: Tensor
    positions: Tensor
    segments: Tensor
    turns: int

    def to(self, device: torch.device) -> Rows:
        """The same rows on `device`."""
        ids, labels, positions, segments = (
            x.to(device) for x in (self.ids, self.labels, self.positions, self.segments)
        )
        return Rows(ids, labels, positions, segments, self.turns)

    def mask(self) -> Tensor:
        """(rows, 1, length, length) float: 0 where a token may attend, very negative where not."""
        query, key = self.segments[:, :, None], self.segments[:, None, :]
        allowed = (query == key) | ((key == 0) & (query > 0))
        allowed &= torch.ones_like(allowed[0]).tril()
        mask = torch.zeros(allowed.shape, device=allowed.device)
        return mask.masked_fill_(~allowed, torch.finfo(torch.float32).min)[:, None]


class Packer:
    """Token ids of the chat format, looked up once."""

    def __init__(self, tokenizer: PreTrainedTokenizerFast) -> None:
        self.tokenizer = tokenizer
        one = tokenizer.convert_tokens_to_ids
        self.image, self.end, self.pad = (
            one("<|image_pad|>"),
            one("<|im_end|>"),
            one("<|endoftext|>"),
        )
        self.open = self._encode("<|im_start|>user\n")
        self.prefix = (
            self.open
            + [one("<|vision_start|>")]
            + [self.image] * IMAGE_TOKENS
            + [one("<|vision_end|>")]
        )
        self.middle = self._encode("<|im_end|>\n<|im_start|>assistant\n")
        self.prefix_positions = self._prefix_positions()
        self.after = int(self.prefix_positions.max()) + 1

    def _encode(self, text: str) -> list[int]:
        # Some 200 times a step: without the bookkeeping of the tokenizer's front.
        return self.tokenizer.backend_tokenizer.encode(text, add_special_tokens=False).ids

    def _prefix_positions(self) -> Tensor:
        """(3, prefix) M-RoPE positions, as `get_rope_index` gives them."""
        start = len(self.open) + 1
        positions = torch.arange(len(self.prefix)).repeat(3, 1)
        rows = torch.arange(GRID).repeat_interleave(GRID)
        columns = torch.arange(GRID).repeat(GRID)
        image = slice(start, start + IMAGE_TOKENS)
        positions[0, image] = start
        positions[1, image] = start + rows
        positions[2, image] = start + columns
        positions[:, start + IMAGE_TOKENS :] = start + GRID
        return positions

    def segment(self, question: str, answer: str, alone: bool) -> tuple[list[int], int]:
        """Ids of one request and answer, and how many of them are the prompt."""
        prompt = (self.open if alone else []) + self._encode(question) + self.middle
        return prompt + self._encode(answer) + [self.end], len(prompt)

    def pack(self, picture: Picture, rng: random.Random) -> tuple[list, list, Tensor, list, int]:
        """One row: ids, labels, positions (3, length), segments, number of turns."""
        ids = list(self.prefix)
        labels = [IGNORE] * len(ids)
        segments = [0] * len(ids)
        positions = [self.prefix_positions]
        turns = 0

        def add(question: str, answer: str, alone: bool) -> bool:
            nonlocal turns
            tokens, prompt = self.segment(question, answer, alone)
            if len(ids) + len(tokens) > LENGTH:
                return False
            turns += 1
            ids.extend(tokens)
            labels.extend([IGNORE] * prompt + tokens[prompt:])
            segments.extend([-turns if alone else turns] * len(tokens))
            start = 0 if alone else self.after
            positions.append(torch.arange(start, start + len(tokens)).repeat(3, 1))
            return True

        # First, since the longest of these would not fit behind anything.
        if rng.random() < TEXT_ONLY_SHARE:
            turn = text_turn(rng)
            add(turn.question, turn.answer, alone=True)
        tries = 0
        while tries < _TRIES:
            turn = turn_about(picture, rng)
            if not add(turn.question, turn.answer, alone=False):
                tries += 1
        rest = LENGTH - len(ids)
        positions.append(torch.zeros(3, rest, dtype=torch.long))
        ids += [self.pad] * rest
        labels += [IGNORE] * rest
        # Padding sees itself only: a row of the mask without any entry would give NaN.
        segments += [-LENGTH - i for i in range(rest)]
        return ids, labels, torch.cat(positions, dim=1), segments, turns

    def pack_rows(self, pictures: list[Picture], rng: random.Random) -> Rows:
        """Rows of `LENGTH` tokens, one a picture: ids, labels and segments (rows, length) int64,
        positions (3, rows, length) int64."""
        packed = [self.pack(picture, rng) for picture in pictures]
        return Rows(
            ids=torch.tensor([row[0] for row in packed]),
            labels=torch.tensor([row[1] for row in packed]),
            positions=torch.stack([row[2] for row in packed], dim=1),
            segments=torch.tensor([row[3] for row in packed]),
            turns=sum(row[4] for row in packed),
        )
