"""Pieces of text: exact, and never half a character."""

from __future__ import annotations

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from recap.detokenize import Detokenizer, decode, token_bytes
from tests.recap.reference import tokenizer


def byte_level():
    return tokenizer()


def byte_fallback():
    """Words with a leading-space mark, single bytes for the rest: Llama's kind."""
    words = [
        "<unk>",
        "</s>",
        *(f"<0x{b:02X}>" for b in range(256)),
        "\u2581the",
        "\u2581",
        "cat",
        "s",
        "f\u00fcr",
    ]
    core = Tokenizer(
        models.BPE({w: i for i, w in enumerate(words)}, [], unk_token="<unk>", byte_fallback=True)
    )
    core.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="first", split=False)
    core.decoder = decoders.Sequence(
        [
            decoders.Replace("\u2581", " "),
            decoders.ByteFallback(),
            decoders.Fuse(),
            decoders.Strip(" ", 1, 0),
        ]
    )
    return PreTrainedTokenizerFast(
        tokenizer_object=core,
        eos_token="</s>",
        unk_token="<unk>",
        clean_up_tokenization_spaces=False,
    )


TOKENIZERS = {"byte-level": byte_level(), "byte-fallback": byte_fallback()}


def pieces_of(kind, ids):
    detokenizer = Detokenizer(TOKENIZERS[kind])
    return [*(detokenizer.push(token) for token in ids), detokenizer.finish()]


@pytest.mark.parametrize("kind", TOKENIZERS)
@settings(deadline=None, max_examples=300)
@given(data=st.data())
def test_pieces_concatenate_to_the_full_decode(kind, data):
    """Any ids at all: broken UTF-8, special tokens in between, spaces first."""
    tokenizer = TOKENIZERS[kind]
    ids = data.draw(st.lists(st.integers(0, len(tokenizer) - 1), max_size=25))
    assert "".join(pieces_of(kind, ids)) == decode(tokenizer, ids)


@settings(deadline=None)
@given(st.text(max_size=20))
def test_no_piece_holds_half_a_character(text):
    """Text of whole characters never shows a replacement character of its own making."""
    assume("<|" not in text)  # special tokens are no text
    ids = TOKENIZERS["byte-level"](text, add_special_tokens=False)["input_ids"]
    pieces = pieces_of("byte-level", ids)
    assert "".join(pieces) == text
    if "\ufffd" not in text:
        assert all("\ufffd" not in piece for piece in pieces)


def test_two_emoji_in_a_row_of_bytes():
    """A run of byte tokens may still turn out to be no UTF-8: nothing is given out too early."""
    kind = "byte-fallback"
    tokenizer = TOKENIZERS[kind]
    spelled = [f"<0x{b:02X}>" for b in "😀😀".encode()]
    ids = tokenizer.convert_tokens_to_ids(spelled)
    for cut in range(len(ids) + 1):
        assert "".join(pieces_of(kind, ids[:cut])) == decode(tokenizer, ids[:cut])
    cat = tokenizer.convert_tokens_to_ids("cat")
    assert pieces_of(kind, [*ids, cat])[-2] == "😀😀cat"


@pytest.mark.parametrize("spelled", ["cat", "<0xE2>"])
def test_work_per_token_does_not_grow(monkeypatch, spelled):
    """The whole output is never decoded again, not even while it is no UTF-8."""
    kind = "byte-fallback"
    detokenizer = Detokenizer(TOKENIZERS[kind])
    lengths = []
    original = detokenizer._text._decode

    def counting(ids):
        lengths.append(len(ids))
        return original(ids)

    monkeypatch.setattr(detokenizer._text, "_decode", counting)
    for _ in range(300):
        detokenizer.push(TOKENIZERS[kind].convert_tokens_to_ids(spelled))
    assert max(lengths, default=0) <= 4


def test_bytes_that_are_no_text_are_given_out():
    """A byte-level vocabulary holds back three bytes at most."""
    detokenizer = Detokenizer(TOKENIZERS["byte-level"])
    broken = TOKENIZERS["byte-level"].convert_tokens_to_ids("\u00c3")  # byte 0xC3, again and again
    given = [detokenizer.push(broken) for _ in range(50)]
    assert len("".join(given)) >= 49


@pytest.mark.parametrize(
    ("kind", "token", "wanted"),
    [
        ("byte-level", "Ġ", b" "),
        ("byte-level", "a", b"a"),
        ("byte-level", "<|im_end|>", b"<|im_end|>"),
        ("byte-fallback", "<0xF0>", b"\xf0"),
        ("byte-fallback", "\u2581the", b" the"),
        ("byte-fallback", "f\u00fcr", "f\u00fcr".encode()),
    ],
)
def test_bytes_of_a_token(kind, token, wanted):
    """What one token stands for, byte by byte."""
    tokenizer = TOKENIZERS[kind]
    assert token_bytes(tokenizer, tokenizer.convert_tokens_to_ids(token)) == wanted
