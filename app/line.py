"""The line in front of the accelerator: one job at a time, and everybody knows where they stand.

    ticket = turnstile.join("10.0.0.7")          # raises BusyError where the line is full
    if turnstile.wait(ticket, stop=lambda: False):
        ...
    turnstile.leave(ticket)

Gradio's own queue is not enough here: it gives a slot back while the stopped step still computes,
knows no visitors, and shows its positions in a place that this page does not have.

Fair: the line goes by rounds. Each visitor has one job in a round, so whoever asks for five at once
lets everybody else in between; within a round it goes by arrival.
"""

from __future__ import annotations

import threading
import time
from bisect import bisect_right
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from statistics import median

from recap.errors import RecapError

#: Jobs whose lengths the expected wait is made from.
_REMEMBERED = 20


class BusyError(RecapError):
    """So many wait already that nobody else is let in."""


@dataclass(eq=False)
class Ticket:
    """A place in the line. `started` and `beat` are on the monotonic clock."""

    visitor: object
    round: int
    started: float | None = None
    #: When this job last showed that it goes on.
    beat: float = 0.0
    #: What takes its time before the first step, such as loading a model.
    preparing: bool = False
    #: What this job is, in words, where it is nobody's run.
    what: str = ""


class Turnstile:
    """Lets one job through at a time. `length`: most that may wait; `stall`: see `stalled`."""

    def __init__(self, length: int = 32, stall: float = 60.0) -> None:
        self._line: list[Ticket] = []
        self._length = length
        self._stall = stall
        self._lengths: deque[float] = deque(maxlen=_REMEMBERED)
        self._changed = threading.Condition()

    def join(self, visitor: object = None, *, what: str = "") -> Ticket:
        """A ticket in the line; without a visitor, of one who has no other. Raises `BusyError`.

        `what` says what the job is, where it is nobody's run.
        """
        with self._changed:
            if len(self._line) > self._length:
                raise BusyError(self._refusal())
            now = self._line[0].round if self._line else 0
            own = [t.round for t in self._line if visitor is not None and t.visitor == visitor]
            ticket = Ticket(visitor, max(own) + 1 if own else now, what=what)
            place = bisect_right(self._line, ticket.round, key=lambda other: other.round)
            # Whoever is being served stays where they are.
            self._line.insert(max(place, 1) if self._line else 0, ticket)
        return ticket

    def ahead(self, ticket: Ticket) -> int:
        """How many are before this ticket; 0 while it has its turn."""
        with self._changed:
            return self._line.index(ticket) if ticket in self._line else 0

    def expected(self, ticket: Ticket) -> float | None:
        """Seconds until this ticket's turn, by recent jobs; None where nothing is known yet."""
        with self._changed:
            before = self._line.index(ticket) if ticket in self._line else 0
            return self._wait_of(before)

    def stalled(self) -> float | None:
        """Seconds that the job in service has spent in one step, where that is too long.

        Nothing can interrupt a step: torch does not return before it is done.
        """
        with self._changed:
            served = self._line[0] if self._line else None
            if served is None or served.started is None:
                return None
            spent = time.monotonic() - served.beat
            return spent if spent > self._stall else None

    @property
    def preparing(self) -> bool:
        """Whether the job in service has not come to its first step yet."""
        with self._changed:
            return bool(self._line) and self._line[0].preparing

    @property
    def what(self) -> str:
        """What the job in service is, where it is nobody's run."""
        with self._changed:
            return self._line[0].what if self._line else ""

    @property
    def typical(self) -> float | None:
        """Seconds that a recent job took, in the median."""
        with self._changed:
            return median(self._lengths) if self._lengths else None

    def wait(self, ticket: Ticket, stop: Callable[[], bool]) -> bool:
        """Wait for this ticket's turn. Returns whether it came before `stop()` did."""
        with self._changed:
            while self._line[0] is not ticket:
                if stop():
                    return False
                self._changed.wait(0.1)
            ticket.started = ticket.beat = time.monotonic()
        return not stop()

    def beat(self, ticket: Ticket, *, preparing: bool = False) -> None:
        """The job goes on: a step is done, or with `preparing` something before the first one."""
        if ticket.preparing and not preparing and ticket.started is not None:
            ticket.started = time.monotonic()  # loading a model is no part of a typical length
        ticket.beat, ticket.preparing = time.monotonic(), preparing

    def leave(self, ticket: Ticket, *, measured: bool = True) -> None:
        """Give the ticket back, whether its turn came or not."""
        with self._changed:
            if ticket in self._line:
                self._line.remove(ticket)
            if measured and ticket.started is not None and not ticket.preparing:
                self._lengths.append(time.monotonic() - ticket.started)
            self._changed.notify_all()

    def _wait_of(self, before: int) -> float | None:
        if not before:
            return 0.0
        typical = self.typical
        if typical is None:
            return None
        started = self._line[0].started
        spent = 0.0 if started is None else time.monotonic() - started
        # A job that is over its time already is expected to end soon, but not at once.
        return max(typical - spent, typical / 4) + (before - 1) * typical

    def _refusal(self) -> str:
        waiting = len(self._line) - 1
        seconds = self._wait_of(waiting)
        when = f"in {about(seconds)}" if seconds else "in a minute"
        return f"Too many are waiting: {waiting} runs are in the line already. Try again {when}."


def about(seconds: float) -> str:
    """A duration as one says it.

    >>> [about(2), about(34), about(70), about(700)]
    ['a few seconds', 'about 35 s', 'about 1 min', 'about 12 min']
    """
    if seconds < 8:
        return "a few seconds"
    if seconds < 58:
        return f"about {5 * round(seconds / 5)} s"
    return f"about {max(1, round(seconds / 60))} min"
