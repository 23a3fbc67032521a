"""Small random models of the real classes, built in memory: no download, no training.

They say nothing sensible and repeat themselves in loops, which is enough to exercise every code
path, to test that decoding is lossless, and to try the command line before a real model is there.
"""

from __future__ import annotations

from typing import Any

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import (
    GenerationConfig,
    LlamaConfig,
    LlamaForCausalLM,
    PreTrainedTokenizerFast,
    Qwen2_5_VLConfig,
    Qwen2_5_VLForConditionalGeneration,
    Qwen2Config,
    Qwen2ForCausalLM,
    Qwen3Config,
    Qwen3ForCausalLM,
)
from transformers.models.qwen2_vl.image_processing_pil_qwen2_vl import Qwen2VLImageProcessorPil

SPECIAL_TOKENS = (
    "<|endoftext|>",
    "<|im_start|>",
    "<|im_end|>",
    "<|vision_start|>",
    "<|vision_end|>",
    "<|image_pad|>",
    "<|video_pad|>",
)
VOCABULARY = 256 + len(SPECIAL_TOKENS)
CHAT_TEMPLATE = (
    "{% for message in messages %}<|im_start|>{{ message['role'] }}\n"
    "{% if message['content'] is string %}{{ message['content'] }}"
    "{% else %}{% for part in message['content'] %}"
    "{% if part['type'] == 'image' %}<|vision_start|><|image_pad|><|vision_end|>"
    "{% else %}{{ part['text'] }}{% endif %}{% endfor %}{% endif %}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


def byte_tokenizer() -> PreTrainedTokenizerFast:
    """A tokenizer of single bytes and Qwen's special tokens: it encodes any text."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    core = Tokenizer(models.BPE({byte: i for i, byte in enumerate(alphabet)}, []))
    core.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    core.decoder = decoders.ByteLevel()
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=core,
        eos_token="<|im_end|>",
        pad_token="<|endoftext|>",
        clean_up_tokenization_spaces=False,
    )
    tokenizer.add_special_tokens({"additional_special_tokens": list(SPECIAL_TOKENS)})
    tokenizer.chat_template = CHAT_TEMPLATE
    return tokenizer


def image_processor() -> Qwen2VLImageProcessorPil:
    """Qwen's image processing at 4 to 36 merged patches a picture."""
    return Qwen2VLImageProcessorPil(min_pixels=56 * 56, max_pixels=168 * 168)


def tiny_model(family: str, seed: int = 0, *, scale: float = 0.08, **changes: Any) -> Any:
    """A random model of a family: `qwen2_5_vl`, `llama`, `qwen2` or `qwen3`.

    `scale` is the standard deviation of the weights: the larger, the more concentrated the
    predictions. `changes` go to the (text) configuration.
    """
    text: dict[str, Any] = {
        "vocab_size": VOCABULARY,
        "hidden_size": 64,
        "intermediate_size": 96,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "max_position_embeddings": 4096,
        "initializer_range": scale,
        "bos_token_id": None,
        "eos_token_id": None,
        "pad_token_id": None,
        **changes,
    }
    torch.manual_seed(seed)
    ids = {name: 256 + place for place, name in enumerate(SPECIAL_TOKENS)}
    if family == "qwen2_5_vl":
        config = Qwen2_5_VLConfig(
            text_config={
                **text,
                "rope_parameters": {"rope_type": "default", "mrope_section": [2, 3, 3]},
            },
            vision_config={
                "depth": 2,
                "hidden_size": 32,
                "intermediate_size": 48,
                "num_heads": 2,
                "out_hidden_size": text["hidden_size"],
                "fullatt_block_indexes": [1],
                "window_size": 56,
                "initializer_range": scale,
            },
            image_token_id=ids["<|image_pad|>"],
            video_token_id=ids["<|video_pad|>"],
            vision_start_token_id=ids["<|vision_start|>"],
            vision_end_token_id=ids["<|vision_end|>"],
        )
        model: Any = Qwen2_5_VLForConditionalGeneration(config)
    else:
        config_class, model_class = {
            "llama": (LlamaConfig, LlamaForCausalLM),
            "qwen2": (Qwen2Config, Qwen2ForCausalLM),
            "qwen3": (Qwen3Config, Qwen3ForCausalLM),
        }[family]
        model = model_class(config_class(**text))
    model.generation_config = GenerationConfig(eos_token_id=ids["<|im_end|>"])
    return model.eval()
