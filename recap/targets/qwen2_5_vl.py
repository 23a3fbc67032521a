"""Qwen2.5-VL: patches of a picture as placeholder rows, three-row rotary positions (M-RoPE)."""

from __future__ import annotations

from typing import Any

import torch
from PIL import Image
from transformers import AutoModelForImageTextToText
from transformers.models.qwen2_vl.image_processing_pil_qwen2_vl import Qwen2VLImageProcessorPil

from recap.errors import ImageError
from recap.targets.base import Request, Target
from recap.targets.chat import encode_chat
from recap.targets.images import load_image


class Qwen25VLTarget(Target):
    """Adapter of `Qwen2_5_VLForConditionalGeneration`.

    The picture goes through the image processor alone and the text through the tokenizer: the
    family's whole processor needs torchvision for its video part, and gives the same inputs.
    """

    families = ("qwen2_5_vl",)
    auto_model = AutoModelForImageTextToText

    @classmethod
    def load_processors(cls, source: str) -> dict[str, Any]:
        return {
            **super().load_processors(source),
            "image_processor": Qwen2VLImageProcessorPil.from_pretrained(source),
        }

    def __init__(
        self, model: Any, tokenizer: Any = None, image_processor: Any = None, *, name: str = ""
    ) -> None:
        super().__init__(model, tokenizer, name=name)
        self.image_processor = image_processor

    def prepare(self, prompt: str, image: Image.Image | None = None) -> Request:
        """See `Target.prepare`. Raises `ImageError` for a picture that cannot be cut to patches."""
        if image is None:
            return self._finish(
                encode_chat(self._require_tokenizer(), prompt, with_image=False), prompt
            )
        image = load_image(image)
        try:
            inputs = self.image_processor(images=[image], return_tensors="pt")
        except ValueError as error:
            raise ImageError(f"The picture cannot be cut into patches: {error}.") from None
        grid = inputs["image_grid_thw"]
        rows = int(grid[0].prod()) // self.image_processor.merge_size**2
        ids = encode_chat(self._require_tokenizer(), prompt, with_image=True)
        place = ids.index(self.model.config.image_token_id)
        ids[place : place + 1] = [self.model.config.image_token_id] * rows
        request = self._finish(
            ids, prompt, pixel_values=inputs["pixel_values"], image_grid_thw=grid
        )
        request.image = image
        return request

    def _finish(self, ids: list[int], prompt: str, **inputs: torch.Tensor) -> Request:
        return self.from_inputs({"input_ids": torch.tensor([ids]), **inputs}, prompt=prompt)

    def _placeholder_ids(self) -> frozenset[int]:
        config = self.model.config
        return frozenset({config.image_token_id, config.video_token_id})

    def _prefill_positions(self, request: Request) -> tuple[torch.Tensor, int]:
        """Rows of a picture share a temporal position and spread over height and width.

        Computed from the request's own ids: what the model object remembers of the last request
        (`rope_deltas`) is neither read nor set.
        """
        config = self.model.config
        ids = torch.tensor([request.ids])
        kinds = (ids == config.image_token_id).int() + 2 * (ids == config.video_token_id).int()
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

    def _row_positions(self, positions: torch.Tensor) -> torch.Tensor:
        return positions.expand(3, 1, -1)
