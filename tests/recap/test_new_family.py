"""A new family is one adapter file and one line in the suite: shown with LLaVA-1.5.

The file below is all that the package gets, and `FAMILY` is the line. It is the real class at a
small size, and passes the same tests as the families that the package has. It takes any picture as
one square of a fixed size, so the numbers of rows do not vary and there is nothing to bound.
"""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from transformers.models.llava.processing_llava import LlavaProcessor

from recap import targets
from recap.targets.discovery import discover
from tests.recap import test_conformance as suite
from tests.recap.families import FAMILIES, Family

ADAPTER = '''
"""LLaVA-1.5: one square picture, its patches as placeholder rows."""

from transformers import CLIPVisionConfig, LlavaConfig, LlavaForConditionalGeneration
from transformers.models.clip.image_processing_pil_clip import CLIPImageProcessorPil

from recap.targets.llava_next import _TEMPLATE, _TOKENS
from recap.targets.tiny import Tiny
from recap.targets.vision import VisionTarget


class LlavaTarget(VisionTarget):
    """Adapter of `LlavaForConditionalGeneration`."""

    families = ("llava",)

    def _picture_ids(self, inputs):
        config = self.model.config
        side = config.vision_config.image_size // config.vision_config.patch_size
        return [config.image_token_id] * side**2


def _config(text, ids, scale):
    vision = CLIPVisionConfig(
        hidden_size=32,
        intermediate_size=48,
        num_hidden_layers=2,
        num_attention_heads=2,
        image_size=56,
        patch_size=14,
        projection_dim=32,
    )
    text = {"model_type": "llama", **text}
    return LlavaConfig(vision_config=vision, text_config=text, image_token_index=ids["<image>"])


def _processor():
    return CLIPImageProcessorPil(
        size={"shortest_edge": 56}, crop_size={"height": 56, "width": 56}
    )


TINY = {
    "llava": Tiny(
        LlavaForConditionalGeneration,
        _config,
        _processor,
        tokens=_TOKENS,
        eos="</s>",
        template=_TEMPLATE,
        bos="<s>",
    )
}
'''


def _ordinary(image_processor, tokenizer):
    return LlavaProcessor(
        image_processor,
        tokenizer,
        patch_size=14,
        vision_feature_select_strategy="default",
        num_additional_image_tokens=1,
    )


FAMILY = Family("llava", _ordinary, 1)


@pytest.fixture
def added(tmp_path, monkeypatch):
    """The package's folder with one more file in it."""
    (tmp_path / "llava.py").write_text(ADAPTER)
    path = [*targets.__path__, str(tmp_path)]
    monkeypatch.setattr(targets, "__path__", path)
    assert "llava" not in targets.ADAPTERS
    adapters, tiny = discover(targets.__name__, path)
    assert set(adapters) == {*targets.ADAPTERS, "llava"}
    assert set(tiny) == {*targets.TINY, "llava"}
    monkeypatch.setitem(targets.ADAPTERS, "llava", adapters["llava"])
    monkeypatch.setitem(targets.TINY, "llava", tiny["llava"])
    yield FAMILY
    sys.modules.pop("recap.targets.llava", None)
    vars(targets).pop("llava", None)


TESTS = (
    suite.test_inputs_are_those_of_the_ordinary_processor,
    suite.test_the_ordinary_processor_and_our_own_placeholders_give_the_same,
    suite.test_inputs_without_a_picture_are_those_of_the_ordinary_processor,
    suite.test_typed_special_tokens_are_inert,
    suite.test_decoding_is_identical,
    suite.test_decoding_without_a_picture_is_identical,
    suite.test_custom_generate_is_identical,
)


@pytest.mark.parametrize("test", TESTS, ids=lambda test: test.__name__)
def test_one_file_and_one_line_pass_the_suite(added, test):
    """Discovered, listed, and right."""
    test(added)


def test_tree_logits_of_a_family_that_was_added(added):
    """Its positions are right in a tree."""
    suite.test_tree_logits_agree_with_step_by_step(added, suite.SIZES[0])


def test_two_files_may_not_claim_one_family(added, tmp_path):
    """Which of them would serve it?"""
    (tmp_path / "rival.py").write_text(ADAPTER)
    try:
        with pytest.raises(ValueError, match="llava is served by"):
            discover(targets.__name__, targets.__path__)
    finally:
        sys.modules.pop("recap.targets.rival", None)
        vars(targets).pop("rival", None)


def test_each_family_is_named_in_its_own_file_alone():
    """In the package, that is; the small model of Qwen2.5-VL is also the default one."""
    package = Path(targets.__file__).parents[1]
    for name in FAMILIES:
        family = name.partition("-")[0]
        naming = [f.name for f in package.rglob("*.py") if f'"{family}"' in f.read_text("utf-8")]
        own = Path(sys.modules[targets.ADAPTERS[family].__module__].__file__).name
        assert set(naming) - {"__init__.py"} == {own}
