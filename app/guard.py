"""What the server answers at all: the page's own routes, requests of a sane size, private files.

Gradio brings routes that this page has no use for: a proxy for addresses of the web, screen
recordings, a run history, links that hold a copy of a session. Here an address is answered only
where it stands in a list. An upload is let in where there is room for it on the disk, and leaves
nothing behind where it fails.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import time
from collections.abc import Awaitable, Callable, MutableMapping
from functools import partial
from typing import Any
from urllib.parse import parse_qsl

from starlette.concurrency import run_in_threadpool
from starlette.requests import ClientDisconnect

from app.faults import DISK_FULL, is_disk_full
from app.sessions import PRESENCE, end
from app.uploads import UPLOADS, nothing_left

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]

#: Largest request body that carries no file: a prompt of a million characters fits, escaped too.
MAX_BODY_BYTES = 16_000_000
#: What a form adds around an uploaded file.
_FORM_BYTES = 64_000
#: Uploads are deleted so many seconds after their last use, looked for every so many.
_UPLOAD_AGE, _UPLOAD_ROUND = 3600, 300
_NO_ROOM = (
    "There is no room for this file: runs of others still need theirs. Try again in a minute."
)

#: First parts of addresses: the page and what it is made of.
_PAGE = frozenset(
    {
        "", "config", "static", "assets", "svelte", "theme.css", "favicon.ico", "robots.txt",
        "manifest.json", "pwa_icon", "login", "logout", "openapi.json",
    }
)  # fmt: skip
#: Second parts behind `gradio_api`: events, uploads, descriptions.
_API = frozenset(
    {
        "info", "openapi.json", "user", "login_check", "token", "app_id", "startup-events",
        "theme.css", "heartbeat", "run", "api", "call", "queue", "cancel", "reset", "upload",
        "upload_progress",
    }
)  # fmt: skip
_WORDS = {404: b"Not found", 411: b"Length required", 413: b"Too large"}
_FILE = "file="
_HEARTBEAT = "/gradio_api/heartbeat/"
#: Where a client listens to the events that its session has queued.
_LISTENING = "/gradio_api/queue/data"


class _NoRoomError(Exception):
    """All files that could make room for an upload are needed."""


class Guard:
    """ASGI middleware: 404 for other addresses, 413 for too much, headers against caching.

    A body must say its length (411 where it does not), so that nobody can send one without end.
    `max_file`: bytes of an upload. `all_files`: bytes of disk that all uploads take together.
    `grace`: seconds that a session outlives its last page.
    """

    def __init__(
        self, app: Callable[..., Awaitable[None]], *, max_file: int, all_files: int, grace: float
    ) -> None:
        self._app = app
        self._max_file = max_file
        self._all_files = all_files
        self._grace = grace

    async def __call__(self, scope: MutableMapping[str, Any], receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            tidying = asyncio.create_task(_tidy_up(scope["app"]))
            try:
                await self._app(scope, receive, send)
            finally:
                tidying.cancel()
            return
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        path = scope["path"].removeprefix(scope.get("root_path") or "")
        status, sends = 200 if answered(path) else 404, scope["method"] in ("POST", "PUT", "PATCH")
        if status == 200 and sends:
            status = self._size_status(path, dict(scope["headers"]))
        if status != 200:
            await _refuse(send, status)
            return

        async def private(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = [
                    (b"x-content-type-options", b"nosniff"),
                    (b"referrer-policy", b"same-origin"),
                ]
                if path.startswith("/gradio_api/") and not _has(message, b"cache-control"):
                    headers.append((b"cache-control", b"private, no-cache"))
                message["headers"] = [*message.get("headers", ()), *headers]
            await send(message)

        if sends and _uploads(path):
            await self._upload(scope, receive, private)
            return
        session = _session_of(path, scope.get("query_string", b""))
        if not session:
            await self._app(scope, receive, private)
            return
        page = scope["app"].get_blocks()
        PRESENCE.came(session)
        try:
            await self._app(scope, receive, private)
        finally:
            PRESENCE.went(session, partial(end, page), self._grace)

    async def _upload(self, scope: MutableMapping[str, Any], receive: Receive, send: Send) -> None:
        """Let an upload in where it has room; 507 where it has none, or where the disk is full."""
        size = int(dict(scope["headers"])[b"content-length"])
        reserved = answering = complete = False

        async def arriving() -> Message:
            nonlocal reserved, complete
            # Not before it is read: others' files make no room for who has not logged in.
            if not reserved and not await run_in_threadpool(UPLOADS.reserve, size, self._all_files):
                raise _NoRoomError
            reserved = True
            message = await receive()
            complete = not message.get("more_body")
            return message

        async def turn_away(words: str) -> None:
            """507, once all has come: a browser that still sends would not hear it."""
            more = not complete
            with contextlib.suppress(Exception):  # whoever has gone hears nothing anyway
                while more:
                    more = (await receive()).get("more_body", False)
            await _refuse(send, 507, words)

        async def watched(message: Message) -> None:
            nonlocal answering
            answering = True
            await send(message)

        try:
            with nothing_left():
                await self._app(scope, arriving, watched)
        except ClientDisconnect:
            return  # nobody is there to answer
        except _NoRoomError:
            await turn_away(_NO_ROOM)
        except OSError as error:
            if answering or not is_disk_full(error):
                raise
            await turn_away(DISK_FULL)
        finally:
            if reserved:
                UPLOADS.release(size)

    def _size_status(self, path: str, headers: dict[bytes, bytes]) -> int:
        limit = self._max_file + _FORM_BYTES if _uploads(path) else MAX_BODY_BYTES
        length = headers.get(b"content-length", b"")
        if not length.isdigit():
            return 411
        return 413 if int(length) > limit else 200


def answered(path: str) -> bool:
    """Whether an address is one of the page's own."""
    first, _, rest = path.lstrip("/").partition("/")
    if first != "gradio_api":
        return first in _PAGE
    if rest.startswith(_FILE):
        return "://" not in rest  # an address of the web, which Gradio would fetch
    return rest.partition("/")[0] in _API


def _session_of(path: str, query: bytes) -> str:
    """The session whose page holds this connection open; empty for any other address."""
    if path.startswith(_HEARTBEAT):
        return path.removeprefix(_HEARTBEAT)
    if path.rstrip("/") == _LISTENING:
        return dict(parse_qsl(query.decode("latin-1"))).get("session_hash", "")
    return ""


def _uploads(path: str) -> bool:
    return path.rstrip("/").endswith("/upload")


async def _tidy_up(app: Any) -> None:
    """Delete uploads by their age for as long as the server runs.

    Gradio would do it, too, but its round ends for good where a file arrives in the midst of it.
    """
    while True:
        await asyncio.sleep(_UPLOAD_ROUND)
        await run_in_threadpool(UPLOADS.sweep, time.time() - _UPLOAD_AGE)
        for known in app.get_blocks().temp_file_sets:  # Gradio's lists, which only ever grow
            gone = await run_in_threadpool(_gone, [*known])
            known.difference_update(gone)


def _gone(paths: list[str]) -> list[str]:
    return [path for path in paths if not os.path.exists(path)]


async def _refuse(send: Send, status: int, words: str = "") -> None:
    text = words.encode() or _WORDS[status]
    # The rest of the body stays unread, so the connection cannot be used again.
    headers = [(b"content-type", b"text/plain; charset=utf-8"), (b"connection", b"close")]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": text})


def _has(message: Message, name: bytes) -> bool:
    return any(key.lower() == name for key, _ in message.get("headers", ()))
