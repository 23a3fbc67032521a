"""The endpoint for programs: `decode` streams the text and ends with the trace.

from gradio_client import Client, handle_file

client = Client("http://127.0.0.1:7860")
job = client.submit(handle_file("picture.png"), "Describe the picture.", api_name="/decode")
for update in job:
    print(update["text"])
trace = job.outputs()[-1]["trace"]
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import gradio as gr

from app.events import checked_picture, visitor_of
from app.jobs import Asked
from app.line import Turnstile
from app.models import ModelShelf
from app.sessions import PRESENCE, end
from app.state import SessionState
from app.streaming import stream
from app.uploads import UPLOADS, uploaded
from recap.drafters import get_method
from recap.errors import ImageError, PromptError, RecapError, SettingsError
from recap.settings import Settings


def endpoint(
    shelf: ModelShelf, turnstile: Turnstile, page: gr.Blocks | None = None
) -> Callable[..., Iterator[dict]]:
    """The function behind `/decode` around one shared model, on a page that keeps its sessions."""

    def decode(
        image: dict | None,
        prompt: str,
        method: str = "recap",
        max_new_tokens: int = 160,
        settings: dict | None = None,
        request: gr.Request | None = None,
    ) -> Iterator[dict]:
        """Decode one prompt, with a picture or without.

        image: an uploaded file (`gradio_client.handle_file`), or None. prompt: what to ask.
        method: recap, recap-plus, token-recycling, prompt-lookup or autoregressive.
        max_new_tokens: 1 to 1024, or what the host allows. settings: changes to the method's
        settings, by name.

        Yields {"text", "finish": null, "note"} as the text grows, where the note says what a call
        waits for: its place in the line, or a model that is being loaded. The last update has
        "finish" and "trace", the run as `recap.trace.Trace` reads it. Every call starts with an
        empty memory.
        """
        session = request.session_hash if request is not None else None
        path = image.get("path") if isinstance(image, dict) else None
        # Who has no connection open may send one upload with several calls: it goes by its age.
        if session in PRESENCE:
            UPLOADS.use(session, path)
        try:
            with UPLOADS.needed(path):
                asked = _asked(image, prompt, method, max_new_tokens, settings)
                yield from updates(asked, visitor_of(request))
        except RecapError as error:
            raise gr.Error(str(error), print_exception=False) from None
        finally:  # behind the last update, since each one makes Gradio look the session up
            if page is not None and session and session not in PRESENCE:
                end(page, session)

    def updates(asked: Asked, visitor: str | None) -> Iterator[dict]:
        state = SessionState()
        state.visitor = visitor
        last: dict[str, Any] = {}
        most = shelf.host.max_new_tokens
        if not 1 <= asked.max_new_tokens <= most:
            raise SettingsError("max_new_tokens", f"must be between 1 and {most}")
        for last in stream(state, asked, shelf.default, shelf, turnstile, remember=False):
            if last["end"] is None:
                text = state.trace.text if state.trace is not None else ""
                yield {"text": text, "finish": None, "note": last["note"]}
        trace = state.trace
        if trace is None or trace.finish == "error":
            raise gr.Error(_message(last, trace), print_exception=False)
        yield {"text": trace.text, "finish": trace.finish, "trace": trace.to_json()}

    return decode


def _asked(
    image: dict | None,
    prompt: str,
    method: str,
    max_new_tokens: int,
    settings: dict[str, Any] | None,
) -> Asked:
    if not isinstance(prompt, str) or not prompt.strip():
        raise PromptError("The prompt is empty.")
    if not isinstance(settings, dict | None):
        raise SettingsError("settings", "must be an object: names and values")
    if isinstance(max_new_tokens, bool) or not isinstance(max_new_tokens, int):
        raise SettingsError("max_new_tokens", "must be a whole number")
    own = get_method(method).settings().to_json()
    chosen = Settings.from_json({**own, **(settings or {})})
    return Asked(prompt, _picture(image), method, chosen, max_new_tokens)


def _picture(image: dict | None) -> Any:
    """The uploaded picture. A path that this server did not receive as an upload is refused."""
    if not image:
        return None
    path = image.get("path") if isinstance(image, dict) else None
    if uploaded(path) is None:
        raise ImageError("The picture must be uploaded: use gradio_client.handle_file.")
    return checked_picture(path)


def _message(value: dict[str, Any], trace: Any) -> str:
    if trace is not None and trace.message:
        return trace.message
    return json.loads(value["end"] or "{}").get("message") or "The run failed."
