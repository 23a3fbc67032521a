"""Qwen3-VL: M-RoPE as Qwen2.5-VL; features of several vision layers go into the first layers.

Those features (DeepStack) are added to the picture's own rows while they are prefilled. Rows behind
the picture read them through the cache, so a pass over text rows needs nothing of them.
"""

from __future__ import annotations

from recap.targets.qwen2_5_vl import Qwen25VLTarget


class Qwen3VLTarget(Qwen25VLTarget):
    """Adapter of `Qwen3VLForConditionalGeneration`."""

    families = ("qwen3_vl",)
