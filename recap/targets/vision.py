"""Targets that see: an image processor beside the tokenizer, placeholders for a picture's rows.

Text and picture are processed apart, so that what a person types stays inert: the ordinary
processors put the picture's rows in by searching the text for their placeholder, and would find one
that was typed. The picture's part of a prompt comes

- from the family's ordinary processor where the checkpoint configures one and it can be loaded: its
  image processor makes the tensors, and the text that it puts in a placeholder's place is encoded;
- from the image processor alone and the family's own `_picture_ids` where it cannot. The processors
  of Qwen's families and of SmolVLM have a part for videos, which needs torchvision; without it they
  do not load. Those of LLaVA-NeXT and Idefics3 have none.

The inputs are the same either way, and the same as those that the ordinary processor makes of the
whole prompt; the tests compare all three for every family.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from PIL import Image
from transformers import AutoImageProcessor, AutoModelForImageTextToText, AutoProcessor
from transformers.processing_utils import ProcessorMixin

from recap.errors import ImageError, PromptError, SettingsError
from recap.targets.base import Request, Target
from recap.targets.chat import encode_chat
from recap.targets.images import load_image


class VisionTarget(Target):
    """Base of the adapters that take a picture.

    `processor` is the family's ordinary one, where there is one. Its image processor is the one
    that is given, and its settings are the checkpoint's.

    `min_pixels` and `max_pixels` bound the picture that the model sees, each in the way of its
    family; None leaves the image processor's own bound. More pixels mean more rows to prefill.

    Raises `SettingsError` for bounds that cross or are not positive.
    """

    auto_model = AutoModelForImageTextToText
    takes_pictures = True
    #: What the image processor returns for the placeholders' sake, and the model does not take.
    for_placeholders: tuple[str, ...] = ()

    @classmethod
    def load_processors(cls, source: str, **options: Any) -> dict[str, Any]:
        """See `Target.load_processors`."""
        tokenizer = super().load_processors(source, **options)["tokenizer"]
        # Older checkpoints keep the template that takes pictures beside the processor only.
        whole, _ = ProcessorMixin.get_processor_dict(source)
        if template := whole.get("chat_template"):
            tokenizer.chat_template = template
        processor = _ordinary_processor(source)
        return {
            "tokenizer": tokenizer,
            "image_processor": processor.image_processor
            if processor is not None
            else AutoImageProcessor.from_pretrained(source),
            "processor": processor,
        }

    def __init__(
        self,
        model: Any,
        tokenizer: Any = None,
        image_processor: Any = None,
        *,
        processor: Any = None,
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
        self.processor = processor
        self.min_pixels = min_pixels
        self.max_pixels = max_pixels

    # What a family overrides ----------------------------------------------------------------------

    def _picture_options(self) -> dict[str, Any]:
        """Arguments of the image processor's call that keep `min_pixels` and `max_pixels`."""
        return {}

    def _picture_ids(self, inputs: dict[str, Any]) -> list[int]:
        """Ids that take the place of the template's one placeholder, without `processor`.

        `inputs` is what the image processor returned.
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
        ids[place : place + 1] = self._expanded(inputs)
        inputs = {key: value for key, value in inputs.items() if key not in self.for_placeholders}
        request = self.from_inputs({"input_ids": torch.tensor([ids]), **inputs}, prompt=prompt)
        request.image = image
        return request

    # Inside ---------------------------------------------------------------------------------------

    def _expanded(self, inputs: dict[str, Any]) -> list[int]:
        """Ids that take the place of the template's one placeholder."""
        if self.processor is None:
            return self._picture_ids(inputs)
        text = self.processor.replace_image_token(inputs, 0)
        return self._require_tokenizer()(text, add_special_tokens=False)["input_ids"]

    def _with_opening(self, ids: list[int]) -> list[int]:
        """The ids behind what the tokenizer opens every text with, unless the template has it.

        So the ordinary processors do; a tokenizer's own chat encoding leaves it out.
        """
        opening = self.tokenizer("")["input_ids"]
        return ids if ids[: len(opening)] == opening else [*opening, *ids]

    def _resized(self, image: Image.Image) -> Image.Image:
        """The picture as the image processor shall have it."""
        return image


def _ordinary_processor(source: str) -> Any:
    """The processor of a checkpoint in this folder, or None where it cannot be loaded.

    A checkpoint that does not configure one gets none: the classes' defaults are those of one size
    of the model, and would claim another number of rows.
    """
    if not (Path(source) / "processor_config.json").is_file():
        return None
    try:
        processor = AutoProcessor.from_pretrained(source)
    except Exception:  # torchvision is missing, or num2words, or the file that names the class
        return None
    # Without such a file it may be a tokenizer or an image processor alone.
    return processor if isinstance(processor, ProcessorMixin) else None
