"""Suffix-matched continuations: what followed the last time the text ended like this.

    index = SuffixIndex(max_match=8)
    index.extend([5, 6, 7, 9, 5, 6])
    index.propose(min_match=2, limit=4)      # -> (2, [7, 9, 5, 6])

An index of hashed n-grams: for each n up to `max_match`, the position after the n-gram's most
recent (or earliest) occurrence. A token costs `max_match` dictionary writes, a lookup at most
`max_match` reads; neither grows with the text. N-grams never span a `GAP` (an image placeholder).

What earlier requests said is kept by an `EarlierTexts` instead: one array, looked through by
compiled code. A new request then costs one copy of it, and nothing is indexed.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from recap.compiled import INT, INTS, ints, kernel
from recap.prediction import GAP


class SuffixIndex:
    """The text so far and where each of its n-grams was last (or first) followed by something."""

    def __init__(self, max_match: int = 8, occurrence: str = "recent") -> None:
        self.text: list[int] = []
        self._max_match = max_match
        self._earliest = occurrence == "earliest"
        # One table a length: n-gram -> position of the token that followed it.
        self._follows: list[dict[tuple[int, ...], int]] = [{} for _ in range(max_match + 1)]
        self._run = 0  # tokens since the last gap

    def extend(self, tokens: Iterable[int]) -> None:
        """Append tokens to the text."""
        text, tables, max_match = self.text, self._follows, self._max_match
        for token in tokens:
            end = len(text)
            # Only now do the n-grams that end before this token have a continuation.
            if token != GAP and self._run:
                longest = min(self._run, max_match)
                for n, table in zip(range(1, longest + 1), tables[1:], strict=False):
                    gram = tuple(text[end - n : end])
                    if self._earliest:
                        table.setdefault(gram, end)
                    else:
                        table[gram] = end
            text.append(token)
            self._run = 0 if token == GAP else self._run + 1

    def propose(self, min_match: int, limit: int) -> tuple[int, list[int]]:
        """(match length, up to `limit` tokens that followed it); (0, []) where nothing matches.

        The match is the longest suffix of the text, of at most `max_match` tokens, that occurred
        before; its chosen occurrence supplies the continuation, which stops at a gap.
        """
        text = self.text
        end = len(text)
        for n in range(min(self._run, self._max_match), min_match - 1, -1):
            start = self._follows[n].get(tuple(text[end - n :]))
            if start is not None:
                return n, _until_gap(text[start : start + limit])
        return 0, []


def _until_gap(tokens: list[int]) -> list[int]:
    return tokens[: tokens.index(GAP)] if GAP in tokens else tokens


@kernel(INTS(INTS, INTS, INT))
def _longest_match(text, tail, least):
    """[length, end] of the longest match of the end of `tail` in `text` before position `end`, the
    latest of equals; [0, 0] where none has `least` tokens."""
    found = np.zeros(2, np.int64)
    most = 0  # what of the tail lies behind its last gap
    while most < len(tail) and tail[len(tail) - 1 - most] != GAP:
        most += 1
    if most < least:
        return found
    last = tail[len(tail) - 1]
    for end in range(len(text) - 1, 0, -1):
        if text[end - 1] != last or text[end] == GAP:  # behind a gap nothing followed
            continue
        n, longest = 1, min(most, end)
        while n < longest and text[end - 1 - n] == tail[len(tail) - 1 - n]:
            n += 1
        if n >= least and n > found[0]:
            found[0], found[1] = n, end
            if n == most:
                break
    return found


class EarlierTexts:
    """The texts of a session's earlier requests, the latest `capacity` tokens of them.

    A lookup goes through all of them: some 35 microseconds when it is full.
    """

    def __init__(self, capacity: int = 16_384) -> None:
        self.capacity = capacity
        self.tokens = np.empty(0, np.int64)  # a gap behind each text

    def __len__(self) -> int:
        return len(self.tokens)

    def append(self, text: Sequence[int]) -> None:
        """Keep a text; what is beyond the capacity is forgotten, the oldest first.

        Of gaps in a row one is kept: an image would take the place of a hundred answers.
        """
        if len(text):
            tokens = np.append(ints(text), GAP)
            tokens = tokens[np.append(True, (tokens[1:] != GAP) | (tokens[:-1] != GAP))]
            self.tokens = np.concatenate([self.tokens, tokens])[-self.capacity :].copy()

    def propose(self, tail: Sequence[int], min_match: int, limit: int) -> tuple[int, list[int]]:
        """As `SuffixIndex.propose`, for a text that ends in `tail`, the longest match wanted."""
        match, start = _longest_match(self.tokens, ints(tail), min_match).tolist()
        return match, _until_gap(self.tokens[start : start + limit].tolist()) if match else []

    def clear(self) -> None:
        """Forget everything."""
        self.tokens = np.empty(0, np.int64)

    def copy(self) -> EarlierTexts:
        """An independent copy."""
        twin = EarlierTexts(self.capacity)
        twin.tokens = self.tokens.copy()
        return twin
