"""What the page's events do. Each function takes the session's state and plain values."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import gradio as gr

from app import assets, links
from app.charts import tokens_over_time
from app.exports import parcel
from app.jobs import Asked, spell
from app.line import Turnstile
from app.models import ModelShelf
from app.payload import of_trace
from app.racing import stream_race
from app.sessions import VISITS
from app.settings_form import SettingsForm
from app.state import SHOWN, SessionState
from app.streaming import stream
from app.uploads import UPLOADS, refresh
from recap.drafters import METHODS, get_method
from recap.errors import ImageError, PromptError, RecapError, SettingsError
from recap.trace import Trace

if TYPE_CHECKING:
    from recap.memory import PersistentMemory

#: Of an upload that went by its age, or because others needed the room.
GONE = (
    "The picture is no longer here: what is not used for long goes, and sooner where many pictures "
    "arrive. Choose it again."
)
_LOST = (
    "What this page shows is no longer on the server: the session was away for too long, or had to "
    "make room for others. Run it again."
)
#: Pictures that are decoded at a time only to see whether they can be.
_LOOKS = threading.BoundedSemaphore(2)
_NOTHING: dict[str, Any] = {"text": ""}
_TEACHING = (
    "The bundled model is for teaching: it knows drawn shapes, bar charts and cards like the "
    "examples. For photographs choose a larger model under Settings."
)


@dataclass(frozen=True)
class Form:
    """The form as it stood when Run or Race was pressed; `rest` is what Race adds to it."""

    asked: Asked
    model: str
    rest: Sequence[Any]


class Events:
    """The page's events around one shared model."""

    def __init__(self, form: SettingsForm, shelf: ModelShelf, turnstile: Turnstile) -> None:
        self._form = form
        self._shelf = shelf
        self._turnstile = turnstile

    # Gradio puts the request in by its annotation, behind the state and before the form's values.

    # An output costs the server more than a pass of a small model where it is a component's update:
    # Gradio then makes the component anew. So what grows is the only output while a run or a race
    # goes on, and `settled` and `race_settled` do the rest behind it.

    def run(
        self, state: SessionState, request: gr.Request, *values: Any
    ) -> Iterator[dict[str, Any]]:
        """Run what the form says; yields the view. Why it cannot begin, `settled` says."""
        picture, *_ = values
        state.refused.pop("run", None)
        try:
            with _visit(state, request), UPLOADS.needed(picture):
                form = self._read(values)
                yield from stream(
                    state,
                    form.asked,
                    form.model,
                    self._shelf,
                    self._turnstile,
                    remember=form.asked.settings.persist,
                    show=state.take_pending_step(),
                )
        except RecapError as error:
            state.refused["run"] = str(error)
            yield gr.skip()

    def settled(self, state: SessionState) -> tuple[Any, Any]:
        """Behind a run: (notice, memory size)."""
        return _refusal(state, "run"), _size(state)

    def race(
        self, state: SessionState, request: gr.Request, *values: Any
    ) -> Iterator[dict[str, Any]]:
        """Race; yields the lanes. Behind the form: methods, cold."""
        picture, *_ = values
        state.refused.pop("race", None)
        try:
            with _visit(state, request), UPLOADS.needed(picture):
                yield from self._race(state, self._read(values))
        except RecapError as error:
            state.refused["race"] = str(error)
            yield gr.skip()

    def _race(self, state: SessionState, form: Form) -> Iterator[dict[str, Any]]:
        methods, cold = form.rest
        if len(methods or ()) < 2:
            raise SettingsError("methods", "a race needs at least two")
        chosen = [name for name in METHODS if name in methods]
        for race in stream_race(
            state, form.asked, chosen, form.model, self._shelf, self._turnstile, cold=bool(cold)
        ):
            yield race.value()
        state.curves = race.curves if race.comparison else None

    def race_settled(self, state: SessionState) -> tuple[Any, Any]:
        """Behind a race: (notice, chart)."""
        curves, state.curves = state.curves, None
        chart = gr.Plot(tokens_over_time(curves), visible=True) if curves else gr.skip()
        return _refusal(state, "race"), chart

    def _read(self, values: Sequence[Any]) -> Form:
        """The values of `layout.Ask.inputs`, and what follows them. Raises `RecapError`."""
        picture, prompt, method, limit, model, *rest = values
        settings, rest = rest[: len(self._form.names)], rest[len(self._form.names) :]
        asked = self.asked(picture, prompt, method, limit, settings)
        return Form(asked, model, rest)

    def asked(
        self,
        picture: str | None,
        prompt: str | None,
        method: str,
        limit: float,
        settings: Sequence[Any],
    ) -> Asked:
        """The form as a request. Raises `RecapError` with what to do."""
        if not (prompt or "").strip():
            raise PromptError("Type a prompt first: what do you want to know?")
        get_method(method)
        most = self._shelf.host.max_new_tokens
        if not 1 <= limit <= most:
            raise SettingsError("Max new tokens", f"must be between 1 and {most}")
        return Asked(
            prompt.strip(), checked_picture(picture), method, self._form.read(settings), int(limit)
        )

    def stop(self, state: SessionState) -> None:
        """End the session's run after the pass that is going on."""
        state.stop()

    def export(self, kind: str) -> Callable[[SessionState, gr.Request], Any]:
        """An event that gives the shown run as a file of this kind."""

        def export(state: SessionState, request: gr.Request) -> Any:
            left = state.serial == 0 and request.session_hash in VISITS
            if state.trace is None and (left or state.gone):
                raise gr.Error(_LOST, print_exception=False)
            return parcel(self._shown(state), kind)

        return export

    def _shown(self, state: SessionState) -> Trace:
        trace = state.trace or (first.trace if (first := assets.first_view()) else None)
        if trace is None:
            raise gr.Error(
                "There is nothing to take away yet: run something first.", print_exception=False
            )
        return trace

    def load_trace(
        self, state: SessionState, path: str | None, request: gr.Request | None = None
    ) -> tuple[Any, Any]:
        """(view, notice) of a trace file; no model is needed."""
        if not path:
            return gr.skip(), gr.skip()
        session = request and request.session_hash
        UPLOADS.use(session, path)
        try:
            with UPLOADS.needed(path):
                trace = Trace.load(path)
                size = os.stat(path).st_size
            value = of_trace(trace, state.next_serial(), show=0)
        except RecapError as error:
            return gr.skip(), {"text": str(error)}
        except OSError:  # the session is over
            return gr.skip(), {"text": _LOST}
        except (TypeError, ValueError, LookupError, AttributeError, ArithmeticError):
            # The shape is a trace's, but somewhere in it stands something else.
            return gr.skip(), {"text": "This trace is malformed: it holds values of other kinds."}
        state.stop()
        state.trace, state.shown = trace, value["serial"]
        SHOWN.keep(state, size, self._shelf.host.traces_mb * 1_000_000)
        VISITS.note(session)
        return value, _NOTHING

    def link(
        self,
        picture: str | None,
        prompt: str | None,
        method: str,
        limit: float,
        model: str,
        *settings: Any,
    ) -> dict[str, Any]:
        """The form as a link's query."""
        try:
            changed = links.changes(self._form.read(settings), method)
        except RecapError as error:
            raise gr.Error(str(error), print_exception=False) from None
        example = links.example_of(picture)
        other = model if model != self._shelf.default else None
        link = links.Link(prompt or "", method, example, int(limit), other, None, changed)
        note = "The picture is not part of the link:" if picture and example is None else ""
        return {"query": links.write(link), "note": note}

    def open_link(self, state: SessionState, request: gr.Request) -> Any:
        """A notice about the link in the page's address; `form` has the values of `Ask.inputs`.

        The browser puts them into the form, and only where nothing was changed meanwhile.
        """
        link = links.read(dict(request.query_params), self._shelf.host.max_new_tokens)
        if link is None:
            return gr.skip()
        state.pending_step = link.step
        text = "Opened from a link. Press Run to decode it" + (
            f" and go to step {link.step + 1}." if link.step is not None else "."
        )
        form = [
            links.picture_of(link), link.prompt, link.method, link.limit,
            link.model or self._shelf.default, *self._form.show(link.settings),
        ]  # fmt: skip
        return {"text": text, "info": True, "form": form}

    def look_up(self, state: SessionState, asked: gr.EventData) -> Any:
        """What the session's memory holds behind {"tokens": [ids]}, by their last one to three.

        Only where no run is changing it; a run's own entries are in its steps.
        """
        trace, target = state.trace, self._shelf.current
        running = state.worker is not None and state.worker.alive
        if trace is None or running or target is None or target.name != trace.model:
            return gr.skip()
        memory = state.memories(trace.model).get(trace.method)
        if memory is None:
            return gr.skip()
        return {"found": list(found_in(memory, target, (asked._data or {}).get("tokens") or []))}

    def look(
        self, picture: str | None, model: str, request: gr.Request | None = None
    ) -> dict[str, Any]:
        """Say at once where a picture cannot be used, or is nothing for the bundled model."""
        UPLOADS.use(request and request.session_hash, picture)
        try:
            checked_picture(picture)
        except RecapError as error:
            return {"text": str(error)}
        if picture and model == "demo" and links.example_of(picture) is None:
            return {"text": _TEACHING, "info": True}
        return _NOTHING

    def clear(self, state: SessionState) -> dict[str, Any]:
        """Forget what the session's runs have learnt."""
        state.clear()
        return _size(state)


