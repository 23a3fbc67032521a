"""Text-only causal models whose decoder is `model.model` and whose head is `model.lm_head`."""

from __future__ import annotations

from recap.targets.base import Target


class CausalTarget(Target):
    """Adapter of Llama, Qwen2 and Qwen3 language models. They take no picture."""

    families = ("llama", "qwen2", "qwen3")
