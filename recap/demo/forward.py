"""The training-time forward pass: transformers' own modules, run in batches.

transformers runs the vision blocks picture by picture and the temporal half of the patch
embedding on the same pixels twice; on two CPU cores that is most of the time. These functions use
the *same parameters* for whole batches and, in float32, give the same numbers
(`tests/demo/test_model.py` compares). In training, on CPUs that multiply bfloat16 natively, the
factors of matrix products are rounded to it, which halves the time of a step; sums, norms, softmax
and the weights themselves stay in float32.
Non-goals: windows, videos, caches, pictures that are not 168x168.
"""

from __future__ import annotations

import functools
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional
from transformers import Qwen2_5_VLForConditionalGeneration
from transformers.image_utils import OPENAI_CLIP_MEAN, OPENAI_CLIP_STD
from transformers.models.qwen2_5_vl.modeling_qwen2_5_vl import (
    Qwen2_5_VisionTransformerPretrainedModel,
)

from recap.demo.model import GRID, MERGE, PATCH


@functools.cache
def bfloat16_is_fast() -> bool:
    """Whether this CPU has bfloat16 dot products (elsewhere they are emulated, and slow)."""
    capabilities = torch.cpu.get_capabilities()
    return bool(capabilities.get("avx512_bf16") or capabilities.get("amx_bf16"))


class _Bfloat16Linear(torch.autograd.Function):
    """x @ weight.T with inputs rounded to bfloat16, for training; sums are float32 inside."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, out_dtype: torch.dtype) -> Tensor:
        half, half_weight = x.to(torch.bfloat16), weight.to(torch.bfloat16)
        ctx.save_for_backward(half, half_weight)
        ctx.x_dtype = x.dtype
        return functional.linear(half, half_weight).to(out_dtype)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, Tensor, None]:
        half, half_weight = ctx.saved_tensors
        gradient = gradients[0].to(torch.bfloat16)
        x_gradient = (gradient @ half_weight).to(ctx.x_dtype) if ctx.needs_input_grad[0] else None
        rows = gradient.flatten(0, -2)
        weight_gradient = (rows.t() @ half.flatten(0, -2)).float()
        return x_gradient, weight_gradient, None


def linear(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    out_dtype: torch.dtype = torch.float32,
) -> Tensor:
    """`functional.linear`, through bfloat16 where that is fast and gradients are wanted.

    x: (..., in) float32 or bfloat16; weight: (out, in) float32; returns (..., out) of `out_dtype`,
    which only the fast path heeds.
    """
    if not (torch.is_grad_enabled() and x.device.type == "cpu" and bfloat16_is_fast()):
        return functional.linear(x, weight, bias)
    y = _Bfloat16Linear.apply(x, weight, out_dtype)
    return y if bias is None else y + bias.to(out_dtype)


def _mlp(block: Any, x: Tensor) -> Tensor:
    """down(silu(gate(x)) * up(x)) of a block with those three projections."""
    gate, up, down = block.gate_proj, block.up_proj, block.down_proj
    half = torch.bfloat16
    inner = functional.silu(linear(x, gate.weight, gate.bias, half))
    return linear(inner * linear(x, up.weight, up.bias, half), down.weight, down.bias)


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
    x = linear(patchify(pixels), weight)
    batch, tokens, width = x.shape
    heads = visual.config.num_heads
    theta = float(visual.config.rope_parameters["rope_theta"])
    cos, sin = _vision_angles(width // heads, theta, x.device)
    for block in visual.blocks:
        normed = functional.rms_norm(x, (width,), block.norm1.weight, 1e-6)
        qkv = (
            linear(normed, block.attn.qkv.weight, block.attn.qkv.bias)
            .view(batch, tokens, 3, heads, -1)
            .permute(2, 0, 3, 1, 4)
        )
        q, k, v = qkv.unbind(0)
        out = functional.scaled_dot_product_attention(_rotate(q, cos, sin), _rotate(k, cos, sin), v)
        out = out.transpose(1, 2).reshape(batch, tokens, width)
        x = x + linear(out, block.attn.proj.weight, block.attn.proj.bias)
        x = x + _mlp(block.mlp, functional.rms_norm(x, (width,), block.norm2.weight, 1e-6))
    x = functional.rms_norm(x, (width,), visual.merger.ln_q.weight, 1e-6)
    widen, activation, narrow = visual.merger.mlp
    x = activation(linear(x.view(batch, GRID * GRID, -1), widen.weight, widen.bias))
    return linear(x, narrow.weight, narrow.bias)


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
        parts = (attn.q_proj, attn.k_proj, attn.v_proj)
        qkv = linear(
            normed, torch.cat([p.weight for p in parts]), torch.cat([p.bias for p in parts])
        )
        qkv = qkv.view(rows, length, heads + 2 * kv_heads, -1).transpose(1, 2)
        q, k, v = qkv.split((heads, kv_heads, kv_heads), dim=1)
        k = _rotate(k, cos, sin).repeat_interleave(heads // kv_heads, dim=1)
        v = v.repeat_interleave(heads // kv_heads, dim=1)
        out = functional.scaled_dot_product_attention(_rotate(q, cos, sin), k, v, attn_mask=mask)
        x = x + linear(out.transpose(1, 2).reshape(rows, length, width), attn.o_proj.weight)
        normed = functional.rms_norm(x, (width,), layer.post_attention_layernorm.weight, eps)
        x = x + _mlp(mlp, normed)
    return functional.rms_norm(x, (width,), text.norm.weight, eps)
