"""The tokenizer: any text round trips, digits stand alone, the chat format is Qwen's."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import AutoTokenizer

from recap.demo.tokenizer import SPECIALS, VOCABULARY, special_ids, train_tokenizer
from recap.demo.words import COLOURS, LEXICON, SHAPES, SIZES
from recap.targets import demo_path

BUNDLED = AutoTokenizer.from_pretrained(demo_path())


@settings(max_examples=200, deadline=None)
@given(st.text(st.characters(exclude_categories=["Cs"]), max_size=40))
def test_any_text_round_trips(text):
    """Byte-level: nothing that a person can type is lost."""
    ids = BUNDLED(text, add_special_tokens=False).input_ids
    assert BUNDLED.decode(ids, skip_special_tokens=False) == text


def test_digits_are_single_tokens():
    """A number has as many tokens as digits, the space before it included."""
    assert len(BUNDLED(" 12345").input_ids) == 5
    assert len(BUNDLED("3.50").input_ids) == 4


def test_what_pictures_show_is_one_token():
    """Printed words, colours, shapes and sizes have an id with and without a space before them."""
    for word in (*LEXICON, *COLOURS, *SHAPES, *SIZES):
        assert len(BUNDLED(f" {word}").input_ids) == 1
        assert len(BUNDLED(word).input_ids) == 1


def test_vocabulary_and_specials():
    """The ids fit the model, and the specials are Qwen's and never split."""
    assert len(BUNDLED) == VOCABULARY
    assert max(special_ids(BUNDLED).values()) < VOCABULARY
    for token in SPECIALS:
        assert len(BUNDLED(token).input_ids) == 1
    assert BUNDLED.eos_token == "<|im_end|>"
    assert BUNDLED.pad_token == "<|endoftext|>"


def test_chat_template():
    """One user turn with a picture, a text turn, and several turns."""
    content = [{"type": "image"}, {"type": "text", "text": "Hi"}]
    text = BUNDLED.apply_chat_template(
        [{"role": "user", "content": content}], tokenize=False, add_generation_prompt=True
    )
    assert text == (
        "<|im_start|>user\n<|vision_start|><|image_pad|><|vision_end|>Hi<|im_end|>\n"
        "<|im_start|>assistant\n"
    )
    turns = [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Hello!"}]
    assert BUNDLED.apply_chat_template(turns, tokenize=False) == (
        "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\nHello!<|im_end|>\n"
    )


def test_the_same_seed_gives_the_same_tokenizer(tokenizer):
    """Training the tokenizer is deterministic."""
    assert train_tokenizer(seed=0, texts=1500).get_vocab() == tokenizer.get_vocab()
