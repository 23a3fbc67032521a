"""Small random models of the real classes, built in memory: no download, no training.

They say nothing sensible and repeat themselves in loops, which is enough to exercise every code
path, to test that decoding is lossless, and to try the command line before a real model is there.

model = tiny_model("llava_next")                   # any name of `TINY`
tokenizer = TINY["llava_next"].tokenizer()
processor = TINY["llava_next"].image_processor()
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors
from transformers import (
    CLIPVisionConfig,
    GenerationConfig,
    Idefics3Config,
    Idefics3ForConditionalGeneration,
    LlamaConfig,
    LlamaForCausalLM,
    LlavaNextConfig,
    LlavaNextForConditionalGeneration,
    PreTrainedTokenizerFast,
    Qwen2_5_VLConfig,
    Qwen2_5_VLForConditionalGeneration,
    Qwen2Config,
    Qwen2ForCausalLM,
    Qwen2VLConfig,
    Qwen2VLForConditionalGeneration,
    Qwen3Config,
    Qwen3ForCausalLM,
    Qwen3VLConfig,
    Qwen3VLForConditionalGeneration,
    SmolVLMConfig,
    SmolVLMForConditionalGeneration,
)
from transformers.models.idefics3.image_processing_pil_idefics3 import Idefics3ImageProcessorPil
from transformers.models.llava_next.image_processing_pil_llava_next import (
    LlavaNextImageProcessorPil,
)
from transformers.models.qwen2_vl.image_processing_pil_qwen2_vl import Qwen2VLImageProcessorPil
from transformers.models.smolvlm.image_processing_pil_smolvlm import SmolVLMImageProcessorPil

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
# LLaVA's opens with <s>, which the tokenizer adds and the template leaves out.
_LLAVA_TOKENS = ("<s>", "</s>", "<image>")
_LLAVA_TEMPLATE = (
    "{% for message in messages %}{{ message['role'].upper() + ': ' }}"
    "{% for part in message['content'] | selectattr('type', 'equalto', 'image') %}<image>\n"
    "{% endfor %}{% for part in message['content'] | selectattr('type', 'equalto', 'text') %}"
    "{{ part['text'] + ' ' }}{% endfor %}{% endfor %}"
    "{% if add_generation_prompt %}ASSISTANT:{% endif %}"
)
#: Tiles along an edge of the largest picture that the small Idefics3 splits.
_TILES = 4
_IDEFICS_TOKENS = (
    "<|im_start|>",
    "<end_of_utterance>",
    "<fake_token_around_image>",
    "<image>",
    "<global-img>",
    *(f"<row_{i}_col_{j}>" for i in range(1, _TILES + 1) for j in range(1, _TILES + 1)),
)
_IDEFICS_TEMPLATE = (
    "<|im_start|>{% for message in messages %}{{ message['role'] | capitalize }}"
    "{% if message['content'][0]['type'] == 'image' %}:{% else %}: {% endif %}"
    "{% for part in message['content'] %}{% if part['type'] == 'image' %}<image>"
    "{% else %}{{ part['text'] }}{% endif %}{% endfor %}<end_of_utterance>\n{% endfor %}"
    "{% if add_generation_prompt %}Assistant:{% endif %}"
)


@dataclass(frozen=True)
class Tiny:
    """A small random model: its classes, and the tokens and the template that go with it.

    `config` makes a configuration from (settings of the text part, ids of the special tokens,
    scale). `eos` is the token that ends an answer; `bos`, where there is one, opens every text.
    """

    model: Any
    config: Callable[[dict[str, Any], dict[str, int], float], Any]
    image_processor: Callable[[], Any] | None = None
    tokens: tuple[str, ...] = SPECIAL_TOKENS
    eos: str = "<|im_end|>"
    template: str = CHAT_TEMPLATE
    bos: str | None = None

    @property
    def ids(self) -> dict[str, int]:
        """Ids of the special tokens: they stand behind the 256 bytes."""
        return {token: 256 + place for place, token in enumerate(self.tokens)}

    def tokenizer(self) -> PreTrainedTokenizerFast:
        """A tokenizer of single bytes and this model's special tokens: it encodes any text."""
        alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
        core = Tokenizer(models.BPE({byte: i for i, byte in enumerate(alphabet)}, []))
        core.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
        core.decoder = decoders.ByteLevel()
        tokenizer = PreTrainedTokenizerFast(
            tokenizer_object=core,
            bos_token=self.bos,
            eos_token=self.eos,
            pad_token=self.tokens[0],
            clean_up_tokenization_spaces=False,
        )
        tokenizer.add_special_tokens({"additional_special_tokens": list(self.tokens)})
        if self.bos:
            tokenizer.backend_tokenizer.post_processor = processors.TemplateProcessing(
                single=f"{self.bos} $A", special_tokens=[(self.bos, self.ids[self.bos])]
            )
        tokenizer.chat_template = self.template
        return tokenizer


def byte_tokenizer() -> PreTrainedTokenizerFast:
    """A tokenizer of single bytes and Qwen's special tokens: it encodes any text."""
    return TINY["qwen2_5_vl"].tokenizer()


