"""The families of the conformance suite: one line each, and what the suite needs to know of them.

What a new family needs, and what its adapter must do, is in `test_conformance.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import torch
from transformers.models.idefics3.processing_idefics3 import Idefics3Processor
from transformers.models.llava_next.processing_llava_next import LlavaNextProcessor
from transformers.models.qwen2_5_vl.processing_qwen2_5_vl import Qwen2_5_VLProcessor
from transformers.models.qwen2_vl.processing_qwen2_vl import Qwen2VLProcessor
from transformers.models.qwen3_vl.processing_qwen3_vl import Qwen3VLProcessor
from transformers.models.smolvlm import processing_smolvlm

from recap.targets import TINY, Target, make_target

#: Width and height of the pictures: squarish, tall, wide, tiny, and larger than any tile.
SIZES = ((90, 60), (60, 200), (300, 100), (20, 20), (400, 380))


@dataclass(frozen=True)
class Family:
    """A family under test.

    `processor` makes the family's ordinary processor of (image processor, tokenizer). `shapes` is
    how many different numbers of picture rows `SIZES` must come to, at least.
    """

    name: str
    processor: Callable[[Any, Any], Any]
    shapes: int


def _without_video(kind: Any) -> Callable[[Any, Any], Any]:
    """A processor of this class without its video part, which alone needs torchvision."""

    class ImagesOnly(kind):
        def __init__(self, image_processor=None, tokenizer=None, chat_template=None):
            super().__init__(image_processor, tokenizer, chat_template=chat_template)

    return ImagesOnly


def _llava_next(image_processor: Any, tokenizer: Any) -> Any:
    # The values that the published checkpoints have.
    return LlavaNextProcessor(
        image_processor,
        tokenizer,
        patch_size=14,
        vision_feature_select_strategy="default",
        num_additional_image_tokens=1,
    )


def _idefics3(image_processor: Any, tokenizer: Any) -> Any:
    return Idefics3Processor(image_processor, tokenizer, image_seq_len=4)


def _smolvlm(image_processor: Any, tokenizer: Any) -> Any:
    # It insists on num2words, which spells the number of a video's frames and nothing else.
    processing_smolvlm.num2words = processing_smolvlm.num2words or str

    class ImagesOnly(processing_smolvlm.SmolVLMProcessor):
        def __init__(self, image_processor=None, tokenizer=None, chat_template=None):
            super().__init__(
                image_processor, tokenizer, None, image_seq_len=4, chat_template=chat_template
            )

    return ImagesOnly(image_processor, tokenizer)


FAMILIES = {
    family.name: family
    for family in (
        Family("qwen2_vl", _without_video(Qwen2VLProcessor), 4),
        Family("qwen2_5_vl", _without_video(Qwen2_5_VLProcessor), 4),
        Family("qwen3_vl", _without_video(Qwen3VLProcessor), 4),
        Family("llava_next", _llava_next, 4),
        Family("llava_next-mistral", _llava_next, 4),
        Family("idefics3", _idefics3, 3),
        Family("smolvlm", _smolvlm, 3),
    )
}


@cache
def tokenizer_of(name: str) -> Any:
    """A family's tokenizer, shared: making one takes a while."""
    return TINY[name].tokenizer()


def family_target(name: str, seed: int = 0, *, scale: float = 0.08, **options: Any) -> Target:
    """A tiny random target with its image processor, without an EOS."""
    model = TINY[name].make(seed, scale=scale)
    model.generation_config.eos_token_id = None
    processor = TINY[name].image_processor
    assert processor is not None
    return make_target(model, tokenizer_of(name), processor(), name=f"tiny-{name}", **options)


def save(folder: Path, family: str) -> Path:
    """A checkpoint of a tiny model, as transformers itself writes one."""
    tiny = TINY[family]
    TINY[family].make().save_pretrained(folder)
    tiny.tokenizer().save_pretrained(folder)
    if tiny.image_processor is not None:
        tiny.image_processor().save_pretrained(folder)
    return folder


def ordinary_inputs(family: Family, target: Target, prompt: str, *images: Any) -> dict[str, Any]:
    """What the family's ordinary processor makes of a prompt and its pictures."""
    tokenizer = tokenizer_of(family.name)
    content = [{"type": "image"}] * len(images) + [{"type": "text", "text": prompt}]
    text = tokenizer.apply_chat_template(
        [{"role": "user", "content": content}], tokenize=False, add_generation_prompt=True
    )
    processor = family.processor(target.image_processor, tokenizer)  # type: ignore[attr-defined]
    return dict(processor(text=[text], images=list(images) or None, return_tensors="pt"))


def uncached_logits(target: Target, inputs: dict[str, Any], ids: list[int]) -> torch.Tensor:
    """(vocabulary,) logits behind `ids`, from one pass over everything, without any cache."""
    whole = torch.tensor([ids])
    inputs = {**inputs, "input_ids": whole, "attention_mask": torch.ones_like(whole)}
    if "image_grid_thw" in inputs:
        inputs["mm_token_type_ids"] = (whole == target.model.config.image_token_id).int()
    with torch.no_grad():
        return target.model(**inputs, use_cache=False).logits[0, -1]
