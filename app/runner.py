"""A run: a request and memories in, events out, the memory handed back at the end.

`decode` is a plain generator without hidden state: what it needs are its arguments, and all that it
yields is CPU data that can be pickled. So the same code serves the worker thread here and a forked
worker elsewhere (`app.lending`), and the memory comes back also when the run is stopped or fails.

    for event in decode(target, asked, memory, stop=lambda: False):
        ...

`Worker` runs it in a thread, one at a time through a `Turnstile`. The thread never waits for a
browser: what it has to say goes into a buffer, and a run whose buffer nobody empties is ended.
"""

from __future__ import annotations

import contextvars
import threading
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import islice
from typing import TYPE_CHECKING, Any, Protocol

from app.faults import explain
from app.hosting import Host
from app.line import Turnstile, about
from recap.errors import PromptError, RecapError
from recap.memory import PersistentMemory
from recap.settings import Settings
from recap.trace import Step, Trace

if TYPE_CHECKING:  # torch and transformers take seconds to import, and the page need not wait
    from recap.targets.base import Request, Target
    from recap.targets.images import Source

#: Events that a worker keeps for whoever takes them.
_BUFFER = 1024
#: Seconds that it waits for them to be taken, once there are so many.
_PATIENCE = 5.0
#: Bytes of a trace's JSON, about, by what it holds: a node, a stored prediction, a step.
_NODE_BYTES, _PREDICTION_BYTES, _STEP_BYTES = 110, 22, 900


class Job(Protocol):
    """What a visitor asks the model for: a run or a race. It can be pickled."""

    @property
    def tokens(self) -> int:
        """Most tokens that it decodes, over all methods."""

    def events(
        self,
        target: Target,
        memories: dict[str, PersistentMemory],
        stop: Callable[[], bool],
        host: Host,
    ) -> Iterator[Any]:
        """Do it. `memories` are by method, and those that are not there are empty."""


@dataclass(frozen=True)
class Asked:
    """What a person asked for. The picture is decoded when it is this job's turn."""

    prompt: str
    image: Source | None
    method: str
    settings: Settings
    max_new_tokens: int

    def __post_init__(self) -> None:
        # Half a surrogate pair, from a broken clipboard, can neither be encoded nor shown.
        whole = self.prompt.encode("utf-8", "replace").decode("utf-8")
        object.__setattr__(self, "prompt", whole)

    @property
    def tokens(self) -> int:
        return self.max_new_tokens

    def events(
        self,
        target: Target,
        memories: dict[str, PersistentMemory],
        stop: Callable[[], bool],
        host: Host,
    ) -> Iterator[Event]:
        from recap.decoding import new_memory

        memory = memories.get(self.method)
        return decode(target, self, new_memory(target) if memory is None else memory, stop, host)


@dataclass(frozen=True)
class Opened:
    """The run has its trace, still without steps."""

    trace: Trace


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
    target: Target,
    asked: Asked,
    memory: PersistentMemory,
    stop: Callable[[], bool],
    host: Host | None = None,
) -> Iterator[Event]:
    """Decode to the end, or until `stop()` says so between two passes.

    `memory` is changed and handed back in `Closed`, also after Stop and after an error, which is
    raised behind it. Raises `RecapError` where the run cannot begin.
    """
    from recap.decoding import Run

    host = host or Host()
    request = prepare(target, asked, host)
    run = Run(
        target,
        request,
        asked.method,
        settings=asked.settings,
        memory=memory,
        max_new_tokens=asked.max_new_tokens,
    )
    yield Opened(bare(run.trace))
    steps = run.steps()
    fault: Exception | None = None
    try:
        run.prefill()
        first = spell(target, run.trace.prefill["first_token"])
        yield Prefilled(run.trace.prefill, first, run.trace.text)
        known, size = 0, 0
        while not stop():
            step = next(steps, None)
            if step is None:
                break
            words = dict(islice(run.trace.vocabulary.items(), known, None))
            known += len(words)
            yield Passed(step, words, run.trace.text)
            size += trace_bytes(step)
            if size > host.max_file_mb * 1_000_000:
                run.cancel()
                run.trace.message = full(host)
        run.cancel()
    except RecapError:
        if run.trace.finish is None:
            raise
    except Exception as error:
        fault = error
    finally:
        steps.close()
    yield Closed(bare(run.trace), memory)
    if fault is not None:
        raise fault


def prepare(target: Target, asked: Asked, host: Host) -> Request:
    """The request, where it is not longer than the host takes. Raises `RecapError`."""
    from recap.targets.images import load_image

    image = load_image(asked.image) if asked.image is not None else None
    request = target.prepare(asked.prompt, image)
    if request.prompt_length > host.max_prompt_tokens:
        raise PromptError(
            f"The prompt takes {request.prompt_length:,} tokens with its picture, and this app "
            f"takes {host.max_prompt_tokens:,}. Shorten it or use a smaller picture."
        )
    return request


def trace_bytes(step: Step) -> int:
    """Bytes that a step takes in a trace's JSON, about."""
    stored = sum(map(len, step.rows["ids"])) + sum(map(len, step.entries.ids))
    return _STEP_BYTES + len(step.nodes) * _NODE_BYTES + stored * _PREDICTION_BYTES


