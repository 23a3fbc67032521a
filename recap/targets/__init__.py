"""Targets by family and by name. A new family is one adapter file and one line in `ADAPTERS`.

target = load_target("demo")                      # the bundled model
target = load_target("Qwen/Qwen2.5-VL-7B-Instruct", device="cuda")
target = make_target(model, tokenizer)            # around a model that is loaded already
"""

from __future__ import annotations

from typing import Any

from recap.errors import ModelError
from recap.targets.base import Prefill, Request, Target
from recap.targets.causal import CausalTarget
from recap.targets.loading import (
    demo_path,
    load_from_pretrained,
    resolve_device,
    resolve_dtype,
)
from recap.targets.qwen2_5_vl import Qwen25VLTarget
from recap.targets.tiny import byte_tokenizer, image_processor, tiny_model

__all__ = [
    "ADAPTERS",
    "TINY_RANDOM",
    "Prefill",
    "Request",
    "Target",
    "demo_path",
    "load_target",
    "make_target",
]

#: Name of a small random model that needs no files.
TINY_RANDOM = "tiny-random"

#: Adapters by the `model_type` of the configurations they serve.
ADAPTERS: dict[str, type[Target]] = {
    family: adapter for adapter in (CausalTarget, Qwen25VLTarget) for family in adapter.families
}


def make_target(
    model: Any, tokenizer: Any = None, image_processor: Any = None, **kwargs: Any
) -> Target:
    """A target around a loaded model. Raises `ModelError` for a family without an adapter."""
    family = model.config.model_type
    adapter = ADAPTERS.get(family)
    if adapter is None:
        raise ModelError(
            f"Models of type {family!r} are not supported. "
            f"Supported: {', '.join(sorted(ADAPTERS))}."
        )
    if image_processor is not None:
        kwargs["image_processor"] = image_processor
    return adapter(model, tokenizer, **kwargs)


def load_target(name: str = "demo", *, device: str = "auto", dtype: str = "auto") -> Target:
    """Load a model by name: `demo`, `tiny-random`, a local folder, or a Hugging Face id.

    `device`: `auto`, `cpu`, `cuda`, `mps`, ...; `dtype`: `auto`, `float32`, `bfloat16`, `float16`,
    `float64`. Raises `ModelError` with what to do.
    """
    where = resolve_device(device)
    kind = resolve_dtype(dtype, where)
    if name == TINY_RANDOM:
        model = tiny_model("qwen2_5_vl").to(where, kind)
        return make_target(model, byte_tokenizer(), image_processor(), name=name)
    return load_from_pretrained(name, ADAPTERS, where, kind)
