"""A run: a request and a memory in, events out, the memory handed back at the end.

`decode` is a plain generator without hidden state: what it needs are its arguments, and all that it
yields is CPU data that can be pickled. So the same code serves the worker thread here and a forked
worker elsewhere, and the memory comes back also when the run is stopped.

    for event in decode(target, asked, memory, stop=lambda: False):
        ...

`Worker` runs it in a thread, one at a time through a `Turnstile`.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import islice
from typing import TYPE_CHECKING, Any

from recap.errors import RecapError
from recap.memory import PersistentMemory
from recap.settings import Settings
from recap.trace import Step, Trace

if TYPE_CHECKING:  # torch and transformers take seconds to import, and the page need not wait
    from PIL import Image

    from recap.targets.base import Target


@dataclass(frozen=True)
class Asked:
    """What a person asked for."""

    prompt: str
    image: Image.Image | None
    method: str
    settings: Settings
    max_new_tokens: int

    def __post_init__(self) -> None:
        # Half a surrogate pair, from a broken clipboard, can neither be encoded nor shown.
        whole = self.prompt.encode("utf-8", "replace").decode("utf-8")
        object.__setattr__(self, "prompt", whole)


@dataclass(frozen=True)
class Opened:
    """The run has its trace, still without steps; `request` is its number in the memory."""

    trace: Trace
    request: int


@dataclass(frozen=True)
class Prefilled:
    """The prompt is read, and the first token is there."""

    prefill: dict[str, Any]
    words: dict[str, dict[str, Any]]
    text: str


@dataclass(frozen=True)
class Passed:
    """One verification pass, and the words that are new with it."""

    step: Step
    words: dict[str, dict[str, Any]]
    text: str


@dataclass(frozen=True)
class Closed:
    """The run is over. `trace` is the whole without its steps; `memory` is what it learnt."""

    trace: Trace
    memory: PersistentMemory


Event = Opened | Prefilled | Passed | Closed


def decode(
    target: Target, asked: Asked, memory: PersistentMemory, stop: Callable[[], bool]
) -> Iterator[Event]:
    """Decode to the end, or until `stop()` says so between two passes.

    `memory` is changed and handed back in `Closed`, also after Stop and after an error that the
    engine reports. Raises `RecapError` where the run cannot begin.
    """
    from recap.decoding import Run

    request = target.prepare(asked.prompt, asked.image)
    run = Run(
        target,
        request,
        asked.method,
        settings=asked.settings,
        memory=memory,
        max_new_tokens=asked.max_new_tokens,
    )
    yield Opened(_bare(run.trace), memory.requests)
    steps = run.steps()
    try:
        run.prefill()
        first = spell(target, run.trace.prefill["first_token"])
        yield Prefilled(run.trace.prefill, first, run.trace.text)
        known = 0
        while not stop():
            step = next(steps, None)
            if step is None:
                break
            words = dict(islice(run.trace.vocabulary.items(), known, None))
            known += len(words)
            yield Passed(step, words, run.trace.text)
        run.cancel()
    except RecapError:
        if run.trace.finish is None:
            raise
    finally:
        steps.close()
    yield Closed(_bare(run.trace), memory)


def spell(target: Target, token: int) -> dict[str, dict[str, Any]]:
    """One word as a trace's vocabulary holds it: a trace learns the first token's only later."""
    from recap.detokenize import token_bytes

    if target.tokenizer is None:
        return {}
    spelled = token_bytes(target.tokenizer, token)
    return {str(token): {"text": spelled.decode("utf-8", "replace"), "bytes": spelled.hex()}}


def _bare(trace: Trace) -> Trace:
    """A trace without its steps, sharing nothing that the run still changes."""
    return replace(
        trace,
        steps=[],
        vocabulary=dict(trace.vocabulary),
        token_ids=list(trace.token_ids),
        memory=dict(trace.memory),
    )


class Turnstile:
    """Lets one run through at a time, in the order of arrival, and says who waits where."""

    def __init__(self) -> None:
        self._waiting: deque[object] = deque()
        self._changed = threading.Condition()

    def join(self) -> object:
        """A ticket at the end of the line."""
        ticket = object()
        with self._changed:
            self._waiting.append(ticket)
        return ticket

    def ahead(self, ticket: object) -> int:
        """How many are before this ticket; 0 while it has its turn."""
        with self._changed:
            return self._waiting.index(ticket) if ticket in self._waiting else 0

    def wait(self, ticket: object, stop: Callable[[], bool]) -> bool:
        """Wait for this ticket's turn. Returns whether it came before `stop()` did."""
        with self._changed:
            while self._waiting[0] is not ticket:
                if stop():
                    return False
                self._changed.wait(0.1)
        return not stop()

    def leave(self, ticket: object) -> None:
        """Give the ticket back, whether its turn came or not."""
        with self._changed:
            if ticket in self._waiting:
                self._waiting.remove(ticket)
            self._changed.notify_all()


class Worker:
    """Runs a generator of events in a thread, in its turn; `take` gives what has come.

    `produce(stop, note)` makes the generator once it is the worker's turn: it may load a model
    first, and `note(text)` says so. Whatever it raises is kept in `error`.
    """

    def __init__(
        self,
        turnstile: Turnstile,
        produce: Callable[[Callable[[], bool], Callable[[str], None]], Iterator[Any]],
    ) -> None:
        self.error: BaseException | None = None
        self.note = ""
        self._turnstile = turnstile
        self._ticket = turnstile.join()
        self._produce = produce
        self._events: deque[Any] = deque()
        self._stopped = threading.Event()
        self._news = threading.Event()
        self._thread = threading.Thread(target=self._work, name="recap-run", daemon=True)
        self._thread.start()

    @property
    def alive(self) -> bool:
        return self._thread.is_alive()

    @property
    def ahead(self) -> int:
        """Runs before this one."""
        return self._turnstile.ahead(self._ticket)

    def stop(self) -> None:
        """End after the pass that is going on."""
        self._stopped.set()

    def take(self, timeout: float) -> list[Any]:
        """Events since the last call; waits for the first of them at most `timeout` seconds."""
        self._news.wait(timeout)
        self._news.clear()
        events = []
        while self._events:
            events.append(self._events.popleft())
        return events

    def join(self, timeout: float | None = None) -> None:
        """Wait for the thread to end."""
        self._thread.join(timeout)

    def _work(self) -> None:
        try:
            if self._turnstile.wait(self._ticket, self._stopped.is_set):
                for event in self._produce(self._stopped.is_set, self._say):
                    self._events.append(event)
                    self._news.set()
        except BaseException as error:
            self.error = error
        finally:
            self._turnstile.leave(self._ticket)
            self._news.set()

    def _say(self, text: str) -> None:
        self.note = text
        self._news.set()
