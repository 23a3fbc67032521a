"""Writes the folder that `from_pretrained` loads: weights, configs, tokenizer, image processor.

The weights are stored in bfloat16, so that the file stays below 10 MB; everything measured about
the model is measured on what was stored.
"""

from __future__ import annotations

import json
import shutil
import tempfile
from pathlib import Path
from typing import Any

import torch
from transformers import GenerationConfig, PreTrainedTokenizerFast, Qwen2VLImageProcessorPil
from transformers.models.qwen2_5_vl import Qwen2_5_VLForConditionalGeneration

from recap.demo.draw import SIDE
from recap.demo.model import build_model
from recap.demo.tokenizer import special_ids

MAX_FILE_BYTES = 10_000_000
_CARD = Path(__file__).parent / "model_card.md"


def image_processor() -> Qwen2VLImageProcessorPil:
    """Qwen's own, at the one resolution of the model: a square picture becomes 168x168."""
    return Qwen2VLImageProcessorPil(min_pixels=SIDE * SIDE, max_pixels=SIDE * SIDE)


def averaged_model(
    state: dict[str, Any], tokenizer: PreTrainedTokenizerFast
) -> Qwen2_5_VLForConditionalGeneration:
    """The model with the averaged weights of a checkpoint of stage 2, in float32."""
    model = build_model(len(tokenizer), special_ids(tokenizer))
    missing, unexpected = model.load_state_dict(state["average"], strict=False)
    tied = {"lm_head.weight"}
    if set(missing) - tied or unexpected:
        raise ValueError(f"checkpoint does not fit: missing {missing}, unexpected {unexpected}")
    return model.eval()


def export_model(
    model: Qwen2_5_VLForConditionalGeneration, tokenizer: PreTrainedTokenizerFast, output: Path
) -> None:
    """Write everything to `output`, replacing the files there one by one at the end.

    Raises ValueError where the weights' file would reach 10 MB.
    """
    ids = special_ids(tokenizer)
    output.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=output.parent) as name:
        folder = Path(name)
        stored = model.to(torch.bfloat16)
        stored.generation_config = GenerationConfig(
            do_sample=False,
            eos_token_id=ids["<|im_end|>"],
            pad_token_id=ids["<|endoftext|>"],
            max_new_tokens=256,
        )
        stored.save_pretrained(folder)
        tokenizer.save_pretrained(folder)
        _tidy(folder / "tokenizer_config.json")
        settings = image_processor().to_dict()
        # The name that every transformers maps to what it has, with torchvision or without.
        settings["image_processor_type"] = "Qwen2VLImageProcessor"
        (folder / "preprocessor_config.json").write_text(
            json.dumps(settings, indent=2, sort_keys=True) + "\n"
        )
        size = (folder / "model.safetensors").stat().st_size
        if size >= MAX_FILE_BYTES:
            raise ValueError(f"model.safetensors has {size} bytes, allowed are {MAX_FILE_BYTES}")
        if _CARD.exists():
            shutil.copy(_CARD, folder / "README.md")
        for file in sorted(folder.iterdir()):
            file.chmod(0o644)
            shutil.move(file, output / file.name)


def _tidy(path: Path) -> None:
    """Drop what only says where the tokenizer was loaded from."""
    settings = json.loads(path.read_text())
    for key in ("is_local", "local_files_only", "backend"):
        settings.pop(key, None)
    settings["tokenizer_class"] = "PreTrainedTokenizerFast"
    path.write_text(json.dumps(settings, indent=2) + "\n")
