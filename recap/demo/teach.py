"""Stage 1: the vision tower alone, taught by the heads of `recap.demo.heads`.

The result is a checkpoint with the tower and its heads; stage 2 (`train`) starts from it and
turns the heads on again once the tower learns there, so that reading goes on improving.
"""

from __future__ import annotations

import time
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn
from transformers.models.qwen2_5_vl.modeling_qwen2_5_vl import (
    Qwen2_5_VisionTransformerPretrainedModel,
)

from recap.demo.draw import draw, draw_smooth, to_pixels
from recap.demo.facts import Picture, sample
from recap.demo.forward import encode_pictures
from recap.demo.heads import HEADS, VisionHeads, targets_of
from recap.demo.model import build_config
from recap.demo.optimise import (
    Optimiser,
    Progress,
    learning_rate,
    load_checkpoint,
    save_checkpoint,
)
from recap.demo.tokenizer import SPECIALS

BATCH = 32
CPU = torch.device("cpu")
# Reading takes the longest to learn, so half of the pictures are cards.
_CYCLE = ("scene", "card", "chart", "card")


class Tower(nn.Module):
    """The vision tower and its heads: what stage 1 trains."""

    def __init__(self) -> None:
        super().__init__()
        specials = dict.fromkeys(SPECIALS, 0)  # the tower does not know them
        config = build_config(vocab_size=1, special_ids=specials).vision_config
        self.visual = Qwen2_5_VisionTransformerPretrainedModel._from_config(config)
        self.heads = VisionHeads()


def picture_batch(
    pictures: list[Picture], device: torch.device = CPU
) -> tuple[Tensor, dict[str, Tensor]]:
    """Pixels (pictures, 3, 168, 168) uint8 and head -> (pictures, 36, slots) int64 targets."""
    # Every eighth picture is drawn as the app shows it: three times as large, with smooth edges.
    drawn = [draw_smooth(p) if i % 8 == 7 else draw(p) for i, p in enumerate(pictures)]
    pixels = torch.from_numpy(np.stack([to_pixels(image) for image in drawn]))
    targets = [targets_of(p) for p in pictures]
    boards = {n: torch.from_numpy(np.stack([t[n] for t in targets])) for n in HEADS}
    return pixels.to(device), {n: board.to(device).long() for n, board in boards.items()}


def _pictures(seed: int, step: int) -> list[Picture]:
    chosen = []
    for i in range(BATCH):
        name = f"train/{seed}/vision/{step * BATCH + i}"
        # Turned by one every step, or the smooth pictures would always be of the same kind.
        kind = _CYCLE[(i + step) % len(_CYCLE)]
        chosen.append(sample(kind, name, crowded=True))
    return chosen


def teach_tower(
    work: Path,
    seed: int,
    pictures: int,
    lr: float = 2e-3,
    muon_lr: float = 2e-2,
    device: torch.device = CPU,
) -> Path:
    """Train on `pictures` pictures, or go on where `work/vision.pt` stopped; returns that path."""
    path = work / "vision.pt"
    torch.manual_seed(seed)
    tower = Tower().to(device)
    optimiser = Optimiser([(list(tower.named_parameters()), 1.0)], lr, muon_lr)
    total, first = pictures // BATCH, 0
    if state := load_checkpoint(path):
        tower.load_state_dict(state["tower"])
        first = int(state["step"])
        if "optimiser" in state:
            optimiser.load_state_dict(state["optimiser"])
    progress = Progress("vision", total * BATCH, first * BATCH, "pictures")
    saved = time.perf_counter()
    for step in range(first, total):
        pixels, targets = picture_batch(_pictures(seed, step), device)
        loss, right = tower.heads(encode_pictures(tower.visual, pixels), targets)
        loss.backward()
        optimiser.step(learning_rate(step, total, warmup=min(100, total // 10 + 1)))
        shares = {name: hits / max(1, asked) for name, (hits, asked) in right.items()}
        progress.add((step + 1) * BATCH, loss=float(loss.detach()), **shares)
        if time.perf_counter() - saved > 120 or step + 1 == total:
            state = {"tower": tower.state_dict(), "step": step + 1}
            if step + 1 < total:
                state["optimiser"] = optimiser.state_dict()
            save_checkpoint(path, state)
            saved = time.perf_counter()
    return path
