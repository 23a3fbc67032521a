"""Figures against plain references."""

from __future__ import annotations

import random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from recap.bench.statistics import (
    Result,
    Sample,
    accepted_lengths,
    bootstrap_ratio,
    by_category,
    median_prompt,
    peak_bytes,
    summarize,
)


def sample(seconds, prefill, lengths, ids=None, **more):
    """A sample whose ids follow from its lengths unless they are given."""
    ids = list(range(1 + sum(lengths))) if ids is None else ids
    return Sample(ids, seconds, prefill, lengths, **more)


def autoregressive(seconds, prefill, passes):
    return sample(
        seconds, prefill, [1] * passes, rows=[1] * passes, matched=0, draft_seconds=0.0,
        pass_seconds=[0.1] * passes,
    )  # fmt: skip


def drafted(seconds, prefill, lengths, rows, **more):
    return sample(
        seconds, prefill, lengths, rows=rows, matched=sum(lengths) - len(lengths),
        draft_seconds=0.002 * len(lengths), pass_seconds=[0.1] * len(lengths), **more,
    )  # fmt: skip


RESULTS = [
    Result(
        "a", "x",
        {
            "autoregressive": [autoregressive(5.0, 1.0, 8)],
            "fast": [drafted(3.0, 1.0, [4, 4], [10, 6], peak_bytes=7)],
            "generate": [sample(6.0, 2.0, [1] * 8)],
        },
    ),
    Result(
        "b", "y",
        {
            "autoregressive": [autoregressive(3.0, 1.0, 4)],
            "fast": [drafted(2.0, 1.0, [3, 1], [8, 1], ids=[9, 9, 9, 9, 9], peak_bytes=9)],
            "generate": [sample(4.0, 1.0, [1] * 4)],
        },
    ),
]  # fmt: skip
LABELS = ["autoregressive", "fast", "generate"]


def test_figures_by_hand():
    """Every figure of a small case, worked out on paper."""
    fast = summarize(RESULTS, LABELS)["fast"]
    assert fast.pop("speedup_interval") is not None
    assert fast == {
        "prompts": 2,
        "tokens": 14,
        "passes": 4,
        "seconds": 5.0,
        "seconds_without_prefill": 3.0,
        "tokens_per_second": pytest.approx(12 / 3),
        "speedup": pytest.approx(8 / 5),
        "speedup_without_prefill": pytest.approx(6 / 3),
        "mat": pytest.approx(12 / 4),
        "acceptance": pytest.approx(8 / 21),
        "rows_per_pass": pytest.approx(25 / 4),
        "draft_ms_per_step": pytest.approx(2.0),
        "identical": 1,
    }


def test_the_median_prompt():
    """Of the prompts, however often each was asked."""
    results = [
        Result(str(n), "x", {"autoregressive": [sample(1.0, 0.5, [1], prompt_tokens=n)] * n})
        for n in (3, 50, 7)
    ]
    assert median_prompt(results) == 7


def test_what_does_not_apply_is_null():
    """generate says nothing of rows or drafts, and autoregressive has no node to accept."""
    figures = summarize(RESULTS, LABELS)
    generate, plain = figures["generate"], figures["autoregressive"]
    assert generate["rows_per_pass"] is generate["acceptance"] is None
    assert generate["draft_ms_per_step"] is None
    assert plain["acceptance"] is None
    assert (plain["speedup"], plain["mat"], plain["rows_per_pass"]) == (1.0, 1.0, 1.0)
    assert generate["identical"] == plain["identical"] == 2


def test_an_answer_of_one_token_has_no_rate():
    """No pass, no division by nothing."""
    only = [Result("a", "x", {"autoregressive": [autoregressive(1.0, 1.0, 0)]})]
    figures = summarize(only, ["autoregressive"])["autoregressive"]
    assert figures["mat"] is figures["tokens_per_second"] is None
    assert figures["speedup_without_prefill"] is None
    assert figures["speedup_interval"] is None


def test_categories_are_summed_on_their_own():
    """Each with the figures of its prompts alone."""
    grouped = by_category(RESULTS, LABELS)
    assert list(grouped) == ["x", "y"]
    assert grouped["x"] == summarize(RESULTS[:1], LABELS)
    assert grouped["y"]["fast"]["speedup"] == pytest.approx(1.5)
    assert grouped["y"]["fast"]["speedup_interval"] is None  # one prompt


def test_repeats_are_added_up_and_must_all_be_identical():
    """A method that answers differently once is not identical on that prompt."""
    runs = {
        "autoregressive": [autoregressive(5.0, 1.0, 2), autoregressive(3.0, 1.0, 2)],
        "fast": [drafted(2.0, 1.0, [2], [4]), drafted(2.0, 1.0, [2], [4], ids=[0, 1, 7])],
    }
    figures = summarize([Result("a", "x", runs)], ["autoregressive", "fast"])
    assert figures["autoregressive"]["identical"] == 1
    assert figures["fast"]["identical"] == 0
    assert figures["fast"]["tokens"] == 6
    assert figures["fast"]["speedup"] == pytest.approx(8 / 4)
    assert figures["fast"]["prompts"] == 1


def test_lengths_and_memory():
    """The histogram's counts, and the largest peak."""
    assert accepted_lengths(RESULTS, "fast") == {1: 1, 3: 1, 4: 2}
    assert peak_bytes(RESULTS, "fast") == 9
    assert peak_bytes(RESULTS, "generate") is None


def test_samples_survive_json():
    """A journal gives back what it was given."""
    for result in RESULTS:
        assert Result.from_json(result.to_json()) == result


def test_the_interval_agrees_with_a_plain_bootstrap():
    """Against one written without NumPy, with another seed: both know the same distribution."""
    rng = random.Random(3)
    above = [rng.uniform(1, 9) for _ in range(30)]
    below = [a / rng.uniform(1.2, 2.2) for a in above]
    draws = []
    for _ in range(4000):
        picked = rng.choices(range(30), k=30)
        draws.append(sum(above[i] for i in picked) / sum(below[i] for i in picked))
    draws.sort()
    low, high = bootstrap_ratio(np.array(above), np.array(below))
    assert low == pytest.approx(draws[100], abs=0.015)
    assert high == pytest.approx(draws[-101], abs=0.015)
    assert low < sum(above) / sum(below) < high


def test_the_interval_is_seeded():
    """The same data give the same interval."""
    above, below = np.random.default_rng(0).uniform(1, 2, (2, 20))
    once = bootstrap_ratio(above, below)
    assert bootstrap_ratio(above, below) == once
    assert bootstrap_ratio(above, below, seed=1) != once


_TIMES = st.lists(st.tuples(st.floats(0.01, 100), st.floats(0.01, 100)), min_size=2, max_size=12)


@given(_TIMES, st.floats(0.1, 10))
def test_properties_of_the_interval(pairs, factor):
    """Within the extreme ratios; equal times give exactly one; scaling a side scales it."""
    above, below = (np.array(side) for side in zip(*pairs, strict=True))
    low, high = bootstrap_ratio(above, below, resamples=200)
    ratios = above / below
    assert ratios.min() * (1 - 1e-9) <= low <= high <= ratios.max() * (1 + 1e-9)
    assert bootstrap_ratio(above, above, resamples=50) == pytest.approx([1.0, 1.0])
    scaled = bootstrap_ratio(above * factor, below, resamples=200)
    assert scaled == pytest.approx([low * factor, high * factor])
