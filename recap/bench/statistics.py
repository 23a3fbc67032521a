"""From samples to figures: totals, rates, and how sure a speed-up is.

A speed-up is a ratio of total times over the same prompts, never a mean of ratios: a mean would let
one short answer weigh as much as a long one. Its interval resamples whole prompts, with all that
every method did on them, so that a prompt that is easy for one method stays paired with itself.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from recap.race import REFERENCE

#: Resamples of an interval; the seed makes a report repeatable.
RESAMPLES = 10_000
SEED = 20_250_601
CONFIDENCE = 0.95


@dataclass(frozen=True)
class Sample:
    """One run of one method on one prompt. Times are seconds of the method's own clock.

    `lengths` are the tokens that each pass behind the prefill emitted; `first_tokens` those of the
    prefill (one, unless a baseline drafts there already). `rows` and `pass_seconds` (verify and
    commit) are of the same passes. What a method does not have is None.
    """

    token_ids: list[int]
    seconds: float
    prefill_seconds: float
    lengths: list[int]
    first_tokens: int = 1
    rows: list[int] | None = None
    pass_seconds: list[float] | None = None
    matched: int | None = None
    draft_seconds: float | None = None
    peak_bytes: int | None = None
    prompt_tokens: int = 0

    def to_json(self) -> dict[str, Any]:
        """Plain JSON data."""
        return asdict(self)


@dataclass(frozen=True)
class Result:
    """What all methods did on one prompt: samples by label, one a repeat."""

    id: str
    category: str
    samples: dict[str, list[Sample]]

    def to_json(self) -> dict[str, Any]:
        """Plain JSON data."""
        return asdict(self)

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Result:
        """The inverse of `to_json`."""
        samples = {
            label: [Sample(**sample) for sample in runs] for label, runs in data["samples"].items()
        }
        return cls(data["id"], data["category"], samples)


def summarize(results: Sequence[Result], labels: Sequence[str]) -> dict[str, dict[str, Any]]:
    """Figures by label, over all of these prompts. A figure that does not apply is None.

    `tokens`, `passes` and times are totals over all prompts and repeats. `speedup_interval` is
    (low, high), None for fewer than two prompts.
    """
    reference = _times(results, REFERENCE)
    return {label: _figures(results, label, reference) for label in labels}


def by_category(
    results: Sequence[Result], labels: Sequence[str]
) -> dict[str, dict[str, dict[str, Any]]]:
    """`summarize` for the prompts of each category, in the order of their first prompts."""
    grouped: dict[str, list[Result]] = {}
    for result in results:
        grouped.setdefault(result.category, []).append(result)
    return {category: summarize(part, labels) for category, part in grouped.items()}


def _figures(results: Sequence[Result], label: str, reference: np.ndarray) -> dict[str, Any]:
    samples = [sample for result in results for sample in result.samples[label]]
    times = _times(results, label)
    seconds, decoding = (float(total) for total in times.sum(0))
    behind = sum(sum(sample.lengths) for sample in samples)
    passes = sum(len(sample.lengths) for sample in samples)
    rows = _total(sum(s.rows) for s in samples if s.rows is not None)
    matched = _total(s.matched for s in samples if s.matched is not None)
    drafting = _total(s.draft_seconds for s in samples if s.draft_seconds is not None)
    nodes = None if rows is None else rows - passes
    return {
        "prompts": len(results),
        "tokens": sum(len(sample.token_ids) for sample in samples),
        "passes": passes,
        "seconds": seconds,
        "seconds_without_prefill": decoding,
        "tokens_per_second": _ratio(behind, decoding),
        "speedup": _ratio(reference[:, 0].sum(), seconds),
        "speedup_without_prefill": _ratio(reference[:, 1].sum(), decoding),
        "speedup_interval": bootstrap_ratio(reference[:, 0], times[:, 0]),
        "mat": _ratio(behind, passes),
        "acceptance": _ratio(matched, nodes),
        "rows_per_pass": _ratio(rows, passes),
        "draft_ms_per_step": None if drafting is None else _ratio(1000 * drafting, passes),
        "identical": sum(_identical(result, label) for result in results),
    }


def median_prompt(results: Sequence[Result]) -> int:
    """Median length of the prompts, in tokens."""
    return int(np.median([result.samples[REFERENCE][0].prompt_tokens for result in results]))


def peak_bytes(results: Sequence[Result], label: str) -> int | None:
    """Most memory that a run of this method took on its device; None where it is not measured."""
    peaks = [
        sample.peak_bytes
        for result in results
        for sample in result.samples[label]
        if sample.peak_bytes is not None
    ]
    return max(peaks, default=None)


def bootstrap_ratio(
    numerators: np.ndarray,
    denominators: np.ndarray,
    *,
    resamples: int = RESAMPLES,
    confidence: float = CONFIDENCE,
    seed: int = SEED,
) -> list[float] | None:
    """[low, high]: percentile bootstrap of Σ numerators / Σ denominators, pairs drawn together.

    Both are (prompts,) floats. None for fewer than two prompts, where nothing can be resampled.
    """
    count = len(numerators)
    if count < 2:
        return None
    pairs = np.stack([numerators, denominators], 1).astype(np.float64)
    rng = np.random.default_rng(seed)
    ratios = []
    # In parts: all draws of a large benchmark at once would take gigabytes.
    for size in _parts(resamples, max(1, 4_000_000 // count)):
        totals = pairs[rng.integers(0, count, (size, count))].sum(1)
        ratios.append(totals[:, 0] / totals[:, 1])
    tail = (1 - confidence) / 2
    low, high = np.quantile(np.concatenate(ratios), [tail, 1 - tail])
    return [float(low), float(high)]


def _parts(total: int, most: int) -> list[int]:
    return [min(most, total - start) for start in range(0, total, most)]


def _times(results: Sequence[Result], label: str) -> np.ndarray:
    """(prompts, 2) seconds with and without prefill, repeats added up."""
    rows = [
        [
            sum(sample.seconds for sample in result.samples[label]),
            sum(sample.seconds - sample.prefill_seconds for sample in result.samples[label]),
        ]
        for result in results
    ]
    return np.array(rows, dtype=np.float64).reshape(-1, 2)


def _identical(result: Result, label: str) -> bool:
    """Whether every repeat gave the token ids of autoregressive decoding."""
    wanted = result.samples[REFERENCE][0].token_ids
    return all(sample.token_ids == wanted for sample in result.samples[label])


def accepted_lengths(results: Sequence[Result], label: str) -> Mapping[int, int]:
    """Passes by accepted length, ascending."""
    lengths = [
        length
        for result in results
        for sample in result.samples[label]
        for length in sample.lengths
    ]
    values, counts = np.unique(np.array(lengths, dtype=int), return_counts=True)
    return dict(zip(values.tolist(), counts.tolist(), strict=True))


def _total(values: Any) -> Any:
    """The sum; None of nothing."""
    listed = list(values)
    return sum(listed) if listed else None


def _ratio(above: Any, below: Any) -> float | None:
    """A quotient; None where a part is missing or the divisor is nothing."""
    return float(above / below) if above is not None and below else None
