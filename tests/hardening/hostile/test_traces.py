"""Traces that are none, and traces with hostile words in them."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.hardening.hostile.inputs import SCRIPT
from tests.server import ROOT
from tests.visitor import Visitor


def _trace() -> dict[str, Any]:
    path = ROOT / "assets" / "traces" / "first-trace.json"
    return json.loads(path.read_text("utf-8"))


BAD_TRACES = {
    "nothing": b"", "no-json": b"\x89PNG", "deep": b"[" * 200_000, "deep-object": b'{"a":' * 99_999,
    "number": b"9" * 9000, "infinite": b'{"version": 1e999}', "nan": b'{"version": NaN}',
    "other-version": json.dumps({**_trace(), "version": 99}).encode(),
    "no-steps": json.dumps({**_trace(), "steps": None}).encode(),
    "utf-16": json.dumps(_trace()).encode("utf-16"),
    "duplicate": b'{"version": 1, "version": 2}',
    "a-million-steps": json.dumps({**_trace(), "steps": [{}] * 1_000_000}).encode(),
    "cut": json.dumps(_trace()).encode()[:5000],
    "other-words": json.dumps({**_trace(), "vocabulary": {"1": {"text": 1, "bytes": 2}}}).encode(),
}  # fmt: skip


@pytest.mark.parametrize("name", BAD_TRACES)
def test_a_trace_that_is_none_is_refused_in_words(visit: Callable[[], Visitor], name: str) -> None:
    """And what was shown stays."""
    visitor = visit()
    file = visitor.upload(BAD_TRACES[name], "trace.json")
    view, notice = visitor.call("load_trace", None, file)
    assert not (isinstance(view, dict) and "steps" in view)
    assert "trace" in notice["text"]
    assert len(notice["text"]) < 400
    assert str(Path(file["path"]).parent) not in notice["text"]


def test_a_trace_with_scripts_stays_text(visit: Callable[[], Visitor]) -> None:
    """In what the page gets, in the replay, in the table, and in the file's name."""
    trace = _trace()
    trace.update(prompt=SCRIPT, text=SCRIPT, model=SCRIPT, id=f"../../{SCRIPT}", method=SCRIPT)
    for word in list(trace["vocabulary"].values())[:5]:
        word["text"] = SCRIPT
    visitor = visit()
    view, _ = visitor.call("load_trace", None, visitor.upload(json.dumps(trace).encode(), "t.json"))
    assert json.loads(view["about"])["prompt"] == SCRIPT
    assert "<script>alert" not in visitor.export("replay")
    assert visitor.export("steps")
    parcel = visitor.call("export", None)[0]
    assert not set("/\\<>.") & set(parcel["name"].removesuffix(".json"))


def test_a_trace_with_half_surrogate_pairs_can_be_shown(visit: Callable[[], Visitor]) -> None:
    """JSON can spell them, UTF-8 cannot."""
    trace = _trace()
    trace.update(prompt="a\ud800b", id="\ud800")
    next(iter(trace["vocabulary"].values()))["text"] = "\udfff"
    visitor = visit()
    view, _ = visitor.call("load_trace", None, visitor.upload(json.dumps(trace).encode(), "t.json"))
    assert json.loads(view["about"])["prompt"] == "a?b"
    for kind in ("trace", "steps", "replay"):
        assert visitor.export(kind)
