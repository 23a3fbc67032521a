"""Where a model goes: which device, which number format, and whether it fits there."""

from __future__ import annotations

import importlib.util
from typing import Any

import torch

from recap.errors import ModelError, SettingsError

DTYPES = {
    "float32": torch.float32,
    "float64": torch.float64,
    "bfloat16": torch.bfloat16,
    "float16": torch.float16,
}
#: Kinds of devices that a model is put on.
DEVICES = ("cpu", "cuda", "mps")
#: Bytes that a quantised weight takes, its share of the scales included.
QUANTIZED = {"4bit": 0.57, "8bit": 1.01}
#: Share of the free memory that weights may take: an answer needs some for itself.
_ROOM = 0.92


def resolve_device(device: str) -> torch.device:
    """`auto` is CUDA where there is one, then MPS, then the CPU. Raises `ModelError`."""
    if device == "auto":
        if torch.cuda.is_available():
            return torch.device("cuda")
        return torch.device("mps" if torch.backends.mps.is_available() else "cpu")
    try:
        chosen = torch.device(device)
        if chosen.type not in DEVICES:
            raise NotImplementedError(f"models run on {', '.join(DEVICES)}")
        torch.empty(0, device=chosen)
    except (RuntimeError, AssertionError, NotImplementedError, TypeError) as error:
        reason = str(error).splitlines()[0].rstrip(".")
        raise ModelError(
            f"The device {device!r} cannot be used: {reason}. Use auto or cpu (--device auto)."
        ) from None
    return chosen


def resolve_dtype(dtype: str, device: torch.device) -> torch.dtype:
    """`auto` is bfloat16 (float16 where there is none) on an accelerator, float32 on the CPU.

    Raises `SettingsError` for a format that is not in `DTYPES`.
    """
    if dtype == "auto":
        if device.type == "cuda":
            # Emulated bfloat16 is slower than real float16.
            real = torch.cuda.is_bf16_supported(including_emulation=False)
            return torch.bfloat16 if real else torch.float16
        return torch.float16 if device.type == "mps" else torch.float32
    if dtype not in DTYPES:
        raise SettingsError("dtype", f"must be auto or one of {', '.join(DTYPES)}, got {dtype!r}")
    return DTYPES[dtype]


def quantization(quantize: str | None, dtype: torch.dtype) -> dict[str, Any]:
    """Options of `from_pretrained` for `4bit` or `8bit` weights; none for None.

    Raises `ModelError` where bitsandbytes, an optional extra, is missing.
    """
    if quantize is None:
        return {}
    if quantize not in QUANTIZED:
        raise SettingsError("quantize", f"must be one of {', '.join(QUANTIZED)}, got {quantize!r}")
    if importlib.util.find_spec("bitsandbytes") is None:
        raise ModelError(
            f"{quantize} weights need the optional package bitsandbytes: pip install bitsandbytes"
        )
    from transformers import BitsAndBytesConfig

    if quantize == "8bit":
        return {"quantization_config": BitsAndBytesConfig(load_in_8bit=True)}
    return {
        "quantization_config": BitsAndBytesConfig(load_in_4bit=True, bnb_4bit_compute_dtype=dtype)
    }


def weight_bytes(auto_model: Any, config: Any, dtype: torch.dtype, quantize: str | None) -> int:
    """Bytes that a model of this configuration takes, without making it.

    Only the linear layers inside are quantised; embeddings, norms and the head stay in `dtype`.
    """
    with torch.device("meta"):
        model = auto_model.from_config(config, dtype=dtype)
    weights = sum(parameter.numel() for parameter in model.parameters())
    if not quantize:
        return weights * dtype.itemsize
    head = model.get_output_embeddings()
    fewer = sum(
        part.weight.numel()
        for part in model.modules()
        if isinstance(part, torch.nn.Linear) and part is not head
    )
    return int((weights - fewer) * dtype.itemsize + fewer * QUANTIZED[quantize])


def free_bytes(device: torch.device) -> int | None:
    """Memory that is free on a device; None where that cannot be told."""
    if device.type == "cuda":
        return torch.cuda.mem_get_info(device)[0]
    try:
        import psutil
    except ImportError:
        return None
    return psutil.virtual_memory().available


def place(
    name: str,
    needed: int,
    device: torch.device,
    dtype: torch.dtype,
    quantize: str | None = None,
) -> dict[str, Any]:
    """Options of `from_pretrained` that put `needed` bytes of weights where they fit.

    One device where it suffices; all GPUs (`device_map="auto"`) where one does not and none was
    asked for by number. Raises `ModelError` where the weights fit nowhere.
    """
    free = free_bytes(device)
    if free is None or needed <= free * _ROOM:
        return {} if device.type == "cpu" else {"device_map": {"": device}}
    if device.type == "cuda" and device.index is None:
        every = [torch.device("cuda", index) for index in range(torch.cuda.device_count())]
        free = sum(free_bytes(gpu) or 0 for gpu in every)
        if len(every) > 1 and needed <= free * _ROOM:
            if importlib.util.find_spec("accelerate") is None:
                raise ModelError(
                    f"{name} needs several GPUs, and the package accelerate to use them: "
                    "pip install accelerate"
                )
            return {"device_map": "auto"}
    raise ModelError(too_large(name, device, dtype, needed, free, quantize))


def too_large(
    name: str,
    device: torch.device,
    dtype: torch.dtype,
    needed: int,
    free: int | None,
    quantize: str | None = None,
) -> str:
    """What to say, and to do, where a model does not fit."""
    kind = quantize or str(dtype).removeprefix("torch.")
    room = "" if free is None else f", and {free / 1e9:.1f} GB are free"
    smaller = "Use a smaller model"
    if dtype.itemsize > 2:
        smaller += ", bfloat16 (--dtype bfloat16)"
    if quantize != "4bit":
        smaller += ", 4-bit weights (--quantize 4bit)"
    elsewhere = ", or the CPU (--device cpu)" if device.type != "cpu" else ", or free some memory"
    return (
        f"{name} does not fit on {device}: its weights take about {needed / 1e9:.1f} GB in {kind}"
        f"{room}. {smaller}{elsewhere}."
    )
