"""Targets by family and by name. A new family is one adapter file in this package.

target = load_target("demo")                      # the bundled model
target = load_target("Qwen/Qwen2.5-VL-7B-Instruct", device="cuda")
target = make_target(model, tokenizer)            # around a model that is loaded already
"""

from __future__ import annotations

from typing import Any

from recap.errors import ModelError, SettingsError
from recap.known import KNOWN, Known, demo_path
from recap.targets import versions as _versions  # noqa: F401  # first: names one too old
from recap.targets.base import Prefill, Request, Target
from recap.targets.discovery import discover
from recap.targets.loading import Progress, load_from_pretrained, refuse_bounds
from recap.targets.placement import resolve_device, resolve_dtype

__all__ = [
    "ADAPTERS",
    "KNOWN",
    "TINY",
    "TINY_RANDOM",
    "Known",
    "Prefill",
    "Request",
    "Target",
    "demo_path",
    "load_target",
    "make_target",
]

#: Name of a small random model that needs no files.
TINY_RANDOM = "tiny-random"

#: Adapters by the `model_type` of the configurations they serve, and small random models by name:
#: a `model_type`, with the decoder where a family has several.
ADAPTERS, TINY = discover(__name__, __path__)


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


def load_target(
    name: str = "demo",
    *,
    device: str = "auto",
    dtype: str = "auto",
    quantize: str | None = None,
    min_pixels: int | None = None,
    max_pixels: int | None = None,
    progress: Progress | None = None,
) -> Target:
    """Load a model by name: one of `KNOWN`, a local folder, a Hugging Face id, or `tiny-random`.

    `tiny-random-FAMILY` is a small random model of that family (`recap.targets.tiny`).

    `device`: `auto`, `cpu`, `cuda`, `cuda:1`, `mps`; a model that one GPU cannot hold is spread
    over all of them, unless one was named by number. `dtype`: `auto`, `float32`, `bfloat16`,
    `float16`, `float64`. `quantize`: `4bit` or `8bit` weights, with the optional package
    bitsandbytes. `min_pixels` and `max_pixels` bound a picture in the way of the family. `progress`
    is called with what is being done and the share of it that is done, in [0, 1] or None.

    Raises `ModelError` with what to do, or `SettingsError` for an option out of range.
    """
    where = resolve_device(device)
    kind = resolve_dtype(dtype, where)
    bounds = {"min_pixels": min_pixels, "max_pixels": max_pixels}
    if name == TINY_RANDOM or name.startswith(f"{TINY_RANDOM}-"):
        if quantize is not None:
            raise SettingsError("quantize", f"means nothing to {name}: leave it out")
        return _tiny(name, where, kind, bounds)
    return load_from_pretrained(
        name, ADAPTERS, where, kind, quantize=quantize, progress=progress, **bounds
    )


def _tiny(name: str, device: Any, dtype: Any, bounds: dict[str, int | None]) -> Target:
    """A small random model that needs no files; without a family, of Qwen2.5-VL's."""
    family = name.removeprefix(TINY_RANDOM).removeprefix("-") or "qwen2_5_vl"
    if family not in TINY:
        raise ModelError(f"There is no {name}. Small random models: {', '.join(TINY)}.")
    tiny = TINY[family]
    model = tiny.make().to(device, dtype)
    refuse_bounds(name, ADAPTERS[model.config.model_type], bounds)
    if tiny.image_processor is None:
        return make_target(model, tiny.tokenizer(), name=name)
    return make_target(model, tiny.tokenizer(), tiny.image_processor(), name=name, **bounds)
