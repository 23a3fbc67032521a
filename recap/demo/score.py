"""How right an answer is: counts of (right, asked) by comparing parsed answers with the facts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from recap.demo.facts import Card, Scene
from recap.demo.parse import Seen

T = TypeVar("T")


@dataclass
class Share:
    """A share of things that are right, collected over many answers."""

    right: int = 0
    asked: int = 0

    def add(self, right: int, asked: int) -> None:
        self.right += right
        self.asked += asked

    @property
    def value(self) -> float:
        """Between 0 and 1; 0 where nothing was asked."""
        return self.right / self.asked if self.asked else 0.0


@dataclass
class Shares:
    """Shares by name, in order of first use."""

    by_name: dict[str, Share] = field(default_factory=dict)

    def add(self, name: str, right: int, asked: int = 1) -> None:
        self.by_name.setdefault(name, Share()).add(right, asked)

    def update(self, other: Shares) -> None:
        """Add another collection's counts."""
        for name, share in other.by_name.items():
            self.add(name, share.right, share.asked)


def best_alignment(answer: Sequence[T], truth: Sequence[T], gain: Callable[[T, T], int]) -> int:
    """The largest sum of gains over alignments that keep the order of both sequences.

    A missing or an invented element costs its own gain and does not shift the rest.
    """
    previous = [0] * (len(truth) + 1)
    for said in answer:
        current = [0]
        for j, true in enumerate(truth):
            current.append(max(previous[j] + gain(said, true), previous[j + 1], current[j]))
        previous = current
    return previous[-1]


def same(a: T, b: T) -> int:
    """Gain 1 for equal elements."""
    return int(a == b)


def scene_truth(scene: Scene) -> list[Seen]:
    """The facts of a scene in the form of parsed answers."""
    return [Seen(t.colour, t.shape, t.size, t.place) for t in scene.objects]


def attributes_right(answer: list[Seen] | None, scene: Scene) -> tuple[int, int]:
    """(right, asked) attributes; four a shape, and invented shapes count as asked."""
    truth = scene_truth(scene)
    if answer is None:
        return 0, 4 * len(truth)
    right = best_alignment(answer, truth, lambda a, b: a.agreement(b))
    return right, 4 * max(len(answer), len(truth))


def words_right(answer: list[list[str]], card: Card) -> tuple[int, int]:
    """(right, asked) printed words and numbers, in reading order; invented words count as asked."""
    said = [word for line in answer for word in line]
    truth = [word for line in card.lines for word in line.text.split()]
    return best_alignment(said, truth, same), max(len(said), len(truth))
