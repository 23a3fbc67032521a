"""The figures as one page that opens without a server or a network: charts by Plotly.

Plotly is imported when a page is written, not before: the engine runs without it.
"""

from __future__ import annotations

import html
import importlib.util
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from recap.bench.report import Conditions
from recap.bench.statistics import Result, accepted_lengths
from recap.errors import RecapError
from recap.files import write_whole

_PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>{title}</title>
<style>body{{font:16px/1.5 system-ui,sans-serif;max-width:1100px;margin:24px auto;padding:0 16px}}
</style></head><body><h1>{title}</h1><p>{conditions}</p>
{charts}
</body></html>
"""


def require_plotly() -> None:
    """Raise `RecapError` where a page could not be written, before anything is measured."""
    if importlib.util.find_spec("plotly") is None:
        raise RecapError("--plot needs the package plotly: pip install plotly")


def write_page(
    path: str,
    report: dict[str, Any],
    results: Sequence[Result],
    conditions: Conditions,
    cost: Mapping[int, float] | None = None,
) -> None:
    """Write the page. `cost` is the measured seconds of a pass by rows, where there is one."""
    require_plotly()
    from plotly import io

    charts = [
        _speedups(report),
        _lengths(report, results),
        _cost(report, results, cost),
    ]
    parts = [
        # The script goes into the page once, so that the page needs nothing else.
        io.to_html(chart, full_html=False, include_plotlyjs=not place)
        for place, chart in enumerate(charts)
    ]
    page = _PAGE.format(
        title=html.escape(f"Benchmark of {report['model']}"),
        conditions="<br>".join(map(html.escape, conditions.lines(report["prompts"]))),
        charts="\n".join(parts),
    )
    write_whole(path, page)


def _speedups(report: dict[str, Any]) -> Any:
    """Speed-up by method and category, with the interval over all prompts."""
    from plotly.graph_objects import Bar

    groups = {f"all {report['prompts']}": report["methods"], **report["categories"]}
    bars = []
    for label in report["methods"]:
        values = [figures[label]["speedup"] for figures in groups.values()]
        intervals = [figures[label]["speedup_interval"] for figures in groups.values()]
        pairs = list(zip(values, intervals, strict=True))
        above = [i[1] - v if i and v else 0.0 for v, i in pairs]
        below = [v - i[0] if i and v else 0.0 for v, i in pairs]
        error = {"type": "data", "array": above, "arrayminus": below, "thickness": 1}
        bars.append(Bar(name=label, x=list(groups), y=values, error_y=error))
    figure = _figure(bars, "Speed-up by category, 95 % interval", "category", "speed-up")
    figure.add_hline(1.0, line_dash="dot")
    return figure


def _lengths(report: dict[str, Any], results: Sequence[Result]) -> Any:
    """Which share of a method's passes emitted how many tokens."""
    from plotly.graph_objects import Bar

    bars = []
    for label in report["methods"]:
        counts = accepted_lengths(results, label)
        total = sum(counts.values()) or 1
        shares = [count / total for count in counts.values()]
        bars.append(Bar(name=label, x=list(counts), y=shares))
    return _figure(bars, "Accepted length", "tokens emitted by a pass", "share of passes")


def _cost(
    report: dict[str, Any], results: Sequence[Result], cost: Mapping[int, float] | None
) -> Any:
    """What a pass of N rows cost: as measured on its own, and as it was in these runs."""
    from plotly.graph_objects import Scatter

    marks = []
    if cost:
        milliseconds = [1000 * seconds for seconds in cost.values()]
        marks.append(Scatter(name="cost(N)", x=list(cost), y=milliseconds, mode="lines"))
    for label in report["methods"]:
        seen = pass_costs(results, label)
        if seen:
            milliseconds = [1000 * seconds for seconds in seen.values()]
            marks.append(Scatter(name=label, x=list(seen), y=milliseconds, mode="markers"))
    return _figure(marks, "cost(N): median time of a pass of N rows", "rows", "ms")


def pass_costs(results: Sequence[Result], label: str) -> dict[int, float]:
    """Median seconds (verify and commit) of a method's passes by rows, ascending."""
    seconds: dict[int, list[float]] = {}
    for result in results:
        for sample in result.samples[label]:
            for rows, spent in zip(sample.rows or (), sample.pass_seconds or (), strict=True):
                seconds.setdefault(rows, []).append(spent)
    return {rows: float(np.median(seconds[rows])) for rows in sorted(seconds)}


def _figure(traces: list[Any], title: str, x: str, y: str) -> Any:
    from plotly.graph_objects import Figure

    figure = Figure(traces)
    figure.update_layout(title=title, xaxis_title=x, yaxis_title=y, template="plotly_white")
    return figure
