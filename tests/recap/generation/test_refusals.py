"""What would give other ids than `generate` is refused by name."""

from __future__ import annotations

import pytest
import torch
from transformers import DynamicCache, LogitsProcessor, LogitsProcessorList, StaticCache

import recap
from recap.errors import MemoryMismatchError, ModelError, ProcessorError, PromptError, SettingsError
from recap.targets import TINY, make_target
from tests.recap.families import family_target
from tests.recap.generation.calls import refused


def test_memories_of_another_model_are_refused(target, inputs):
    """Ids of another vocabulary mean other words; what to do is said."""
    other = family_target("llava_next")
    advice = "another model.*make_target"
    refused(target, inputs, MemoryMismatchError, advice, memory=recap.Session(other))
    advice = "another model.*an empty one"
    refused(target, inputs, MemoryMismatchError, advice, memory=recap.new_memory(other))


class Counting(LogitsProcessor):
    def __call__(self, input_ids, scores):
        return scores


@pytest.mark.parametrize(
    ("options", "error", "match"),
    [
        ({"do_sample": True}, SettingsError, "do_sample"),
        ({"num_beams": 2}, SettingsError, "num_beams"),
        ({"return_dict_in_generate": True, "output_scores": True}, SettingsError, "output_scores"),
        ({"return_dict_in_generate": True, "output_logits": True}, SettingsError, "output_logits"),
        ({"logits_processor": LogitsProcessorList([Counting()])}, ProcessorError, "Counting"),
        ({"guidance_scale": 1.5}, ProcessorError, "ClassifierFree"),
        ({"encoder_repetition_penalty": 1.5}, ProcessorError, "EncoderRepetition"),
        ({"method": "magic"}, SettingsError, "method"),
    ],
    ids=lambda value: next(reversed(value)) if isinstance(value, dict) else "",
)
def test_what_would_give_other_ids_is_refused_by_name(target, inputs, options, error, match):
    """Each with its own name in the message."""
    refused(target, inputs, error, match, **options)


def test_several_answers_are_refused(target, inputs):
    """`num_return_sequences` needs sampling in transformers; greedily it is refused there."""
    refused(target, inputs, (SettingsError, ValueError), "num_return_sequences",
            num_return_sequences=2)  # fmt: skip


def test_a_batch_is_refused():
    """One prompt at a time, with or without padding."""
    target = make_target(TINY["llama"].make())
    batch = {"input_ids": torch.tensor([[1, 2, 3], [4, 5, 6]])}
    refused(target, batch, PromptError, "One prompt")
    padded = {
        "input_ids": torch.tensor([[0, 2, 3]]),
        "attention_mask": torch.tensor([[0, 1, 1]]),
    }
    refused(target, padded, PromptError, "padded")


def test_embeddings_are_refused():
    """Without ids there are no keys."""
    target = make_target(TINY["llama"].make())
    embeds = target.model.get_input_embeddings()(torch.tensor([[1, 2, 3]]))
    refused(target, {"inputs_embeds": embeds}, SettingsError, "inputs_embeds")


def test_a_cache_that_is_not_empty_or_not_dynamic_is_refused():
    """An earlier answer cannot be continued."""
    target = make_target(TINY["llama"].make())
    ids = torch.tensor([[1, 2, 3, 4]])
    cache = DynamicCache(config=target.model.config)
    with torch.no_grad():
        target.model(ids[:, :3], cache=cache)
    refused(target, {"input_ids": ids}, SettingsError, "cache: must be empty", cache=cache)
    cache = StaticCache(config=target.model.config, max_cache_len=64)
    refused(target, {"input_ids": ids}, SettingsError, "DynamicCache, got Static", cache=cache)


def test_a_family_without_an_adapter_is_refused():
    """By its name, with those that are supported."""
    from transformers import GPT2Config, GPT2LMHeadModel

    model = GPT2LMHeadModel(GPT2Config(n_layer=1, n_embd=16, n_head=2, vocab_size=50)).eval()
    with pytest.raises(ModelError, match=r"'gpt2'.*llava_next"):
        model.generate(
            torch.tensor([[1, 2]]), do_sample=False, max_new_tokens=2,
            custom_generate=recap.generate,
        )  # fmt: skip


def test_the_models_sampling_defaults_are_named(target, inputs):
    """Published models sample by default: the refusal says what to set."""
    model = family_target("qwen2_5_vl").model
    model.generation_config.do_sample = True
    with pytest.raises(SettingsError, match="do_sample: must be False"):
        model.generate(**inputs, max_new_tokens=2, custom_generate=recap.generate)
