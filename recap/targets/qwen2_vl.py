"""Qwen2-VL: as Qwen2.5-VL, with a vision tower that attends to the whole picture."""

from __future__ import annotations

from recap.targets.qwen2_5_vl import Qwen25VLTarget


class Qwen2VLTarget(Qwen25VLTarget):
    """Adapter of `Qwen2VLForConditionalGeneration`."""

    families = ("qwen2_vl",)
