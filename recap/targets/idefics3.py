"""Idefics3 and SmolVLM: a picture split into marked tiles, and the whole of it behind them."""

from __future__ import annotations

import math
from typing import Any

from transformers.models.smolvlm.processing_smolvlm import get_image_prompt_string

from recap.targets.vision import VisionTarget


class Idefics3Target(VisionTarget):
    """Adapter of `Idefics3ForConditionalGeneration` and `SmolVLMForConditionalGeneration`.

    A picture is scaled until its longest edge is a fixed number of tiles. `min_pixels` and
    `max_pixels` bound the square of that edge, in whole tiles; where none lies between them,
    `max_pixels` counts.
    """

    families = ("idefics3", "smolvlm")

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
        rows, columns = inputs.pop("rows")[0][0], inputs.pop("cols")[0][0]
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
