"""`model.generate(..., custom_generate=recap.generate)`: the same ids, and what comes with them."""

from __future__ import annotations

import pytest
import torch
from transformers import AutoModelForImageTextToText, AutoProcessor, DynamicCache
from transformers.models.llava_next.processing_llava_next import LlavaNextProcessor

import recap
from recap.drafters import METHODS
from recap.targets import TINY, make_target
from tests.recap.generation.calls import LENGTH, both
from tests.recap.reference import picture


def test_ids_come_back_behind_the_prompt(target, inputs):
    """(1, prompt + new), on the prompt's own device and type."""
    alone, ours = both(target, inputs)
    assert ours.shape == (1, inputs["input_ids"].shape[1] + LENGTH)
    assert ours.dtype == inputs["input_ids"].dtype
    assert torch.equal(alone, ours)


@pytest.mark.parametrize("family", ["llama", "qwen2", "qwen3"])
def test_text_models_and_an_absent_mask(family):
    """Text models too, with ids alone."""
    model = TINY[family].make(2, scale=0.12)
    inputs = {"input_ids": torch.tensor([[5, 9, 5, 9, 5]])}
    alone, ours = both(make_target(model), inputs)
    assert torch.equal(alone, ours)


def test_return_dict_and_cache(target, inputs):
    """The output class of `generate`, and a cache that an ordinary pass can go on from."""
    alone, ours = both(target, inputs, return_dict_in_generate=True)
    assert type(ours) is type(alone)
    assert torch.equal(alone.sequences, ours.sequences)
    assert ours.cache.get_seq_length() == alone.cache.get_seq_length()
    for mine, theirs in zip(ours.cache.layers, alone.cache.layers, strict=True):
        assert torch.allclose(mine.keys, theirs.keys, atol=1e-5)
        assert torch.allclose(mine.values, theirs.values, atol=1e-5)


def test_a_cache_of_the_caller_is_filled(target, inputs):
    """A `DynamicCache` that was handed in empty holds prompt and answer afterwards."""
    cache = DynamicCache(config=target.model.config.get_text_config())
    ids = target.model.generate(
        **inputs, max_new_tokens=6, do_sample=False, cache=cache, custom_generate=recap.generate
    )
    assert cache.get_seq_length() == ids.shape[1] - 1


def test_own_keywords_arrive(target, inputs):
    """`method`, `settings` and `on_step`, and nothing of them reaches the model."""
    for method in METHODS:
        steps = []
        ids = target.model.generate(
            **inputs,
            max_new_tokens=LENGTH,
            do_sample=False,
            custom_generate=recap.generate,
            method=method,
            settings=METHODS[method].settings(budget=3),
            on_step=steps.append,
        )
        assert 1 + sum(step.accepted_length for step in steps) == LENGTH
        assert max(len(step.nodes) for step in steps) <= 3
        assert ids[0, -1] == steps[-1].emitted[-1].token


def test_a_session_keeps_the_memory_over_calls(target, inputs):
    """The second call starts with what the first one learnt."""
    session = recap.Session(target)
    for _ in range(2):
        steps = []
        target.model.generate(
            **inputs,
            max_new_tokens=LENGTH,
            do_sample=False,
            custom_generate=recap.generate,
            method="recap-plus",
            memory=session,
            on_step=steps.append,
        )
    assert session.memory("recap-plus").requests == 2
    # Before its first pass, the second call has what the first one's passes wrote.
    assert any(step >= 0 for step in steps[0].entries.step)


def test_the_example_of_the_documentation(tmp_path):
    """With what AutoModel and AutoProcessor load, as anybody would write it."""
    tiny = TINY["llava_next"]
    TINY["llava_next"].make().save_pretrained(tmp_path)
    LlavaNextProcessor(
        tiny.image_processor(),
        tiny.tokenizer(),
        patch_size=14,
        vision_feature_select_strategy="default",
        num_additional_image_tokens=1,
        chat_template=tiny.template,
    ).save_pretrained(tmp_path)
    name, image = str(tmp_path), picture(0)

    model = AutoModelForImageTextToText.from_pretrained(name, dtype="auto")
    processor = AutoProcessor.from_pretrained(name)
    content = [{"type": "image", "image": image}, {"type": "text", "text": "What is this?"}]
    inputs = processor.apply_chat_template(
        [{"role": "user", "content": content}],
        add_generation_prompt=True,
        tokenize=True,
        return_dict=True,
        return_tensors="pt",
    )
    options = {"do_sample": False, "max_new_tokens": 40}
    session = recap.Session(recap.make_target(model))  # keeps what it learns between calls
    ids = model.generate(**inputs, **options, custom_generate=recap.generate, memory=session)

    assert torch.equal(ids, model.generate(**inputs, **options))
    assert session.memory("recap").requests == 1
