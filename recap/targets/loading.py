"""Load weights, tokenizer and image processor by name, with errors that say what to do."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from transformers import AutoConfig

from recap.errors import ModelError

if TYPE_CHECKING:
    from recap.targets.base import Target

DTYPES = {
    "float32": torch.float32,
    "float64": torch.float64,
    "bfloat16": torch.bfloat16,
    "float16": torch.float16,
}


def demo_path() -> Path:
    """Where the bundled model lies."""
    return Path(__file__).resolve().parents[2] / "assets" / "demo-vlm"


def resolve_device(device: str) -> torch.device:
    """`auto` is CUDA where there is one, then MPS, then the CPU. Raises `ModelError`."""
    if device == "auto":
        if torch.cuda.is_available():
            return torch.device("cuda")
        return torch.device("mps" if torch.backends.mps.is_available() else "cpu")
    try:
        chosen = torch.device(device)
        torch.empty(0, device=chosen)
    except (RuntimeError, AssertionError, NotImplementedError) as error:
        reason = str(error).splitlines()[0]
        raise ModelError(f"The device {device!r} cannot be used: {reason}") from None
    return chosen


def resolve_dtype(dtype: str, device: torch.device) -> torch.dtype:
    """`auto` is bfloat16 (float16 where there is none) on an accelerator, float32 on the CPU."""
    if dtype == "auto":
        if device.type == "cuda":
            return torch.bfloat16 if torch.cuda.is_bf16_supported() else torch.float16
        return torch.float16 if device.type == "mps" else torch.float32
    if dtype not in DTYPES:
        raise ModelError(f"dtype must be auto or one of {', '.join(DTYPES)}, got {dtype!r}.")
    return DTYPES[dtype]


def load_from_pretrained(
    name: str, adapters: Mapping[str, type[Target]], device: torch.device, dtype: torch.dtype
) -> Target:
    """A target from `demo`, a local folder or a Hugging Face id. Raises `ModelError`."""
    source = str(demo_path()) if name == "demo" else os.path.expanduser(name)
    if name == "demo" and not (demo_path() / "config.json").exists():
        raise ModelError(
            f"The bundled model is not at {demo_path()}. Make it with `python -m recap.demo make`."
        )
    looks_local = source.startswith((".", "/")) or Path(source).exists() or source.count("/") > 1
    if looks_local and not (Path(source) / "config.json").is_file():
        raise ModelError(f"{source} is not a folder with a model: it has no config.json.")
    config = _fetch(name, AutoConfig.from_pretrained, source)
    adapter = adapters.get(config.model_type)
    if adapter is None:
        raise ModelError(
            f"{name} is of type {config.model_type!r}, which is not supported. "
            f"Supported: {', '.join(sorted(adapters))}."
        )
    parts = _fetch(name, adapter.load_processors, source)
    try:
        model = _fetch(
            name,
            adapter.auto_model.from_pretrained,
            source,
            dtype=dtype,
            attn_implementation="sdpa",
        ).to(device)
    except (torch.OutOfMemoryError, MemoryError):
        raise ModelError(
            f"{name} does not fit on {device}. Use a smaller model, or --device cpu."
        ) from None
    return adapter(model, **parts, name=name)


def _fetch(name: str, load: Any, source: str, **options: Any) -> Any:
    """Call one of transformers' loaders and put its failures into words."""
    try:
        return load(source, **options)
    except (torch.OutOfMemoryError, MemoryError, ModelError):
        raise
    except Exception as error:  # the hub client, safetensors and configs raise many kinds
        reason = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        raise ModelError(f"{name} cannot be loaded: {reason}") from error
