"""Small random models of the real classes, built in memory: no download, no training.

They say nothing sensible and repeat themselves in loops, which is enough to exercise every code
path, to test that decoding is lossless, and to try the command line before a real model is there.
Each adapter's file holds those of its family, as `TINY`; `recap.targets.TINY` has them all.

    tiny = TINY["llama"]
    target = make_target(tiny.make(seed=0), tiny.tokenizer())
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors
from transformers import GenerationConfig, PreTrainedTokenizerFast
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
CHAT_TEMPLATE = (
    "{% for message in messages %}<|im_start|>{{ message['role'] }}\n"
    "{% if message['content'] is string %}{{ message['content'] }}"
    "{% else %}{% for part in message['content'] %}"
    "{% if part['type'] == 'image' %}<|vision_start|><|image_pad|><|vision_end|>"
    "{% else %}{{ part['text'] }}{% endif %}{% endfor %}{% endif %}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
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

    def make(self, seed: int = 0, *, scale: float = 0.08, **changes: Any) -> Any:
        """A random model.

        `scale` is the standard deviation of the weights: the larger, the more concentrated the
        predictions. `changes` go to the (text) configuration.
        """
        text: dict[str, Any] = {
            "vocab_size": 256 + len(self.tokens),
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
        model = self.model(self.config(text, self.ids, scale))
        model.generation_config = GenerationConfig(eos_token_id=self.ids[self.eos])
        return model.eval()

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


def image_processor() -> Qwen2VLImageProcessorPil:
    """Qwen's image processing at 4 to 36 merged patches a picture."""
    return Qwen2VLImageProcessorPil(min_pixels=56 * 56, max_pixels=168 * 168)
