"""Attention for a pass behind a mask that does not copy the cache.

Where several query heads share a key and value head (grouped-query attention), transformers' SDPA
copies all keys and values once for each of them as soon as a mask is given: on a 7B model that is
the whole cache, several times over, at every layer of every tree pass. Here the query heads of a
group lie along the batch axis instead, and keys and values are seen from there without a copy. The
arithmetic is the same to the bit on a CPU.

Registered with transformers under `TREE_ATTENTION`, as any attention may be; models that are loaded
by name use it. One that was loaded elsewhere keeps what it has.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.nn.functional import scaled_dot_product_attention
from transformers import AttentionInterface, AttentionMaskInterface
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import sdpa_mask

TREE_ATTENTION = "recap_sdpa"


def tree_attention(
    module: torch.nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    dropout: float = 0.0,
    scaling: float | None = None,
    **options: Any,
) -> tuple[torch.Tensor, None]:
    """Attention of (1, heads, rows, width) queries over (1, groups, length, width) keys and values.

    Returns (1, rows, heads, width). Everything but a masked pass of one request over grouped heads
    goes to transformers' own SDPA.
    """
    heads, groups = query.shape[1], key.shape[1]
    if attention_mask is None or heads == groups or query.shape[0] != 1:
        return sdpa_attention_forward(
            module, query, key, value, attention_mask, dropout=dropout, scaling=scaling, **options
        )
    members = heads // groups
    rows, width = query.shape[2:]
    output = scaled_dot_product_attention(
        query.reshape(groups, members, rows, width).transpose(0, 1),
        key.expand(members, -1, -1, -1),
        value.expand(members, -1, -1, -1),
        attn_mask=attention_mask,
        dropout_p=dropout,
        scale=scaling,
    )
    return output.transpose(0, 1).reshape(1, heads, rows, -1).transpose(1, 2).contiguous(), None


AttentionInterface.register(TREE_ATTENTION, tree_attention)
AttentionMaskInterface.register(TREE_ATTENTION, sdpa_mask)
