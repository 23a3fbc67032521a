"""What a visitor asked for, and what every job that is made of it has: a run, a race.

A job can be pickled, and so can its events. So the same code serves the worker's thread here and a
forked process elsewhere (`app.lending`). A trace travels in pieces: `bare` at the beginning and the
end, steps in between, and the words that are new with each.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import islice
from typing import TYPE_CHECKING, Any, Protocol

from app.hosting import Host
from recap.errors import PromptError
from recap.settings import Settings
from recap.trace import Step, Trace

if TYPE_CHECKING:  # torch and transformers take seconds to import, and the page need not wait
    from recap.memory import PersistentMemory
    from recap.targets.base import Request, Target
    from recap.targets.images import Source

#: A session's memories on one model, by method; one that is not there is empty.
Memories = dict[str, "PersistentMemory"]
#: Whether a job is to end, asked between two passes.
Stop = Callable[[], bool]
#: Spellings by token id, as a trace's vocabulary holds them.
Words = dict[str, dict[str, Any]]

#: Bytes of a trace's JSON, about, by what it holds: a node, a stored prediction, a step.
_NODE_BYTES, _PREDICTION_BYTES, _STEP_BYTES = 110, 22, 900


@dataclass(frozen=True)
class Asked:
    """What was asked for, whichever way it came: by the form or by a program.

    `settings` are the method's. A race takes them for this method's lane, if there is one. The
    picture is decoded when it is this job's turn.
    """

    prompt: str
    image: Source | None
    method: str
    settings: Settings
    max_new_tokens: int

    def __post_init__(self) -> None:
        # Half a surrogate pair, from a broken clipboard, can neither be encoded nor shown.
        whole = self.prompt.encode("utf-8", "replace").decode("utf-8")
        object.__setattr__(self, "prompt", whole)

    def prepare(self, target: Target, host: Host) -> Request:
        """The request, where it is not longer than the host takes. Raises `RecapError`."""
        from recap.targets.images import load_image

        image = load_image(self.image) if self.image is not None else None
        request = target.prepare(self.prompt, image)
        if request.prompt_length > host.max_prompt_tokens:
            raise PromptError(
                f"The prompt takes {request.prompt_length:,} tokens with its picture, and this app "
                f"takes {host.max_prompt_tokens:,}. Shorten it or use a smaller picture."
            )
        return request


class Job(Protocol):
    """Something to do with a target."""

    @property
    def tokens(self) -> int:
        """Most tokens that it decodes, over all methods."""

    def events(self, target: Target, memories: Memories, stop: Stop, host: Host) -> Iterator[Any]:
        """Do it to the end, or until `stop()` says so between two passes.

        Raises `RecapError` where it cannot begin.
        """


class NewWords:
    """The words that a growing trace has learnt since the last call."""

    def __init__(self) -> None:
        self._known = 0

    def of(self, trace: Trace) -> Words:
        words = dict(islice(trace.vocabulary.items(), self._known, None))
        self._known += len(words)
        return words


def spell(target: Target, token: int) -> Words:
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
