"""The figures as one JSON object, and as tables that fit a terminal."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from recap.bench.statistics import Result, by_category, peak_bytes, summarize


@dataclass(frozen=True)
class Conditions:
    """What a table's figures were measured on."""

    model: str
    device: str
    dtype: str
    versions: dict[str, str]
    prompts: str
    max_new_tokens: int
    repeats: int
    warm: bool
    processes: int = 1

    def lines(self, count: int) -> list[str]:
        """In words, for `count` prompts."""
        memory = (
            "warm: each method's persistent memory is kept from prompt to prompt"
            if self.warm
            else "cold: persistent memory cleared for each prompt"
        )
        return [
            f"{self.model} on {self.device}, {self.dtype}; {count} prompts of {self.prompts}, "
            f"{self.max_new_tokens} new tokens at most"
            + (f", {self.repeats} repeats" if self.repeats > 1 else "")
            + (f", {self.processes} processes" if self.processes > 1 else ""),
            memory,
            "greedy; the model's penalties and sampling defaults are neutralised for every method",
        ]


def build_report(
    results: Sequence[Result], labels: Sequence[str], conditions: Conditions
) -> dict[str, Any]:
    """The JSON object of a benchmark: the conditions and the figures, in all and by category."""
    return {
        "model": conditions.model,
        "device": conditions.device,
        "dtype": conditions.dtype,
        "versions": conditions.versions,
        "prompts": len(results),
        "conditions": {
            "prompts": conditions.prompts,
            "max_new_tokens": conditions.max_new_tokens,
            "repeats": conditions.repeats,
            "warm": conditions.warm,
            "processes": conditions.processes,
        },
        "methods": summarize(results, labels),
        "categories": by_category(results, labels),
    }


#: Heading and figure of each column; the figure's text comes from `_cell`.
_COLUMNS: tuple[tuple[str, str], ...] = (
    ("tokens/s", "tokens_per_second"),
    ("speed-up", "speedup"),
    ("95 % interval", "speedup_interval"),
    ("w/o prefill", "speedup_without_prefill"),
    ("MAT", "mat"),
    ("acceptance", "acceptance"),
    ("rows/pass", "rows_per_pass"),
    ("draft ms", "draft_ms_per_step"),
    ("identical", "identical"),
)
_PEAK = "peak memory"
_DIGITS = {"tokens_per_second": 1, "rows_per_pass": 1, "acceptance": 3}


def render(report: dict[str, Any], results: Sequence[Result], conditions: Conditions) -> str:
    """The conditions, the table of all prompts, and where there are several, each category's."""
    labels = list(report["methods"])
    peaks = {label: peak_bytes(results, label) for label in labels}
    lines = [*conditions.lines(report["prompts"]), "", *_table(report["methods"], peaks)]
    if len(report["categories"]) > 1:
        for category, figures in report["categories"].items():
            count = next(iter(figures.values()))["prompts"]
            title = f"{category}, {count} prompt" + ("s" if count > 1 else "")
            lines += ["", title, *_table(figures, None)]
    return "\n".join(lines) + "\n"


def _table(
    figures: Mapping[str, dict[str, Any]], peaks: Mapping[str, int | None] | None
) -> list[str]:
    heads = ["method", *(head for head, _ in _COLUMNS), *([_PEAK] if peaks is not None else [])]
    rows = [
        [label, *(_cell(name, row) for _, name in _COLUMNS)]
        + ([_bytes(peaks[label])] if peaks is not None else [])
        for label, row in figures.items()
    ]
    widths = [max(map(len, column)) for column in zip(heads, *rows, strict=True)]
    return [
        "  ".join(
            cell.ljust(width) if not place else cell.rjust(width)
            for place, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in [heads, *rows]
    ]


def _cell(name: str, figures: Mapping[str, Any]) -> str:
    value = figures[name]
    if value is None:
        return "-"
    if name == "identical":
        return f"{value}/{figures['prompts']}"
    if name == "speedup_interval":
        return f"{value[0]:.2f}–{value[1]:.2f}"
    return f"{value:.{_DIGITS.get(name, 2)}f}" + ("x" if name.startswith("speedup") else "")


def _bytes(value: int | None) -> str:
    return "-" if value is None else f"{value / 1e9:.2f} GB"