def image_processor() -> Qwen2VLImageProcessorPil:
    """Qwen's image processing at 4 to 36 merged patches a picture."""
    return Qwen2VLImageProcessorPil(min_pixels=56 * 56, max_pixels=168 * 168)


def tiny_model(family: str, seed: int = 0, *, scale: float = 0.08, **changes: Any) -> Any:
    """A random model of a family: a name of `TINY`.

    `scale` is the standard deviation of the weights: the larger, the more concentrated the
    predictions. `changes` go to the (text) configuration.
    """
    tiny = TINY[family]
    text: dict[str, Any] = {
        "vocab_size": 256 + len(tiny.tokens),
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
    model = tiny.model(tiny.config(text, tiny.ids, scale))
    model.generation_config = GenerationConfig(eos_token_id=tiny.ids[tiny.eos])
    return model.eval()


def _causal(config: Any) -> Callable[[dict[str, Any], dict[str, int], float], Any]:
    return lambda text, ids, scale: config(**text)


def _qwen_vl(config: Any, output: str, vision: dict[str, Any], **rope: Any) -> Any:
    """Qwen's three differ in their vision towers and in how M-RoPE is laid out.

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


def _llava_next(decoder: dict[str, Any]) -> Any:
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


#: LLaVA's own resolutions, at a sixth of the size.
_PINPOINTS = [[56, 112], [112, 56], [112, 112], [168, 56], [56, 168]]


def _llava_next_processor() -> LlavaNextImageProcessorPil:
    return LlavaNextImageProcessorPil(
        size={"shortest_edge": 56},
        crop_size={"height": 56, "width": 56},
        image_grid_pinpoints=_PINPOINTS,
    )


def _idefics3(config: Any) -> Any:
    def make(text: dict[str, Any], ids: dict[str, int], scale: float) -> Any:
        return config(
            vision_config={
                "hidden_size": 32,
                "intermediate_size": 48,
                "num_hidden_layers": 2,
                "num_attention_heads": 2,
                "image_size": 56,
                "patch_size": 14,
                "initializer_range": scale,
            },
            text_config={"model_type": "llama", **text},
            image_token_id=ids["<image>"],
            scale_factor=2,
        )

    return make


def _idefics3_processor(kind: Any) -> Callable[[], Any]:
    return lambda: kind(size={"longest_edge": _TILES * 56}, max_image_size={"longest_edge": 56})


_LLAVA: dict[str, Any] = {
    "image_processor": _llava_next_processor,
    "tokens": _LLAVA_TOKENS,
    "eos": "</s>",
    "template": _LLAVA_TEMPLATE,
    "bos": "<s>",
}
_IDEFICS: dict[str, Any] = {
    "tokens": _IDEFICS_TOKENS,
    "eos": "<end_of_utterance>",
    "template": _IDEFICS_TEMPLATE,
}

#: The small models by name: a `model_type`, with the decoder where a family has several.
TINY: dict[str, Tiny] = {
    "llama": Tiny(LlamaForCausalLM, _causal(LlamaConfig)),
    "qwen2": Tiny(Qwen2ForCausalLM, _causal(Qwen2Config)),
    "qwen3": Tiny(Qwen3ForCausalLM, _causal(Qwen3Config)),
    "qwen2_vl": Tiny(
        Qwen2VLForConditionalGeneration,
        _qwen_vl(Qwen2VLConfig, "hidden_size", {"embed_dim": 32, "mlp_ratio": 2}),
        image_processor,
    ),
    "qwen2_5_vl": Tiny(
        Qwen2_5_VLForConditionalGeneration,
        _qwen_vl(
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
    ),
    "qwen3_vl": Tiny(
        Qwen3VLForConditionalGeneration,
        _qwen_vl(
            Qwen3VLConfig,
            "out_hidden_size",
            {
                "hidden_size": 32,
                "intermediate_size": 48,
                "num_position_embeddings": 64,
                "deepstack_visual_indexes": [0, 1],
            },
            mrope_interleaved=True,
        ),
        lambda: Qwen2VLImageProcessorPil(patch_size=16, min_pixels=64 * 64, max_pixels=192 * 192),
    ),
    "llava_next": Tiny(
        LlavaNextForConditionalGeneration, _llava_next({"model_type": "llama"}), **_LLAVA
    ),
    "llava_next-mistral": Tiny(
        LlavaNextForConditionalGeneration,
        _llava_next({"model_type": "mistral", "sliding_window": None}),
        **_LLAVA,
    ),
    "idefics3": Tiny(
        Idefics3ForConditionalGeneration,
        _idefics3(Idefics3Config),
        _idefics3_processor(Idefics3ImageProcessorPil),
        **_IDEFICS,
    ),
    "smolvlm": Tiny(
        SmolVLMForConditionalGeneration,
        _idefics3(SmolVLMConfig),
        _idefics3_processor(SmolVLMImageProcessorPil),
        **_IDEFICS,
    ),
}
