"""Text from tokens as they come: exact, and never half a character.

    detokenizer = Detokenizer(tokenizer)
    pieces = [detokenizer.push(token) for token in ids] + [detokenizer.finish()]
    assert "".join(pieces) == tokenizer.decode(ids, skip_special_tokens=True)

Byte-level vocabularies are decoded byte by byte. Elsewhere a tokenizer's decoder may look across
tokens (byte tokens make a character together, a leading space is stripped at the very start), so
each new token is decoded behind the few tokens before it, and what the text grew by is the piece.
Either way nothing is given out while the text may end inside a character, and the whole output is
never decoded again.
"""

from __future__ import annotations

import codecs
import re
from functools import lru_cache
from typing import Any
from weakref import WeakKeyDictionary

_REPLACEMENT = "\ufffd"
_BYTE_TOKEN = re.compile(r"<0x([0-9A-F]{2})>")


class Detokenizer:
    """Incremental decoding of one answer. Special tokens are left out, as in the answer's text."""

    def __init__(self, tokenizer: Any) -> None:
        self._tokenizer = tokenizer
        added = tokenizer.added_tokens_decoder.items()
        self._special = {token for token, spelled in added if spelled.special}
        self._text = _ByteText(tokenizer) if is_byte_level(tokenizer) else _WindowText(tokenizer)

    def push(self, token: int) -> str:
        """The text that this token completes; empty where it ends inside a character."""
        # A special token is left out of the text, and not between the bytes around it either.
        return "" if token in self._special else self._text.push(token)

    @property
    def held(self) -> str:
        """What is not given out yet, as it would read if nothing came behind it."""
        return self._text.held

    def finish(self) -> str:
        """The rest of the text. A character that was never completed reads as U+FFFD."""
        return self._text.finish()


class _ByteText:
    """Tokens that stand for bytes each: UTF-8, decoded as the bytes come."""

    def __init__(self, tokenizer: Any) -> None:
        self._tokenizer = tokenizer
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def push(self, token: int) -> str:
        return self._decoder.decode(token_bytes(self._tokenizer, token))

    @property
    def held(self) -> str:
        return self._decoder.getstate()[0].decode("utf-8", "replace")

    def finish(self) -> str:
        return self._decoder.decode(b"", final=True)


class _WindowText:
    """Any other vocabulary: the last few tokens are decoded again behind what they follow."""

    def __init__(self, tokenizer: Any) -> None:
        self._tokenizer = tokenizer
        self._window: list[int] = []  # tokens of the context, then those not given out yet
        self._context = 0  # how many of them are context
        self._given = ""  # text of the context

    def push(self, token: int) -> str:
        self._window.append(token)
        if self._is_byte(token):
            return ""
        text = self._decode(self._window)
        if text.endswith(_REPLACEMENT):
            return ""
        piece = text[len(self._given) :]
        fresh = self._window[self._context :]
        given = self._decode(fresh)
        if given:
            self._window, self._given = fresh, given
        else:  # a token without text: keep the older context before it
            self._given = text
        self._context = len(self._window)
        return piece

    @property
    def held(self) -> str:
        return self._decode(self._window)[len(self._given) :]

    def finish(self) -> str:
        rest = self.held
        self._context, self._given = len(self._window), self._given + rest
        return rest

    def _decode(self, ids: list[int]) -> str:
        return decode(self._tokenizer, ids)

    def _is_byte(self, token: int) -> bool:
        """Whether a byte-fallback token: a run of those may yet turn out to be no UTF-8."""
        spelled = self._tokenizer.convert_ids_to_tokens(token)
        return bool(spelled and _BYTE_TOKEN.fullmatch(spelled))


def decode(tokenizer: Any, ids: list[int]) -> str:
    """The text of an answer: special tokens left out, spaces as they are."""
    return tokenizer.decode(ids, skip_special_tokens=True, clean_up_tokenization_spaces=False)


@lru_cache(maxsize=16)
def is_byte_level(tokenizer: Any) -> bool:
    """Whether the vocabulary spells bytes as printable characters (GPT-2's and Qwen's kind)."""
    return "ByteLevel" in repr(tokenizer.backend_tokenizer.decoder)


def token_bytes(tokenizer: Any, token: int) -> bytes:
    """The bytes that one token stands for; special tokens stand for their spelling."""
    spelled = tokenizer.convert_ids_to_tokens(token)
    if spelled is None:
        return b""
    if is_byte_level(tokenizer):
        if all(char in _BYTE_OF for char in spelled):
            return bytes(_BYTE_OF[char] for char in spelled)
        return spelled.encode("utf-8", "replace")
    if match := _BYTE_TOKEN.fullmatch(spelled):
        return bytes([int(match[1], 16)])
    return spelled.replace("\u2581", " ").encode("utf-8", "replace")


def spelling(tokenizer: Any, token: int) -> tuple[str, str]:
    """(text, bytes in hexadecimal) of one token, as a trace's vocabulary shows it; remembered."""
    known = _SPELLINGS.setdefault(tokenizer, {})
    found = known.get(token)
    if found is None:
        spelled = token_bytes(tokenizer, token) if token >= 0 else b""
        found = known[token] = (spelled.decode("utf-8", "replace"), spelled.hex())
    return found


#: Every answer shows many of the tokens that the last one showed. Goes with the tokenizer.
_SPELLINGS: WeakKeyDictionary[Any, dict[int, tuple[str, str]]] = WeakKeyDictionary()


def _byte_alphabet() -> dict[str, int]:
    """Byte-level BPE spells each byte as one printable character: this maps them back.

    Printable Latin-1 bytes stand for themselves; the others are numbered from U+0100 on.
    """
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in printable]
    return {chr(byte): byte for byte in printable} | {
        chr(256 + place): byte for place, byte in enumerate(others)
    }


_BYTE_OF = _byte_alphabet()