def full(host: Host) -> str:
    """Why a run was ended whose recording became too large."""
    return (
        f"Ended here: the recording has reached {host.max_file_mb} MB, the most that this app "
        "keeps of one run. Ask for fewer new tokens or use a smaller budget."
    )


def spell(target: Target, token: int) -> dict[str, dict[str, Any]]:
    """One word as a trace's vocabulary holds it: a trace learns the first token's only later."""
    from recap.detokenize import token_bytes

    if target.tokenizer is None:
        return {}
    spelled = token_bytes(target.tokenizer, token)
    return {str(token): {"text": spelled.decode("utf-8", "replace"), "bytes": spelled.hex()}}


def bare(trace: Trace) -> Trace:
    """A trace without its steps, sharing nothing that the run still changes."""
    return replace(
        trace,
        steps=[],
        vocabulary=dict(trace.vocabulary),
        token_ids=list(trace.token_ids),
        memory=dict(trace.memory),
    )


class Worker:
    """Runs a generator of events in a thread, in its turn; `take` gives what has come.

    `produce(stop, note)` makes the generator once it is the worker's turn: it may load a model
    first, and `note(text)` says so. What it raises is explained in `message`. Raises `BusyError`
    where the line is full.
    """

    def __init__(
        self,
        turnstile: Turnstile,
        produce: Callable[[Callable[[], bool], Callable[[str], None]], Iterator[Any]],
        visitor: object = None,
    ) -> None:
        self.message: str | None = None
        self.note = ""
        self._turnstile = turnstile
        self._ticket = turnstile.join(visitor)
        self._produce = produce
        self._events: deque[Any] = deque()
        self._stopped = threading.Event()
        self._news = threading.Event()
        self._taken = threading.Event()
        # With the visitor's request in it, by which a platform that lends GPUs knows them.
        context = contextvars.copy_context()
        self._thread = threading.Thread(
            target=context.run, args=(self._work,), name="recap-run", daemon=True
        )
        self._thread.start()

    @property
    def alive(self) -> bool:
        return self._thread.is_alive()

    def status(self) -> str:
        """What the visitor waits for, in words; empty while steps come as they should."""
        line = self._turnstile
        ahead, stalled = line.ahead(self._ticket), line.stalled()
        if ahead and (what := line.what):
            words = f"Waiting: {what}"
            if stalled is not None:
                words += f", for {_seconds(stalled)} now"
            return f"{words}; {_runs(ahead - 1)} before yours." if ahead > 1 else f"{words}."
        if ahead:
            words = f"Waiting: {_runs(ahead)} before yours"
            if stalled is not None:
                what = "is still getting ready" if line.preparing else "is stuck in one step"
                return (
                    f"{words}. The first of them {what}, for {_seconds(stalled)} now; the line "
                    "goes on when it returns."
                )
            expected = line.expected(self._ticket)
            return f"{words}, {about(expected)} to wait." if expected else f"{words}."
        if stalled is not None and self.alive:
            if line.preparing:
                return f"{self.note.rstrip('…')}: {_seconds(stalled)} so far…"
            return (
                f"Stuck: this step has taken {_seconds(stalled)} so far. It cannot be interrupted; "
                "the run goes on, or stops, when it returns."
            )
        return self.note

    def stop(self) -> None:
        """End after the pass that is going on."""
        self._stopped.set()
        self._taken.set()

    def take(self, timeout: float) -> list[Any]:
        """Events since the last call; waits for the first of them at most `timeout` seconds."""
        self._news.wait(timeout)
        self._news.clear()
        events = []
        while self._events:
            events.append(self._events.popleft())
        self._taken.set()
        return events

    def join(self, timeout: float | None = None) -> None:
        """Wait for the thread to end."""
        self._thread.join(timeout)

    def _work(self) -> None:
        measured = False
        try:
            if self._turnstile.wait(self._ticket, self._stopped.is_set):
                for event in self._produce(self._stopped.is_set, self._say):
                    self._turnstile.beat(self._ticket)
                    self._put(event)
                measured = not self._stopped.is_set()
        except BaseException as error:
            self.message = explain(error)
        finally:
            self._turnstile.leave(self._ticket, measured=measured)
            self._news.set()

    def _put(self, event: Any) -> None:
        """Keep an event for whoever takes it. Where nobody does, the run is ended."""
        if len(self._events) >= _BUFFER and not self._stopped.is_set():
            self._taken.clear()
            if len(self._events) >= _BUFFER and not self._taken.wait(_PATIENCE):
                self.stop()
        self._events.append(event)  # after a stop little comes any more
        self._news.set()

    def _say(self, text: str) -> None:
        self.note = text
        self._turnstile.beat(self._ticket, preparing=bool(text))
        self._news.set()


def _runs(count: int) -> str:
    return f"{count} {'run is' if count == 1 else 'runs are'}"


def _seconds(spent: float) -> str:
    """Whole seconds, by tens where there are many: a note that changes is sent to the page."""
    return f"{round(spent) if spent < 10 else 10 * int(spent / 10)} s"
