"""Muon against its reference in torch, and what an orthogonal update must be."""

from __future__ import annotations

import pytest
import torch

from recap.demo import muon
from recap.demo.muon import Muon, orthogonal

SHAPES = ((64, 192), (192, 64), (64, 192), (48, 48))


def _matrices() -> list[torch.nn.Parameter]:
    generator = torch.Generator().manual_seed(3)
    return [torch.nn.Parameter(torch.randn(shape, generator=generator)) for shape in SHAPES]


@pytest.mark.parametrize("fast", [False, True])
def test_updates_are_those_of_torch(monkeypatch, fast):
    """Momentum, decay, size and direction, over several steps, up to the rounding of bfloat16."""
    monkeypatch.setattr(muon, "bfloat16_is_fast", lambda: fast)
    ours, theirs = _matrices(), _matrices()
    first = Muon(ours, lr=0.02)
    second = torch.optim.Muon(
        theirs, lr=0.02, weight_decay=0.01, momentum=0.95, adjust_lr_fn="match_rms_adamw"
    )
    generator = torch.Generator().manual_seed(4)
    for _ in range(5):
        for mine, other in zip(ours, theirs, strict=True):
            mine.grad = torch.randn(mine.shape, generator=generator)
            other.grad = mine.grad.clone()
        before = [m.detach().clone() for m in theirs]
        first.step()
        second.step()
        for mine, other, old in zip(ours, theirs, before, strict=True):
            moved = (other - old).norm()
            assert (mine - other).norm() < 0.1 * moved


def test_matrices_take_turns(monkeypatch):
    """Every second step, by twice the step, with a momentum that has taken in every gradient."""
    monkeypatch.setattr(muon, "bfloat16_is_fast", lambda: False)
    every, by_turns = _matrices(), _matrices()
    first, second = Muon(every, lr=0.02, weight_decay=0), Muon(by_turns, 0.02, 0, turns=2)
    generator = torch.Generator().manual_seed(6)
    for step in range(6):
        for one, other in zip(every, by_turns, strict=True):
            one.grad = torch.randn(one.shape, generator=generator)
            other.grad = one.grad.clone()
        before = [[m.detach().clone() for m in matrices] for matrices in (every, by_turns)]
        first.step()
        second.step()
        for index in range(len(SHAPES)):
            moved, turned = every[index] - before[0][index], by_turns[index] - before[1][index]
            wanted = 2 * moved if (index + step) % 2 == 0 else torch.zeros_like(moved)
            torch.testing.assert_close(turned, wanted, atol=1e-5, rtol=1e-3)
    again = Muon(_matrices(), turns=2)
    again.load_state_dict(second.state_dict())
    assert again.param_groups[0]["steps"] == 6  # whose turn it is survives a checkpoint


def test_singular_values_are_near_one(monkeypatch):
    """Wide, tall and square matrices, several at once; none leaks into another."""
    monkeypatch.setattr(muon, "bfloat16_is_fast", lambda: False)
    for shape in SHAPES:
        batch = torch.randn((3, *shape), generator=torch.Generator().manual_seed(5))
        values = torch.linalg.svdvals(orthogonal(batch).float())
        assert values.max() < 1.3
        assert values.median() > 0.6
        torch.testing.assert_close(orthogonal(batch)[1], orthogonal(batch[1:2])[0])


def test_only_matrices_are_taken():
    """Biases and embeddings belong to another optimiser."""
    with pytest.raises(ValueError, match="matrices"):
        Muon([torch.nn.Parameter(torch.zeros(3))])