@contextmanager
def _visit(state: SessionState, request: gr.Request) -> Iterator[None]:
    """Who asks is noted; and whether what they had here is gone."""
    state.visitor = visitor_of(request)
    state.lost = state.lost or (state.serial == 0 and request.session_hash in VISITS)
    try:
        yield
    finally:
        if state.serial:
            VISITS.note(request.session_hash)


def visitor_of(request: gr.Request | None) -> str | None:
    """Who asks, as far as the line needs it: the name logged in with, else the address."""
    if request is None:
        return None
    return request.username or getattr(request.client, "host", None)


def checked_picture(path: str | None) -> Path | None:
    """The uploaded picture, found to be one that decodes, or None. Raises `ImageError`.

    Its pixels are let go again: those who wait in the line would hold hundreds of MB each.
    """
    from recap.targets.images import load_image

    if not path:
        return None
    if not os.path.isfile(path):  # unlike pathlib's it takes any name
        raise ImageError(GONE)
    refresh(path)
    with _LOOKS:
        load_image(path)
    return Path(path)


def found_in(
    memory: PersistentMemory, target: Any, tokens: Sequence[Any]
) -> Iterator[dict[str, Any]]:
    """The entries of a memory under the last one, two and three tokens, with their words."""
    if not all(isinstance(token, int) for token in tokens):
        return
    for hit in memory.lookup(tokens):
        entry = hit.prediction
        words = {i: w for token in entry.ids for i, w in spell(target, token).items()}
        yield {
            "key": list(tokens)[-hit.order :],
            "ids": list(entry.ids),
            "probs": [round(p, 4) for p in entry.probs],
            "words": [[int(i), w["text"]] for i, w in words.items()],
            "request": entry.request,
            "step": entry.step,
        }


def _refusal(state: SessionState, kind: str) -> dict[str, Any]:
    return {"text": state.refused.get(kind, "")}


def _size(state: SessionState) -> dict[str, Any]:
    entries, size = state.size()
    text = f"The memory holds {entries:,} entries, about {size / 1e6:.1f} MB."
    if not entries:
        text = "The memory is empty."
    if state.dropped:
        text += f" It was full: the oldest {state.dropped:,} entries were dropped."
    if state.lost:
        text += " It began anew: the session was away for too long, or had to make room for others."
    return {"text": text, "info": True}
