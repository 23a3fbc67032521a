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
