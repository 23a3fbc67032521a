"""The suffix index against a search through the whole text."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from recap.prediction import GAP
from recap.suffix import EarlierTexts, SuffixIndex


def naive(text, max_match, min_match, limit, earliest):
    """Try every length and every earlier place."""
    for n in range(min(max_match, len(text)), min_match - 1, -1):
        suffix = text[len(text) - n :]
        if GAP in suffix:
            continue
        starts = [i for i in range(len(text) - n) if text[i : i + n] == suffix]
        # What follows must be a token: a gap follows nothing.
        starts = [i for i in starts if text[i + n] != GAP]
        if starts:
            start = (min if earliest else max)(starts) + n
            continuation = text[start : start + limit]
            if GAP in continuation:
                continuation = continuation[: continuation.index(GAP)]
            return n, continuation
    return 0, []


@settings(max_examples=300, deadline=None)
@given(
    st.lists(st.lists(st.integers(-1, 3), max_size=8), max_size=8),
    st.integers(1, 6),
    st.integers(1, 3),
    st.integers(1, 5),
    st.sampled_from(["recent", "earliest"]),
)
def test_index_equals_naive_search(pieces, max_match, min_match, limit, occurrence):
    """After every extension, for any lengths, with gaps in the text."""
    index = SuffixIndex(max_match, occurrence)
    text: list[int] = []
    for piece in pieces:
        index.extend(piece)
        text += piece
        found = index.propose(min_match, limit)
        assert found == naive(text, max_match, min_match, limit, occurrence == "earliest")


@settings(max_examples=300, deadline=None)
@given(
    st.lists(st.lists(st.integers(-1, 3), max_size=12), max_size=6),
    st.lists(st.integers(-1, 3), min_size=1, max_size=6),
    st.integers(1, 3),
    st.integers(1, 5),
    st.integers(1, 40),
)
def test_earlier_texts_equal_naive_search(texts, tail, min_match, limit, capacity):
    """Whatever was kept and forgotten: matches and continuations never leave a text."""
    kept = EarlierTexts(capacity)
    everything: list[int] = []
    for text in texts:
        kept.append(text)
        for n, token in enumerate([*text, GAP] if text else []):
            if not (n and token == GAP == everything[-1]):
                everything.append(token)
    assert kept.tokens.tolist() == everything[-capacity:]
    wanted = naive([*everything[-capacity:], GAP, *tail], len(tail), min_match, limit, False)
    inside = naive([GAP, *tail], len(tail), min_match, limit, False)
    found = kept.propose(tail, min_match, limit)
    if inside[0] < wanted[0]:  # else the tail may have matched itself
        assert found == wanted
    assert kept.copy().propose(tail, min_match, limit) == found
    assert found[0] == 0 or found[0] >= min_match
    kept.clear()
    assert kept.propose(tail, min_match, limit) == (0, [])


@pytest.mark.parametrize("occurrence", ["recent", "earliest"])
def test_which_occurrence_supplies_the_continuation(occurrence):
    """The example of the module, both ways."""
    index = SuffixIndex(8, occurrence)
    index.extend([5, 6, 1, 5, 6, 2, 5, 6])
    assert index.propose(2, 1) == (2, [2] if occurrence == "recent" else [1])


def test_work_does_not_grow_with_the_text():
    """A token adds at most one entry a length, however long the text is."""
    index = SuffixIndex(4)
    index.extend(range(1000))
    before = [len(table) for table in index._follows]
    index.extend([2000])
    after = [len(table) for table in index._follows]
    assert all(b - a <= 1 for a, b in zip(before, after, strict=True))
