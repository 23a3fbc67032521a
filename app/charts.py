"""Plotly charts of what is finished."""

from __future__ import annotations

from typing import Any

import plotly.graph_objects as go

from recap.drafters import METHODS

#: Lanes differ by dash and width: colour is kept for the source of a token. The grey is one whose
#: lines show on paper and on the dark page alike; the page gives words an ink of their own.
_STYLES = ((3, "solid"), (2, "dash"), (2, "dot"), (1.5, "dashdot"), (1.5, "solid"))
_INK = "#7b828c"


def tokens_over_time(curves: dict[str, list[tuple[float, int]]]) -> Any:
    """Tokens over compute time, a line a lane."""
    figure = go.Figure()
    order = list(METHODS)
    for name, points in curves.items():
        if not points:
            continue
        width, dash = _STYLES[order.index(name) % len(_STYLES)]
        seconds, tokens = zip(*points, strict=True)
        figure.add_scatter(
            x=seconds,
            y=tokens,
            name=METHODS[name].title,
            mode="lines",
            line={"color": _INK, "dash": dash, "width": width, "shape": "hv"},
            hovertemplate="%{y} tokens after %{x:.3f} s<extra>" + METHODS[name].title + "</extra>",
        )
    figure.update_layout(
        height=320,
        margin={"l": 56, "r": 16, "t": 16, "b": 48},
        xaxis_title="compute time (s), prefill included",
        yaxis_title="tokens",
        legend={"orientation": "h", "y": 1.12, "x": 0},
        plot_bgcolor="rgba(0,0,0,0)",
        paper_bgcolor="rgba(0,0,0,0)",
        font={"color": _INK, "family": "system-ui, sans-serif", "size": 12},
        hovermode="x",
        modebar={"remove": ["zoom", "pan", "zoomIn", "zoomOut", "autoScale", "resetScale"]},
    )
    for axis in (figure.update_xaxes, figure.update_yaxes):
        axis(gridcolor="rgba(123,130,140,.25)", zeroline=False, rangemode="tozero")
    return figure
