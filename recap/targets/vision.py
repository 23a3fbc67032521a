"""Targets that see: an image processor beside the tokenizer, placeholders for a picture's rows.

A family says which ids stand in its prompt for one picture (`_picture_ids`) and, where it can be
bounded, how (`_picture_options`). Text and picture are processed apart, so that what a person types
stays inert; the result is what the family's ordinary processor gives, and the tests compare the two
for every family. Some of those processors need torchvision for their video part; the image part
that is used here is the ordinary one of this environment, with torchvision or without.
"""

from __future__ import annotations

from typing import Any

import torch
from PIL import Image
from transformers import AutoImageProcessor, AutoModelForImageTextToText
from transformers.processing_utils import ProcessorMixin

from recap.errors import ImageError, PromptError, SettingsError
from recap.targets.base import Request, Target
from recap.targets.chat import encode_chat
from recap.targets.images import load_image


class VisionTarget(Target):
    """Base of the adapters that take a picture.

    `min_pixels` and `max_pixels` bound the picture that the model sees, each in the way of its
    family; None leaves the image processor's own bound. More pixels mean more rows to prefill.

    Raises `SettingsError` for bounds that cross or are not positive.
    """

    auto_model = AutoModelForImageTextToText
    takes_pictures = True

    @classmethod
    def load_processors(cls, source: str, **options: Any) -> dict[str, Any]:
        """See `Target.load_processors`."""
        tokenizer = super().load_processors(source, **options)["tokenizer"]
        # Older checkpoints keep the template that takes pictures beside the processor only.
        whole, _ = ProcessorMixin.get_processor_dict(source)
        if template := whole.get("chat_template"):
            tokenizer.chat_template = template
        return {
            "tokenizer": tokenizer,
            "image_processor": AutoImageProcessor.from_pretrained(source),
        }

    def __init__(
        self,
        model: Any,
        tokenizer: Any = None,
        image_processor: Any = None,
        *,
        name: str = "",
        min_pixels: int | None = None,
        max_pixels: int | None = None,
    ) -> None:
        for field, value in (("min_pixels", min_pixels), ("max_pixels", max_pixels)):
            if value is not None and (type(value) is not int or value < 1):
                raise SettingsError(field, f"must be a positive number of pixels, got {value!r}")
        if min_pixels and max_pixels and min_pixels > max_pixels:
            raise SettingsError("min_pixels", "must not exceed max_pixels")
        super().__init__(model, tokenizer, name=name)
        self.image_processor = image_processor
        self.min_pixels = min_pixels
        self.max_pixels = max_pixels

    # What a family overrides ----------------------------------------------------------------------

    def _picture_options(self) -> dict[str, Any]:
        """Arguments of the image processor's call that keep `min_pixels` and `max_pixels`."""
        return {}

    def _picture_ids(self, inputs: dict[str, Any]) -> list[int]:
        """Ids that take the place of the template's one placeholder.

        `inputs` is what the image processor returned; what the model does not take is removed.
        """
        raise NotImplementedError

    def _placeholder_ids(self) -> frozenset[int]:
        return frozenset({self.model.config.image_token_id})

    # The interface --------------------------------------------------------------------------------

    def prepare(self, prompt: str, image: Image.Image | None = None) -> Request:
        """See `Target.prepare`. Raises `ImageError` for a picture that cannot be cut to patches."""
        ids = encode_chat(
            self._require_tokenizer(), prompt, with_image=image is not None, in_parts=True
        )
        ids = self._with_opening(ids)
        if image is None:
            return self.from_inputs({"input_ids": torch.tensor([ids])}, prompt=prompt)
        if self.image_processor is None:
            raise PromptError(
                f"{self.name} was loaded without an image processor: give make_target one, or "
                "remove the picture."
            )
        image = load_image(image)
        try:
            inputs = dict(
                self.image_processor(
                    images=[self._resized(image)], return_tensors="pt", **self._picture_options()
                )
            )
        except ValueError as error:
            reason = str(error).rstrip(".")
            raise ImageError(
                f"The picture cannot be cut into patches: {reason}. Crop it, or use another one."
            ) from None
        slot = self.model.config.image_token_id
        if slot not in ids:
            raise PromptError(
                "This model's chat template has no place for a picture. Remove the picture, or use "
                "a checkpoint whose template takes one."
            )
        place = ids.index(slot)
        ids[place : place + 1] = self._picture_ids(inputs)
        request = self.from_inputs({"input_ids": torch.tensor([ids]), **inputs}, prompt=prompt)
        request.image = image
        return request

    # Inside ---------------------------------------------------------------------------------------

    def _with_opening(self, ids: list[int]) -> list[int]:
        """The ids behind what the tokenizer opens every text with, unless the template has it.

        So the ordinary processors do; a tokenizer's own chat encoding leaves it out.
        """
        opening = self.tokenizer("")["input_ids"]
        return ids if ids[: len(opening)] == opening else [*opening, *ids]

    def _resized(self, image: Image.Image) -> Image.Image:
        """The picture as the image processor shall have it."""
        return image
