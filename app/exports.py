"""What a person can take away: the trace, its steps as a table, and a replay that needs no server.

Every export says which model, device and versions it came from.
"""

from __future__ import annotations

import csv
import html
import io
import json
import re
from collections.abc import Callable

from app import assets
from app.payload import of_trace, sendable
from recap.trace import Trace

_COLUMNS = (
    "step", "position", "nodes", "matched", "accepted_length", "reason", "expected_tokens",
    "expected_s", "draft_s", "verify_s", "commit_s", "observe_s", "sources", "text",
)  # fmt: skip


def trace_json(trace: Trace) -> str:
    """The whole trace, as `Trace.load` reads it."""
    return trace.dumps()


def steps_csv(trace: Trace) -> str:
    """One line a step; the lines before the header, which begin with #, describe the run."""
    out = io.StringIO()
    for line in about(trace):
        out.write(f"# {line}\n")
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(_COLUMNS)
    for step in trace.steps:
        words = [trace.vocabulary.get(str(e.token), {}).get("text", "") for e in step.emitted]
        writer.writerow(
            [
                step.index + 1,
                step.position,
                len(step.nodes),
                step.matched,
                step.accepted_length,
                step.budget.get("reason") or "",
                step.budget["expected_tokens"],
                "" if step.budget["expected_seconds"] is None else step.budget["expected_seconds"],
                *(f"{step.seconds[k]:.6f}" for k in ("draft", "verify", "commit", "observe")),
                " ".join(e.source for e in step.emitted),
                _inert("".join(words)),
            ]
        )
    return out.getvalue()


def replay_html(trace: Trace) -> str:
    """A page of its own: the same tree and timeline, with no server and no network."""
    value = json.dumps(of_trace(trace, 0), separators=(",", ":")).replace("<", "\\u003c")
    title = html.escape(f"RECAP replay: {trace.method} on {trace.model}")
    lines = "".join(f"<p>{html.escape(line)}</p>" for line in about(trace))
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy"
 content="default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; img-src data:">
<title>{title}</title>
<style>{assets.style("recap.css", "replay.css")}</style>
</head>
<body>
<main>
<h1>RECAP replay</h1>
<p class="prompt">{html.escape(trace.prompt)}</p>
<div id="view"></div>
<div id="numbers"></div>
<div id="memory"></div>
<footer>{lines}</footer>
</main>
<script type="application/json" id="data">{value}</script>
<script>{assets.script((*assets.VIEW_SCRIPTS, "replay.js"))}</script>
</body>
</html>
"""


def about(trace: Trace) -> list[str]:
    """What was run, where, with what: one fact a line."""
    versions = ", ".join(f"{name} {version}" for name, version in trace.versions.items())
    settings = json.dumps(trace.settings, separators=(",", ":"))
    return [
        f"model {_line(trace.model)} ({trace.family}), {trace.device}, {trace.dtype}",
        f"method {trace.method}, settings {settings}",
        f"{versions}; recorded {trace.created}",
        f"prompt {json.dumps(trace.prompt)}",
    ]


def _line(text: str) -> str:
    return " ".join(text.split())


def _inert(text: str) -> str:
    """Text that a spreadsheet does not take for a formula."""
    return f"'{text}" if text[:1] in ("=", "+", "-", "@", "\t", "\r") else text


#: Kinds of export: (how it is made, ending, media type).
EXPORTS: dict[str, tuple[Callable[[Trace], str], str, str]] = {
    "trace": (trace_json, "json", "application/json"),
    "steps": (steps_csv, "csv", "text/csv"),
    "replay": (replay_html, "html", "text/html"),
}


def parcel(trace: Trace, kind: str) -> dict[str, str]:
    """A file for the browser to save: its name, media type and text."""
    make, ending, media = EXPORTS[kind]
    # A loaded trace may call itself anything; a file's name is letters, digits and dashes.
    name = re.sub(r"[^\w-]+", "-", f"recap-{trace.method}-{trace.id}", flags=re.ASCII)[:100]
    return {
        "name": f"{name}.{ending}",
        "media": media,
        "text": sendable(make(trace)),
    }
