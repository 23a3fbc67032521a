"""Idefics3 and SmolVLM: a picture split into marked tiles, and the whole of it behind them."""

from __future__ import annotations

import math
from typing import Any

from transformers import (
    Idefics3Config,
    Idefics3ForConditionalGeneration,
    SmolVLMConfig,
    SmolVLMForConditionalGeneration,
)
from transformers.models.idefics3.image_processing_pil_idefics3 import Idefics3ImageProcessorPil
from transformers.models.smolvlm.image_processing_pil_smolvlm import SmolVLMImageProcessorPil
from transformers.models.smolvlm.processing_smolvlm import get_image_prompt_string

from recap.targets.tiny import Tiny
from recap.targets.vision import VisionTarget


class Idefics3Target(VisionTarget):
    """Adapter of `Idefics3ForConditionalGeneration` and `SmolVLMForConditionalGeneration`.

    A picture is scaled until its longest edge is a fixed number of tiles. `min_pixels` and
    `max_pixels` bound the square of that edge, in whole tiles; where none lies between them,
    `max_pixels` counts.
    """

    families = ("idefics3", "smolvlm")
    for_placeholders = ("rows", "cols")

    def _picture_options(self) -> dict[str, Any]:
        options: dict[str, Any] = {"return_row_col_info": True}
        if self.min_pixels or self.max_pixels:
            tile = self.image_processor.max_image_size["longest_edge"]
            edge = self.image_processor.size["longest_edge"]
            if self.min_pixels:
                edge = max(edge, math.ceil(math.sqrt(self.min_pixels) / tile) * tile)
            if self.max_pixels:
                edge = min(edge, math.isqrt(self.max_pixels) // tile * tile)
            options["size"] = {"longest_edge": max(edge, tile)}
        return options

    def _picture_ids(self, inputs: dict[str, Any]) -> list[int]:
        rows, columns = inputs["rows"][0][0], inputs["cols"][0][0]
        tokenizer = self.tokenizer
        text = get_image_prompt_string(
            rows,
            columns,
            self.model.model.image_seq_len,
            fake_token_around_image=getattr(
                tokenizer, "fake_image_token", "<fake_token_around_image>"
            ),
            image_token=tokenizer.convert_ids_to_tokens(self.model.config.image_token_id),
            global_image_token=getattr(tokenizer, "global_image_token", "<global-img>"),
        )
        return tokenizer(text, add_special_tokens=False)["input_ids"]


#: Tiles along an edge of the largest picture that the small Idefics3 splits.
_TILES = 4
_TOKENS = (
    "<|im_start|>",
    "<end_of_utterance>",
    "<fake_token_around_image>",
    "<image>",
    "<global-img>",
    *(f"<row_{i}_col_{j}>" for i in range(1, _TILES + 1) for j in range(1, _TILES + 1)),
)
_TEMPLATE = (
    "<|im_start|>{% for message in messages %}{{ message['role'] | capitalize }}"
    "{% if message['content'][0]['type'] == 'image' %}:{% else %}: {% endif %}"
    "{% for part in message['content'] %}{% if part['type'] == 'image' %}<image>"
    "{% else %}{{ part['text'] }}{% endif %}{% endfor %}<end_of_utterance>\n{% endfor %}"
    "{% if add_generation_prompt %}Assistant:{% endif %}"
)


def _tiny_config(config: Any) -> Any:
    def make(text: dict[str, Any], ids: dict[str, int], scale: float) -> Any:
        return config(
            vision_config={
                "hidden_size": 32,
                "intermediate_size": 48,
                "num_hidden_layers": 2,
                "num_attention_heads": 2,
                "image_size": 56,
                "patch_size": 14,
                "initializer_range": scale,
            },
            text_config={"model_type": "llama", **text},
            image_token_id=ids["<image>"],
            scale_factor=2,
        )

    return make


def _tiny(model: Any, config: Any, processor: Any) -> Tiny:
    return Tiny(
        model,
        _tiny_config(config),
        lambda: processor(size={"longest_edge": _TILES * 56}, max_image_size={"longest_edge": 56}),
        tokens=_TOKENS,
        eos="<end_of_utterance>",
        template=_TEMPLATE,
    )


TINY = {
    "idefics3": _tiny(Idefics3ForConditionalGeneration, Idefics3Config, Idefics3ImageProcessorPil),
    "smolvlm": _tiny(SmolVLMForConditionalGeneration, SmolVLMConfig, SmolVLMImageProcessorPil),
}
