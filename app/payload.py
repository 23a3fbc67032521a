"""What of a run goes to the browser, and in which form.

The page gets one growing value. Its lists hold JSON texts and are only appended to, so Gradio
sends no more than what is new, an update that got lost is repaired by the next, and the last one
is whole:

    {"run", "serial", "status", "note", "about", "first", "vocabulary": [...],
     "steps": [...], "details": [...], "end", "show", "caption"}

`steps` is the compact part: what the tree and the timeline draw, at most 8 KB a step. `details` is
the second channel: stored predictions, hits and weights, each prediction and each memory entry
once, and never needed to draw. `app.encoding` says how both are laid out, and `app/static/store.js`
reads them.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from app.encoding import DetailEncoder, encode_step, spelling
from recap.drafters import METHODS
from recap.trace import Step, Trace

#: Above this rate a model is too fast for the eye, so the display starts at a pace of its own.
_FAST_STEPS_PER_SECOND = 12
_PACE = 4


def dumps(value: Any) -> str:
    """JSON without spaces, sendable."""
    return sendable(json.dumps(value, separators=(",", ":"), ensure_ascii=False))


def sendable(text: str) -> str:
    """Text that UTF-8 can hold: half a surrogate pair becomes a question mark."""
    return text if text.isascii() else text.encode("utf-8", "replace").decode("utf-8")


class RunPayload:
    """The value of one run as it grows.

    >>> payload = RunPayload(serial=3)
    >>> payload.value()["status"]
    'waiting'
    """

    def __init__(self, serial: int, *, caption: str = "", show: int | None = None) -> None:
        self.serial = serial
        self.status = "waiting"
        self.note = ""
        self.caption = caption
        self.show = show
        self._run = ""
        self._about: str | None = None
        self._first: str | None = None
        self._end: str | None = None
        self._steps: list[str] = []
        self._details: list[str] = []
        self._vocabulary: list[str] = []
        self._known: set[int] = set()
        self._encoder = DetailEncoder()

    def value(self) -> dict[str, Any]:
        """The value as it is now; later changes do not reach into it."""
        return {
            "run": self._run,
            "serial": self.serial,
            "status": self.status,
            "note": self.note,
            "about": self._about,
            "first": self._first,
            "vocabulary": list(self._vocabulary),
            "steps": list(self._steps),
            "details": list(self._details),
            "end": self._end,
            "show": self.show,
            "caption": self.caption,
        }

    @property
    def steps(self) -> int:
        """Steps encoded so far."""
        return len(self._steps)

    @property
    def details(self) -> int:
        """Steps whose details are encoded so far."""
        return len(self._details)

    def open(self, trace: Trace) -> None:
        """Say what is run."""
        self._run = sendable(trace.id)
        self.status = "running"
        self._about = dumps(describe(trace))

    def begin(self, trace: Trace) -> None:
        """The prefill is done: its token."""
        token, top2 = trace.prefill["first_token"], trace.prefill["top2"]
        if token is not None:
            self._learn(trace, [token])
        self._first = dumps(
            {
                "token": token,
                "logprob": top2[0] if top2 else None,
                "seconds": trace.prefill["seconds"],
            }
        )

    def add(self, trace: Trace, steps: Iterable[Step]) -> None:
        """Append steps to the compact part."""
        shown: list[int] = []
        for step in steps:
            shown += [step.root, *step.nodes.token, *step.rows["choice"]]
            shown += [emitted.token for emitted in step.emitted]
            for key in step.nodes.key:
                shown += key
            self._steps.append(dumps(encode_step(step)))
        self._learn(trace, shown)

    def add_details(self, step: Step, trace: Trace) -> None:
        """Append one step to the second channel; steps come in order."""
        self._details.append(dumps(self._encoder.encode(step, trace)))

    def close(self, trace: Trace) -> None:
        """The run is over, in whatever way."""
        self.status, self.note = "done", ""
        self._end = dumps(
            {
                "finish": trace.finish,
                "message": trace.message,
                "memory": trace.memory,
                "tokens": len(trace.token_ids),
                "seconds": trace.seconds,
                "identical": trace.identical,
            }
        )

    def fail(self, message: str) -> None:
        """The run ended before it could begin."""
        self.status, self.note = "done", ""
        self._end = dumps({"finish": "error", "message": message})

    def _learn(self, trace: Trace, tokens: Iterable[int]) -> None:
        fresh = sorted(
            token
            for token in set(tokens) - self._known
            if token >= 0 and str(token) in trace.vocabulary
        )
        if fresh:
            self._known.update(fresh)
            self._vocabulary.append(dumps([spelling(trace, token) for token in fresh]))


def of_trace(
    trace: Trace, serial: int, *, caption: str = "", show: int | None = None
) -> dict[str, Any]:
    """The value of a trace that is complete."""
    payload = RunPayload(serial, caption=caption, show=show)
    payload.open(trace)
    payload.begin(trace)
    payload.add(trace, trace.steps)
    for step in trace.steps:
        payload.add_details(step, trace)
    payload.close(trace)
    return payload.value()


def describe(trace: Trace) -> dict[str, Any]:
    """What is known of a run before its first token."""
    method = METHODS.get(trace.method)
    speed = trace.passes / max(trace.seconds["total"], 1e-9)
    small = trace.model in ("demo", "tiny-random") or speed > _FAST_STEPS_PER_SECOND
    return {
        "method": trace.method,
        "title": method.title if method else trace.method,
        "model": trace.model,
        "family": trace.family,
        "device": trace.device,
        "dtype": trace.dtype,
        "versions": trace.versions,
        "settings": trace.settings,
        "prompt": trace.prompt,
        "image": trace.image,
        "prompt_tokens": trace.prompt_tokens,
        "image_tokens": trace.image_tokens,
        "max_new_tokens": trace.max_new_tokens,
        "created": trace.created,
        "request": trace.request,
        "start": trace.memory.get("start"),
        "pace": _PACE if small else "real",
    }
