"""When a session is over, and what goes with it: its state and its uploaded files.

A page holds a connection open, its heartbeat; a program may only listen to what it has queued,
which counts as much. A session is over when it has had neither for a while: a phone that slept, or
a proxy that hung up, comes back within that time and finds everything. A call whose session holds
no connection (`curl`) is over with its answer: its state would push those of open pages out.

Gradio keeps uploads in one folder, each under the salted digest of its content, so two sessions
with the same file share it. What no session ever used goes by its age (`layout.build`).
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import threading
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

from gradio.utils import get_upload_folder

from app.assets import examples
from app.links import example_of
from app.state import SessionState


class Uploads:
    """Which session uses which uploaded file."""

    def __init__(self) -> None:
        self._users: dict[Path, set[str]] = {}
        self._lock = threading.Lock()

    def use(self, session: str | None, path: str | None) -> None:
        """A session works with this file. Only uploads are noted: nothing else is ever deleted."""
        if not session or not path:
            return
        try:
            found = Path(path).resolve()
        except ValueError:  # a zero byte
            return
        if not found.is_relative_to(Path(get_upload_folder()).resolve()) or _shown_to_all(found):
            return
        with self._lock:
            for gone in [path for path in self._users if not path.exists()]:  # by their age
                del self._users[gone]
            if found.exists():
                self._users.setdefault(found, set()).add(session)

    def end(self, session: str | None) -> None:
        """A session is over: its files go, unless another session uses them, too."""
        with self._lock:
            for path in [path for path, users in self._users.items() if session in users]:
                self._users[path].discard(session or "")
                if not self._users[path]:
                    del self._users[path]
                    _delete(path)


#: There is one folder of uploads a process, so there is one register.
UPLOADS = Uploads()


class Presence:
    """Which sessions have a page open. Changed on the event loop only; any thread may ask."""

    def __init__(self) -> None:
        self._open: Counter[str] = Counter()
        self._leaving: dict[str, asyncio.TimerHandle] = {}

    def __contains__(self, session: str | None) -> bool:
        """Whether a page of this session is open, or has been until a moment ago."""
        return session in self._open or session in self._leaving

    def came(self, session: str) -> None:
        """A page of this session is open."""
        self._open[session] += 1
        if (timer := self._leaving.pop(session, None)) is not None:
            timer.cancel()

    def went(self, session: str, ended: Callable[[str], None], grace: float) -> None:
        """One of its pages is gone; `ended(session)` once it has had none for `grace` seconds."""
        self._open[session] -= 1
        if self._open[session] <= 0:
            del self._open[session]
            loop = asyncio.get_running_loop()
            self._leaving[session] = loop.call_later(grace, self._end, session, ended)

    def _end(self, session: str, ended: Callable[[str], None]) -> None:
        self._leaving.pop(session, None)
        ended(session)


#: There is one server a process, so there is one of these, too.
PRESENCE = Presence()


def end(page: Any, session: str) -> None:
    """Forget a session of this page (a `gr.Blocks`): its run ends, its state and files go."""
    UPLOADS.end(session)
    holder = page.state_holder
    # Gradio would keep it for good: it counts the age only of states that an event returns.
    held = holder.session_data.pop(session, None)
    holder.time_last_used.pop(session, None)
    for value in held.state_data.values() if held is not None else ():
        if isinstance(value, SessionState):
            value.stop()


def _shown_to_all(path: Path) -> bool:
    """Whether this is the page's own copy of an example: an upload of it lies in the same place."""
    try:
        number = example_of(str(path))
    except OSError:
        return False
    example = examples()[number].image if number is not None else None
    return example is not None and example.name == path.name


def _delete(path: Path) -> None:
    with contextlib.suppress(OSError):
        path.unlink()
        path.parent.rmdir()  # the folder of its digest, if nothing else lies there


def refresh(path: str | Path) -> None:
    """Start the age of a file that is used anew."""
    with contextlib.suppress(OSError):
        os.utime(path)
