"""Text-only causal models whose decoder is `model.model` and whose head is `model.lm_head`."""

from __future__ import annotations

from typing import Any

from transformers import (
    LlamaConfig,
    LlamaForCausalLM,
    Qwen2Config,
    Qwen2ForCausalLM,
    Qwen3Config,
    Qwen3ForCausalLM,
)

from recap.targets.base import Target
from recap.targets.tiny import Tiny


class CausalTarget(Target):
    """Adapter of Llama, Qwen2 and Qwen3 language models. They take no picture."""

    families = ("llama", "qwen2", "qwen3")


def _tiny(model: Any, config: Any) -> Tiny:
    return Tiny(model, lambda text, ids, scale: config(**text))


TINY = {
    "llama": _tiny(LlamaForCausalLM, LlamaConfig),
    "qwen2": _tiny(Qwen2ForCausalLM, Qwen2Config),
    "qwen3": _tiny(Qwen3ForCausalLM, Qwen3Config),
}
