"""LLaVA-NeXT (LLaVA-1.6): tiles of a picture beside the whole of it, over Llama or Mistral."""

from __future__ import annotations

import math
from typing import Any

from PIL import Image
from transformers import CLIPVisionConfig, LlavaNextConfig, LlavaNextForConditionalGeneration
from transformers.image_processing_utils import select_best_resolution
from transformers.models.llava_next.image_processing_pil_llava_next import (
    LlavaNextImageProcessorPil,
)
from transformers.models.llava_next.processing_llava_next import LlavaNextProcessor

from recap.targets.tiny import Tiny
from recap.targets.vision import VisionTarget


class LlavaNextTarget(VisionTarget):
    """Adapter of `LlavaNextForConditionalGeneration`.

    A picture is tiled to the best of the model's few resolutions, and the padding is cut out again
    afterwards, so its rows depend on its exact size. That count is left to the ordinary processor.
    `max_pixels` bounds the resolutions that are tiled to, down to the smallest that the model has;
    a picture of less than `min_pixels` is scaled up first.
    """

    families = ("llava_next",)

    def _resized(self, image: Image.Image) -> Image.Image:
        if self.min_pixels and image.width * image.height < self.min_pixels:
            factor = math.sqrt(self.min_pixels / (image.width * image.height))
            size = (math.ceil(image.width * factor), math.ceil(image.height * factor))
            image = image.resize(size)
        if self.max_pixels:
            # The model works out the tiles from the picture's size alone. Once the picture fits
            # into a resolution exactly, no larger one shows more of it, and it is the one chosen.
            every = self.model.config.image_grid_pinpoints
            bound = max(self.max_pixels, min(high * wide for high, wide in every))
            allowed = [[high, wide] for high, wide in every if high * wide <= bound]
            high, wide = select_best_resolution((image.height, image.width), allowed)
            factor = min(high / image.height, wide / image.width)
            if factor < 1:
                size = (int(image.width * factor), int(image.height * factor))
                image = image.resize((max(1, size[0]), max(1, size[1])))
        return image

    def _picture_ids(self, inputs: dict[str, Any]) -> list[int]:
        config = self.model.config
        processor = LlavaNextProcessor(
            self.image_processor,
            self.tokenizer,
            patch_size=config.vision_config.patch_size,
            vision_feature_select_strategy=config.vision_feature_select_strategy,
            image_token=self.tokenizer.convert_ids_to_tokens(config.image_token_id),
            # CLIP has a row for the whole picture before the patches; SigLIP has none.
            num_additional_image_tokens=int(config.vision_config.model_type == "clip_vision_model"),
        )
        text = processor.replace_image_token(inputs, 0)
        return [config.image_token_id] * (len(text) // len(processor.image_token))


# LLaVA's opens with <s>, which the tokenizer adds and the template leaves out.
_TOKENS = ("<s>", "</s>", "<image>")
_TEMPLATE = (
    "{% for message in messages %}{{ message['role'].upper() + ': ' }}"
    "{% for part in message['content'] | selectattr('type', 'equalto', 'image') %}<image>\n"
    "{% endfor %}{% for part in message['content'] | selectattr('type', 'equalto', 'text') %}"
    "{{ part['text'] + ' ' }}{% endfor %}{% endfor %}"
    "{% if add_generation_prompt %}ASSISTANT:{% endif %}"
)
#: LLaVA's own resolutions, at a sixth of the size.
_PINPOINTS = [[56, 112], [112, 56], [112, 112], [168, 56], [56, 168]]


def _tiny_config(decoder: dict[str, Any]) -> Any:
    def make(text: dict[str, Any], ids: dict[str, int], scale: float) -> Any:
        vision = CLIPVisionConfig(
            hidden_size=32,
            intermediate_size=48,
            num_hidden_layers=2,
            num_attention_heads=2,
            image_size=56,
            patch_size=14,
            projection_dim=32,
        )
        return LlavaNextConfig(
            vision_config=vision,
            text_config={**text, **decoder},
            image_token_index=ids["<image>"],
            image_grid_pinpoints=_PINPOINTS,
        )

    return make


def _tiny_processor() -> LlavaNextImageProcessorPil:
    return LlavaNextImageProcessorPil(
        size={"shortest_edge": 56},
        crop_size={"height": 56, "width": 56},
        image_grid_pinpoints=_PINPOINTS,
    )


def _tiny(decoder: dict[str, Any]) -> Tiny:
    return Tiny(
        LlavaNextForConditionalGeneration,
        _tiny_config(decoder),
        _tiny_processor,
        tokens=_TOKENS,
        eos="</s>",
        template=_TEMPLATE,
        bos="<s>",
    )


TINY = {
    "llava_next": _tiny({"model_type": "llama"}),
    "llava_next-mistral": _tiny({"model_type": "mistral", "sliding_window": None}),
}
