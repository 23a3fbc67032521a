"""Qwen2-VL: as Qwen2.5-VL, with a vision tower that attends to the whole picture."""

from __future__ import annotations

from transformers import Qwen2VLConfig, Qwen2VLForConditionalGeneration

from recap.targets.qwen2_5_vl import Qwen25VLTarget, tiny_config
from recap.targets.tiny import Tiny, image_processor


class Qwen2VLTarget(Qwen25VLTarget):
    """Adapter of `Qwen2VLForConditionalGeneration`."""

    families = ("qwen2_vl",)


TINY = {
    "qwen2_vl": Tiny(
        Qwen2VLForConditionalGeneration,
        tiny_config(Qwen2VLConfig, "hidden_size", {"embed_dim": 32, "mlp_ratio": 2}),
        image_processor,
    )
}
