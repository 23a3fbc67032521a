"""Stage 2: the whole model, from the taught vision tower, on packed requests and answers.

The tower stands still until the decoder has learnt to look. Then both learn, and the vision heads
stay on, so that reading goes on improving. The weights that are kept in the end are a moving
average of the trained ones.
"""

from __future__ import annotations

import random
import time
from pathlib import Path

import torch
from torch import Tensor
from torch.nn import functional
from transformers import PreTrainedTokenizerFast, Qwen2_5_VLForConditionalGeneration

from recap.demo.facts import Picture, sample
from recap.demo.forward import decode_hidden, encode_pictures, linear
from recap.demo.heads import VisionHeads
from recap.demo.model import build_model
from recap.demo.optimise import (
    Average,
    Optimiser,
    Progress,
    learning_rate,
    load_checkpoint,
    save_checkpoint,
)
from recap.demo.pack import IGNORE, Packer, Rows
from recap.demo.teach import CPU, picture_batch
from recap.demo.tokenizer import special_ids

BATCH = 8  # pictures a step; about 40 requests
HEADS_WEIGHT = 1.0
# Muon's iteration would be a quarter of a step over so few pictures.
MUON_TURNS = 4
# The tower arrives trained: it moves more slowly than the decoder, which starts from nothing.
TOWER_SCALE = 0.3
# For this share of the steps the tower stands still. As long as the decoder does not look, its
# gradient is noise and would wash out what the tower has learnt; and for the time that the heads
# alone would take here, stage 1 shows the tower many more pictures. Behind it the tower takes every
# step: a run in which it took every other one read only 85 % of the words of cards.
STILL_SHARE = 0.3
# A scene has the most to say: place, size, colour and shape of up to six things. With 15,000 of
# them instead of 22,000, two attributes in a hundred more are wrong. With 6,400 charts of 34,000
# pictures, two bar labels in a hundred more were misread than with 9,500 of 38,000.
_CYCLE = ("scene", "card", "scene", "chart")


def answer_loss(
    model: Qwen2_5_VLForConditionalGeneration, features: Tensor, rows: Rows, image_id: int
) -> tuple[Tensor, float]:
    """Mean cross-entropy of the answers' tokens, and the share that greedy choice gets right.

    features: (pictures, 36, width), which take the place of the image tokens.
    """
    embeds = model.model.language_model.embed_tokens(rows.ids)
    image = (rows.ids == image_id)[..., None]
    embeds = embeds.masked_scatter(image, features)
    hidden = decode_hidden(model, embeds, rows.positions, rows.mask())
    # Logits cost as much as a layer: only where the next token belongs to an answer.
    wanted = rows.labels[:, 1:]
    keep = wanted != IGNORE
    target, chosen = wanted[keep], hidden[:, :-1][keep]
    # The kernels of every new number of rows are made and kept: round it up.
    padded = functional.pad(chosen, (0, 0, 0, -len(chosen) % 128))
    logits = linear(padded, model.lm_head.weight)[: len(chosen)]
    right = float((logits.detach().argmax(-1) == target).float().mean())
    return functional.cross_entropy(logits, target), right


def _pictures(seed: int, step: int) -> list[Picture]:
    # Turned by one more every step, or the smooth one of a batch would always be of the same kind.
    start = step * (BATCH + 1)
    return [
        sample(_CYCLE[(start + i) % len(_CYCLE)], f"train/{seed}/joint/{step * BATCH + i}")
        for i in range(BATCH)
    ]


def train_model(
    work: Path,
    tokenizer: PreTrainedTokenizerFast,
    seed: int,
    pictures: int,
    lr: float = 1.5e-3,
    muon_lr: float = 4e-3,
    device: torch.device = CPU,
    save_seconds: float = 150.0,
) -> Path:
    """Train on `pictures` pictures, or take up where `work/model.pt` stopped; returns that path.

    Resumes with the optimiser's state where the checkpoint has it, else from the weights alone.
    """
    path = work / "model.pt"
    torch.manual_seed(seed)
    model = build_model(len(tokenizer), special_ids(tokenizer))
    heads = VisionHeads()
    model.to(device)
    heads.to(device)
    state, first = load_checkpoint(path), 0
    if state is None:
        taught = load_checkpoint(work / "vision.pt")
        if taught is None:
            raise FileNotFoundError(f"no taught vision tower at {work / 'vision.pt'}")
        body = {k.removeprefix("visual."): v for k, v in taught["tower"].items() if "visual." in k}
        model.model.visual.load_state_dict(body)
        head = {k.removeprefix("heads."): v for k, v in taught["tower"].items() if "heads." in k}
        heads.load_state_dict(head)
    else:
        model.load_state_dict(state["model"])
        heads.load_state_dict(state["heads"])
        first = int(state["step"])
    tower = [(n, p) for n, p in model.named_parameters() if "visual." in n]
    tower += [(f"heads.{n}", p) for n, p in heads.named_parameters()]
    decoder = [(n, p) for n, p in model.named_parameters() if "visual." not in n]
    optimiser = Optimiser([(decoder, 1.0), (tower, TOWER_SCALE)], lr, muon_lr, turns=MUON_TURNS)
    average = Average(model, decay=0.995)
    if state is not None and "optimiser" in state:
        optimiser.load_state_dict(state["optimiser"])
        average.weights = {n: w.to(device) for n, w in state["average"].items()}
    packer = Packer(tokenizer)
    total = pictures // BATCH
    progress = Progress("train", total * BATCH, first * BATCH, "pictures")
    saved = time.perf_counter()
    for step in range(first, total):
        chosen = _pictures(seed, step)
        rows = packer.pack_rows(chosen, random.Random(f"train/{seed}/turns/{step}"))
        rows = rows.to(device)
        pixels, targets = picture_batch(chosen, device)
        still = step < STILL_SHARE * total
        with torch.set_grad_enabled(not still):
            features = encode_pictures(model.model.visual, pixels)
            heads_loss, _ = heads(features, targets)
        loss, right = answer_loss(model, features, rows, packer.image)
        (loss if still else loss + HEADS_WEIGHT * heads_loss).backward()
        norm = optimiser.step(learning_rate(step, total, warmup=min(100, total // 10 + 1)))
        average.update(model, step)
        progress.add(
            (step + 1) * BATCH,
            loss=float(loss.detach()),
            right=right,
            heads=float(heads_loss.detach()),
            norm=norm,
            turns=rows.turns,
        )
        if time.perf_counter() - saved > save_seconds or step + 1 == total:
            state = {
                "model": model.state_dict(),
                "heads": heads.state_dict(),
                "average": average.weights,
                "step": step + 1,
            }
            if step + 1 < total:
                state["optimiser"] = optimiser.state_dict()
            save_checkpoint(path, state)
            saved = time.perf_counter()
    return path
