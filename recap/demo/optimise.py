"""What both training stages share: parameter groups, schedule, averaged weights, checkpoints, log.

Matrices inside the blocks are trained with Muon (orthogonalised momentum), everything else
(embeddings, norms, biases, first and last projections) with AdamW.
"""

from __future__ import annotations

import math
import os
import time
from pathlib import Path
from typing import Any

import torch
from torch import nn

from recap.demo.muon import Muon


class Optimiser:
    """Muon and AdamW side by side, with one learning-rate factor for both.

    groups: (named parameters, factor on both learning rates) pairs.
    `lr` is AdamW's learning rate, `muon_lr` that of Muon (whose updates are scaled to the root mean
    square that AdamW's have, but stand a higher rate), which moves a matrix every `turns` steps.
    """

    def __init__(
        self,
        groups: list[tuple[list[tuple[str, nn.Parameter]], float]],
        lr: float,
        muon_lr: float,
        turns: int = 1,
    ) -> None:
        self.parameters = [p for named, _ in groups for _, p in named]
        matrices, rest = [], []
        for named, scale in groups:
            inner = [p for n, p in named if self._is_inner(n, p)]
            outer = [p for n, p in named if not self._is_inner(n, p)]
            matrices.append({"params": inner, "lr": muon_lr * scale})
            rest.append({"params": outer, "lr": lr * scale})
        self.parts: list[torch.optim.Optimizer] = [
            torch.optim.AdamW(rest, betas=(0.9, 0.98), weight_decay=0.01),
            Muon(matrices, weight_decay=0.01, momentum=0.95, turns=turns),
        ]
        for part in self.parts:
            for group in part.param_groups:
                group["base"] = group["lr"]

    @staticmethod
    def _is_inner(name: str, parameter: nn.Parameter) -> bool:
        return parameter.ndim == 2 and ("layers." in name or "blocks." in name or "merger" in name)

    def step(self, factor: float, clip: float = 1.0) -> float:
        """One update at `factor` of the base learning rates; returns the gradient norm."""
        norm = float(nn.utils.clip_grad_norm_(self.parameters, clip))
        for part in self.parts:
            for group in part.param_groups:
                group["lr"] = group["base"] * factor
            part.step()
            part.zero_grad(set_to_none=True)
        return norm

    def state_dict(self) -> list[dict[str, Any]]:
        return [part.state_dict() for part in self.parts]

    def load_state_dict(self, states: list[dict[str, Any]]) -> None:
        for part, state in zip(self.parts, states, strict=True):
            part.load_state_dict(state)


def learning_rate(step: int, total: int, warmup: int, floor: float = 0.02) -> float:
    """Factor in (0, 1]: linear warm-up, then a cosine down to `floor`."""
    if step < warmup:
        return (step + 1) / warmup
    progress = min(1.0, (step - warmup) / max(1, total - warmup))
    return floor + (1 - floor) * 0.5 * (1 + math.cos(math.pi * progress))


class Average:
    """An exponential moving average of the weights: smoother than the last step, and free."""

    def __init__(self, module: nn.Module, decay: float) -> None:
        self.decay = decay
        self.weights = {n: p.detach().clone() for n, p in module.named_parameters()}

    @torch.no_grad()
    def update(self, module: nn.Module, step: int) -> None:
        # A short memory at first, or the untrained start would linger.
        decay = min(self.decay, (1 + step) / (10 + step))
        for name, parameter in module.named_parameters():
            self.weights[name].lerp_(parameter, 1 - decay)


def save_checkpoint(path: Path, state: dict[str, Any]) -> None:
    """Write `state` so that a crash leaves the old file or the new one, never half of one."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_suffix(".part")
    torch.save(state, temporary)
    os.replace(temporary, path)


def load_checkpoint(path: Path) -> dict[str, Any] | None:
    """The state saved at `path`, or None where there is none."""
    return torch.load(path, map_location="cpu", weights_only=True) if path.exists() else None


class Progress:
    """One line every so often: loss, samples a second, time left."""

    def __init__(self, stage: str, total: int, done: int, unit: str, every: float = 20.0) -> None:
        self.stage, self.total, self.unit, self.every = stage, total, unit, every
        self.start_done, self.start = done, time.perf_counter()
        self.last = 0.0
        self.sums: dict[str, float] = {}
        self.weight = 0

    def add(self, done: int, **figures: float) -> None:
        """Average `figures` until the next line is due, then print it."""
        for name, value in figures.items():
            self.sums[name] = self.sums.get(name, 0.0) + value
        self.weight += 1
        now = time.perf_counter()
        if now - self.last < self.every and done < self.total:
            return
        rate = (done - self.start_done) / max(1e-9, now - self.start)
        left = (self.total - done) / max(1e-9, rate)
        numbers = "  ".join(f"{n} {v / self.weight:.4f}" for n, v in self.sums.items())
        print(
            f"[{self.stage}] {done}/{self.total} {self.unit}  {numbers}  "
            f"{rate:.1f} {self.unit}/s  {left / 60:.1f} min left",
            flush=True,
        )
        self.last, self.sums, self.weight = now, {}, 0
