"""When a session is over, and what goes with it: its state and its uploaded files.

A page holds a connection open, its heartbeat; a program may only listen to what it has queued,
which counts as much. A session is over when it has had neither for a while: a phone that slept, or
a proxy that hung up, comes back within that time and finds everything. A call whose session holds
no connection (`curl`) is over with its answer: its state would push those of open pages out.
"""

from __future__ import annotations

import asyncio
import threading
from collections import Counter, OrderedDict
from collections.abc import Callable
from typing import Any

from app.state import SessionState
from app.uploads import UPLOADS


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


class Visits:
    """Which sessions have had something here, the latest of them; any thread may ask.

    A session's state goes where others need the room, and with its last page: a page that comes
    back later is told so, and does not take somebody's example for its own run.
    """

    def __init__(self) -> None:
        self._sessions: OrderedDict[str, None] = OrderedDict()
        self._lock = threading.Lock()

    def __contains__(self, session: str | None) -> bool:
        with self._lock:
            return session in self._sessions

    def note(self, session: str | None) -> None:
        """This session has something here now."""
        with self._lock:
            self._sessions[session or ""] = None
            self._sessions.move_to_end(session or "")
            while len(self._sessions) > _REMEMBERED:
                self._sessions.popitem(last=False)


#: As many as ever come back.
_REMEMBERED = 10_000
VISITS = Visits()


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
