"""The training-time forward pass: transformers' own modules, run in batches.

transformers runs the vision blocks picture by picture and the temporal half of the patch
embedding on the same pixels twice; on two CPU cores that is most of the time. These functions use
the *same parameters* for whole batches and give the same numbers (`tests/demo/test_model.py`
compares). Non-goals: windows, videos, caches, pictures that are not 168x168.
"""

from __future__ import annotations

import functools

import torch
from torch import Tensor
from torch.nn import functional
from transformers import Qwen2_5_VLForConditionalGeneration
from transformers.image_utils import OPENAI_CLIP_MEAN, OPENAI_CLIP_STD
from transformers.models.qwen2_5_vl.modeling_qwen2_5_vl import (
    Qwen2_5_VisionTransformerPretrainedModel,
)

from recap.demo.model import GRID, MERGE, PATCH


def patchify(pixels: Tensor) -> Tensor:
    """(pictures, 3, 168, 168) uint8 -> (pictures, 144, 588) float32, normalised.

    Patch order and values are those of `Qwen2VLImageProcessorPil`, without its temporal copies.
    """
    mean = torch.tensor(OPENAI_CLIP_MEAN, device=pixels.device).view(3, 1, 1)
    std = torch.tensor(OPENAI_CLIP_STD, device=pixels.device).view(3, 1, 1)
    values = (pixels.float() / 255 - mean) / std
    values = values.view(-1, 3, GRID, MERGE, PATCH, GRID, MERGE, PATCH)
    values = values.permute(0, 2, 5, 3, 6, 1, 4, 7)
    return values.reshape(len(pixels), GRID * GRID * MERGE * MERGE, 3 * PATCH * PATCH)


def _rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    left, right = x.chunk(2, dim=-1)
    return x * cos + torch.cat((-right, left), dim=-1) * sin


@functools.lru_cache(maxsize=4)
def _vision_angles(dim: int, theta: float, device: torch.device) -> tuple[Tensor, Tensor]:
    """cos, sin: (144, dim), patches in merge order (2x2 blocks)."""
    grid = torch.arange(GRID * MERGE).view(GRID, MERGE)
    rows = grid[:, None, :, None].expand(GRID, GRID, MERGE, MERGE).reshape(-1)
    columns = grid[None, :, None, :].expand(GRID, GRID, MERGE, MERGE).reshape(-1)
    frequency = 1.0 / theta ** (torch.arange(0, dim // 2, 2).float() / (dim // 2))
    half = torch.cat((rows[:, None] * frequency, columns[:, None] * frequency), dim=-1)
    angles = torch.cat((half, half), dim=-1)
    return angles.cos().to(device), angles.sin().to(device)


def encode_pictures(visual: Qwen2_5_VisionTransformerPretrainedModel, pixels: Tensor) -> Tensor:
    """(pictures, 3, 168, 168) uint8 -> (pictures, 36, text width) merged vision tokens."""
    weight = visual.patch_embed.proj.weight.sum(2).flatten(1)  # both frames are the same picture
    x = functional.linear(patchify(pixels), weight)
    batch, tokens, width = x.shape
    heads = visual.config.num_heads
    theta = float(visual.config.rope_parameters["rope_theta"])
    cos, sin = _vision_angles(width // heads, theta, x.device)
    for block in visual.blocks:
        normed = functional.rms_norm(x, (width,), block.norm1.weight, 1e-6)
        qkv = block.attn.qkv(normed).view(batch, tokens, 3, heads, -1).permute(2, 0, 3, 1, 4)
        q, k, v = qkv.unbind(0)
        out = functional.scaled_dot_product_attention(_rotate(q, cos, sin), _rotate(k, cos, sin), v)
        x = x + block.attn.proj(out.transpose(1, 2).reshape(batch, tokens, width))
        normed = functional.rms_norm(x, (width,), block.norm2.weight, 1e-6)
        mlp = block.mlp
        x = x + mlp.down_proj(functional.silu(mlp.gate_proj(normed)) * mlp.up_proj(normed))
    x = functional.rms_norm(x, (width,), visual.merger.ln_q.weight, 1e-6)
    return visual.merger.mlp(x.view(batch, GRID * GRID, -1))


def _text_angles(
    model: Qwen2_5_VLForConditionalGeneration, positions: Tensor
) -> tuple[Tensor, Tensor]:
    """positions: (3, rows, length) int64 -> cos, sin: (rows, 1, length, head dim)."""
    rope = model.model.language_model.rotary_emb
    angles = positions[..., None].float() * rope.inv_freq
    parts = angles.split(rope.mrope_section, dim=-1)
    angle = torch.cat([part[i % 3] for i, part in enumerate(parts)], dim=-1)
    angle = torch.cat((angle, angle), dim=-1)[:, None]
    return angle.cos(), angle.sin()


def decode_hidden(
    model: Qwen2_5_VLForConditionalGeneration, embeds: Tensor, positions: Tensor, mask: Tensor
) -> Tensor:
    """The last hidden states after the final norm: (rows, length, width).

    embeds: (rows, length, width); positions: (3, rows, length); mask: (rows, 1, length, length),
    0 where a token may attend and a very negative number where not.
    """
    text = model.model.language_model
    config = text.config
    rows, length, width = embeds.shape
    heads, kv_heads = config.num_attention_heads, config.num_key_value_heads
    eps = config.rms_norm_eps
    cos, sin = _text_angles(model, positions)
    x = embeds
    for layer in text.layers:
        attn, mlp = layer.self_attn, layer.mlp
        normed = functional.rms_norm(x, (width,), layer.input_layernorm.weight, eps)
        q = attn.q_proj(normed).view(rows, length, heads, -1).transpose(1, 2)
        k = attn.k_proj(normed).view(rows, length, kv_heads, -1).transpose(1, 2)
        v = attn.v_proj(normed).view(rows, length, kv_heads, -1).transpose(1, 2)
        k = _rotate(k, cos, sin).repeat_interleave(heads // kv_heads, dim=1)
        v = v.repeat_interleave(heads // kv_heads, dim=1)
        out = functional.scaled_dot_product_attention(_rotate(q, cos, sin), k, v, attn_mask=mask)
        x = x + attn.o_proj(out.transpose(1, 2).reshape(rows, length, width))
        normed = functional.rms_norm(x, (width,), layer.post_attention_layernorm.weight, eps)
        x = x + mlp.down_proj(functional.silu(mlp.gate_proj(normed)) * mlp.up_proj(normed))
    return functional.rms_norm(x, (width,), text.norm.weight, eps)
