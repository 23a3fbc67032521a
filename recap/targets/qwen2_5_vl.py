"""Qwen2.5-VL: patches of a picture as placeholder rows, three-row rotary positions (M-RoPE)."""

from __future__ import annotations

from typing import Any

import torch
from transformers import Qwen2_5_VLConfig, Qwen2_5_VLForConditionalGeneration

from recap.targets.base import Request
from recap.targets.tiny import Tiny, image_processor
from recap.targets.vision import VisionTarget


class Qwen25VLTarget(VisionTarget):
    """Adapter of `Qwen2_5_VLForConditionalGeneration`.

    `min_pixels` and `max_pixels` are the image processor's own: a picture is scaled between them,
    and 28 x 28 pixels become one row (Qwen3-VL: 32 x 32).
    """

    families = ("qwen2_5_vl",)

    def from_inputs(self, inputs: dict[str, Any], *, prompt: str = "") -> Request:
        """See `Target.from_inputs`. Positions may have a row for text before those of M-RoPE."""
        positions = inputs.get("position_ids")
        if positions is not None and positions.shape[0] == 4:
            inputs = {**inputs, "position_ids": positions[1:]}
        return super().from_inputs(inputs, prompt=prompt)

    def generate_inputs(self, request: Request) -> dict[str, Any]:
        """See `Target.generate_inputs`. The kinds of rows are what positions are computed from."""
        inputs = super().generate_inputs(request)
        if "image_grid_thw" in inputs or "video_grid_thw" in inputs:
            inputs["mm_token_type_ids"] = self._row_kinds(inputs["input_ids"])
        return inputs

    def _picture_options(self) -> dict[str, Any]:
        if not self.min_pixels and not self.max_pixels:
            return {}
        size = self.image_processor.size
        low = self.min_pixels or min(size["shortest_edge"], self.max_pixels or 0)
        high = self.max_pixels or max(size["longest_edge"], self.min_pixels or 0)
        return {"size": {"shortest_edge": low, "longest_edge": high}}

    def _picture_ids(self, inputs: dict[str, Any]) -> list[int]:
        rows = int(inputs["image_grid_thw"][0].prod()) // self.image_processor.merge_size**2
        return [self.model.config.image_token_id] * rows

    def _placeholder_ids(self) -> frozenset[int]:
        config = self.model.config
        return frozenset({config.image_token_id, config.video_token_id})

    def _prefill_positions(self, request: Request) -> tuple[torch.Tensor, int]:
        """Rows of a picture share a temporal position and spread over height and width.

        Computed from the request's own ids: what the model object remembers of the last request
        (`rope_deltas`) is neither read nor set.
        """
        ids = torch.tensor([request.ids])
        kinds = self._row_kinds(ids)
        grids = {
            name: request.inputs[name].cpu()
            for name in ("image_grid_thw", "video_grid_thw")
            if name in request.inputs
        }
        if not grids:
            positions = torch.arange(ids.shape[1])[None, None].expand(3, 1, -1)
        else:
            positions, _ = self.model.model.get_rope_index(ids, kinds, **grids)
        return positions.to(self.device), int(positions.max()) + 1

    def _row_kinds(self, ids: torch.Tensor) -> torch.Tensor:
        """0 for text, 1 for a picture's row, 2 for a video's; the shape of `ids`, int."""
        config = self.model.config
        return (ids == config.image_token_id).int() + 2 * (ids == config.video_token_id).int()

    def _row_positions(self, positions: torch.Tensor) -> torch.Tensor:
        return positions.expand(3, 1, -1)


def tiny_config(config: Any, output: str, vision: dict[str, Any], **rope: Any) -> Any:
    """Makes small configurations: Qwen's differ in their towers and in how M-RoPE is laid out.

    `output` is what a tower's configuration calls the width that it hands to the decoder.
    """

    def make(text: dict[str, Any], ids: dict[str, int], scale: float) -> Any:
        parameters = {"rope_type": "default", "mrope_section": [2, 3, 3], **rope}
        tower = {"depth": 2, "num_heads": 2, "initializer_range": scale}
        head = text["hidden_size"] // text["num_attention_heads"]
        return config(
            text_config={"head_dim": head, **text, "rope_parameters": parameters},
            vision_config={**tower, **vision, output: text["hidden_size"]},
            image_token_id=ids["<|image_pad|>"],
            video_token_id=ids["<|video_pad|>"],
            vision_start_token_id=ids["<|vision_start|>"],
            vision_end_token_id=ids["<|vision_end|>"],
        )

    return make


TINY = {
    "qwen2_5_vl": Tiny(
        Qwen2_5_VLForConditionalGeneration,
        tiny_config(
            Qwen2_5_VLConfig,
            "out_hidden_size",
            {
                "hidden_size": 32,
                "intermediate_size": 48,
                "fullatt_block_indexes": [1],
                "window_size": 56,
            },
        ),
        image_processor,
    )
}
