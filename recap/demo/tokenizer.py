"""The tokenizer of the bundled model: byte-level BPE with Qwen's special tokens and chat format.

All 256 bytes are in the vocabulary, so any prompt can be encoded and decoded again. Every digit
is a token of its own (with or without the space before it), so that values can be compared and
added digit by digit.
"""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Iterator

from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast

from recap.demo.facts import KINDS, sample
from recap.demo.grammar import REGISTRY, build_turn, chat, turn_about
from recap.demo.words import COLOURS, LEXICON, SHAPES, SIZES
from recap.targets.tiny import SPECIAL_TOKENS

VOCABULARY = 1408
MERGES = 120  # learnt pieces, for words that have no id of their own
SPECIALS = SPECIAL_TOKENS  # Qwen's, as the small random models have them
# Words with the space before them, single digits, runs of punctuation, line ends, other space.
_SPLIT = r" ?\p{L}+| ?\p{N}| ?[^\s\p{L}\p{N}]+|\s*[\r\n]+|\s+(?!\S)|\s+"

# Qwen2.5-VL's chat format without its default system prompt, which would cost tokens each time.
CHAT_TEMPLATE = """\
{%- for message in messages -%}
<|im_start|>{{ message['role'] }}
{% if message['content'] is string -%}
{{ message['content'] }}
{%- else -%}
{%- for part in message['content'] -%}
{%- if part['type'] == 'image' or 'image' in part or 'image_url' in part -%}
<|vision_start|><|image_pad|><|vision_end|>
{%- elif 'text' in part -%}
{{ part['text'] }}
{%- endif -%}
{%- endfor -%}
{%- endif -%}
<|im_end|>
{% endfor -%}
{%- if add_generation_prompt -%}
<|im_start|>assistant
{% endif -%}"""


def _corpus(seed: int, texts: int) -> Iterator[str]:
    rng = random.Random(f"train/{seed}/tokenizer")
    for index in range(texts):
        kind = KINDS[index % 3]
        turn = turn_about(sample(kind, f"train/{seed}/tokenizer/{index}"), rng)
        yield f"{turn.question}\n{turn.answer}"
    for name in REGISTRY["text"]:
        for style in range(4):
            said = build_turn("text", name, None, rng, style)
            assert said is not None
            yield f"{said.question}\n{said.answer}\n" * 3
    yield f"{chat.NO_PICTURE}\n" * 20


def _whole_words(split: pre_tokenizers.PreTokenizer, seed: int, texts: int) -> list[str]:
    """Pre-tokens (in byte-level spelling) that deserve an id: printed words first, then by use."""
    must = [form for word in (*LEXICON, *COLOURS, *SHAPES, *SIZES) for form in (f" {word}", word)]
    must += ["system", "user", "assistant"]
    must += [f"{space}{digit}" for digit in range(10) for space in (" ", "")]
    counts: Counter[str] = Counter()
    for text in _corpus(seed, texts):
        counts.update(piece for piece, _ in split.pre_tokenize_str(text))
    words = [split.pre_tokenize_str(word)[0][0] for word in must]
    words += [word for word, count in counts.most_common() if count > 1]
    return list(dict.fromkeys(words))


def train_tokenizer(seed: int, texts: int = 6000) -> PreTrainedTokenizerFast:
    """A fast tokenizer of `VOCABULARY` ids, made from `texts` turns of the grammar.

    A few learnt merges serve unknown words; known words have an id of their own without the
    intermediate merges that would take up half of so small a vocabulary (`ignore_merges`).
    """
    split = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(_SPLIT), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    pieces = Tokenizer(models.BPE())
    pieces.pre_tokenizer = split
    trainer = trainers.BpeTrainer(
        vocab_size=256 + MERGES,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    pieces.train_from_iterator(_corpus(seed, texts), trainer)
    learnt = json.loads(pieces.to_str())["model"]
    tokens = sorted(learnt["vocab"], key=learnt["vocab"].get)
    for word in _whole_words(split, seed, texts):
        if len(tokens) == VOCABULARY - len(SPECIALS):
            break
        if word not in learnt["vocab"]:
            tokens.append(word)
    bpe = Tokenizer(
        models.BPE(
            vocab={token: index for index, token in enumerate(tokens)},
            merges=[tuple(merge) for merge in learnt["merges"]],
            ignore_merges=True,
        )
    )
    bpe.pre_tokenizer = split
    bpe.decoder = decoders.ByteLevel()
    bpe.add_special_tokens(list(SPECIALS))
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=bpe,
        eos_token="<|im_end|>",
        pad_token="<|endoftext|>",
        additional_special_tokens=list(SPECIALS),
        clean_up_tokenization_spaces=False,
        model_max_length=1024,
    )
    tokenizer.chat_template = CHAT_TEMPLATE
    return tokenizer


def special_ids(tokenizer: PreTrainedTokenizerFast) -> dict[str, int]:
    """Special token -> id."""
    return {token: tokenizer.convert_tokens_to_ids(token) for token in SPECIALS}
