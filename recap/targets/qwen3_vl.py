"""Qwen3-VL: M-RoPE as Qwen2.5-VL; features of several vision layers go into the first layers.

Those features (DeepStack) are added to the picture's own rows while they are prefilled. Rows behind
the picture read them through the cache, so a pass over text rows needs nothing of them.
"""

from __future__ import annotations

from transformers import Qwen3VLConfig, Qwen3VLForConditionalGeneration
from transformers.models.qwen2_vl.image_processing_pil_qwen2_vl import Qwen2VLImageProcessorPil

from recap.targets.qwen2_5_vl import Qwen25VLTarget, tiny_config
from recap.targets.tiny import Tiny


class Qwen3VLTarget(Qwen25VLTarget):
    """Adapter of `Qwen3VLForConditionalGeneration`."""

    families = ("qwen3_vl",)


TINY = {
    "qwen3_vl": Tiny(
        Qwen3VLForConditionalGeneration,
        tiny_config(
            Qwen3VLConfig,
            "out_hidden_size",
            {
                "hidden_size": 32,
                "intermediate_size": 48,
                "num_position_embeddings": 64,
                "deepstack_visual_indexes": [0, 1],
            },
            mrope_interleaved=True,
        ),
        lambda: Qwen2VLImageProcessorPil(patch_size=16, min_pixels=64 * 64, max_pixels=192 * 192),
    )
}
