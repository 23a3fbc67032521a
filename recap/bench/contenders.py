"""How a sample is taken: one run of one method on one prompt, by the method's own clock.

A drafter is charged as in a race: prefill, draft, verify, commit and observe, with the device
synchronised; not recording, not text. A baseline is `model.generate` as a user of transformers
calls it, timed from outside: its decoding starts with the first token that its streamer gives. All
run on the same model object, and none is charged for preparing the prompt.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from transformers import GenerationConfig
from transformers.generation.streamers import BaseStreamer

from recap.bench.spec import Spec
from recap.bench.statistics import Sample
from recap.decoding import Run, new_memory
from recap.drafters import get_method
from recap.memory import PersistentMemory
from recap.settings import Settings
from recap.targets.attention import TREE_ATTENTION
from recap.targets.base import Request, Target

#: Tokens of an untimed run that readies a method.
_WARM_UP_TOKENS = 8


class Contender(ABC):
    """A method that takes part; `label` is its spec."""

    def __init__(self, target: Target, label: str) -> None:
        self.target = target
        self.label = label

    @abstractmethod
    def run(self, request: Request, max_new_tokens: int, *, last: bool = True) -> Sample:
        """A sample on a copy of the request, which has not been prefilled.

        Of several repeats only the `last` leaves in memory what it has learnt: a method must not
        know the answer already.
        """

    @abstractmethod
    def warm_up(self, request: Request) -> None:
        """An untimed short run that leaves no trace, so that no sample pays for being the first."""

    def state(self) -> dict[str, Any] | None:
        """What is kept for the next prompt, as plain data; None where nothing is."""
        return None

    def restore(self, state: dict[str, Any]) -> None:
        """Go on from a `state`."""
        raise NotImplementedError(f"{self.label} keeps nothing")

    @contextmanager
    def _watching_memory(self) -> Iterator[list[int | None]]:
        """A list that holds, afterwards, the most bytes that were allocated on the device."""
        peak: list[int | None] = [None]
        on_gpu = self.target.device.type == "cuda"
        if on_gpu:
            torch.cuda.reset_peak_memory_stats(self.target.device)
        yield peak
        if on_gpu:
            peak[0] = torch.cuda.max_memory_allocated(self.target.device)


class Drafted(Contender):
    """A drafter of the registry. With `warm` its memory is kept from prompt to prompt."""

    def __init__(
        self, target: Target, label: str, method: str, settings: Settings, *, warm: bool
    ) -> None:
        super().__init__(target, label)
        self.method = method
        self.settings = settings
        self._warm = warm
        self._memory = new_memory(target)

    def run(self, request: Request, max_new_tokens: int, *, last: bool = True) -> Sample:
        """See `Contender.run`."""
        memory = None
        if self._warm:
            memory = self._memory if last else self._memory.copy()
        run = self._start(request, max_new_tokens, memory)
        run.ready_budget()  # before the watch: what measuring the cost takes is not the method's
        with self._watching_memory() as peak:
            trace = run.finish_all()
        seconds, steps = trace.seconds, trace.steps
        return Sample(
            trace.token_ids,
            seconds["total"],
            seconds["prefill"],
            [step.accepted_length for step in steps],
            rows=[len(step.nodes) + 1 for step in steps],
            pass_seconds=[step.seconds["verify"] + step.seconds["commit"] for step in steps],
            matched=sum(step.matched for step in steps),
            draft_seconds=seconds["draft"] + seconds["observe"],
            peak_bytes=peak[0],
            prompt_tokens=trace.prompt_tokens,
        )

    def warm_up(self, request: Request) -> None:
        """See `Contender.warm_up`."""
        self._start(request, _WARM_UP_TOKENS).finish_all()

    def _start(
        self, request: Request, max_new_tokens: int, memory: PersistentMemory | None = None
    ) -> Run:
        """A run of this method; without a memory, with an empty one."""
        return Run(
            self.target,
            request.twin(),
            self.method,
            settings=self.settings,
            memory=memory,
            max_new_tokens=max_new_tokens,
        )

    def state(self) -> dict[str, Any] | None:
        """See `Contender.state`."""
        keeps = self._warm and get_method(self.method).remembers
        return self._memory.state_dict() if keeps else None

    def restore(self, state: dict[str, Any]) -> None:
        """See `Contender.restore`. Raises `MemoryMismatchError`."""
        self._memory.load_state_dict(state)


class Baseline(Contender):
    """`model.generate` with some of its own options. It keeps nothing between prompts."""

    def __init__(self, target: Target, label: str, options: dict[str, Any]) -> None:
        super().__init__(target, label)
        self._options = dict(options)
        if options and target.placeholders:
            # Prompt lookup would draft a picture's placeholders, which the model refuses; what is
            # suppressed it does not draft.
            self._options["suppress_tokens"] = sorted(target.placeholders)

    def run(self, request: Request, max_new_tokens: int, *, last: bool = True) -> Sample:
        """See `Contender.run`."""
        inputs = self.target.generate_inputs(request)
        prompt = inputs["input_ids"].shape[1]
        arrivals = _Arrivals()
        with self._watching_memory() as peak, _as_a_user_has_it(self.target):
            self.target.synchronize()
            started = time.perf_counter()
            ids = self.target.model.generate(
                **inputs,
                **self._options,
                do_sample=False,
                max_new_tokens=max_new_tokens,
                streamer=arrivals,
            )
            self.target.synchronize()
            ended = time.perf_counter()
        first, *lengths = arrivals.counts
        return Sample(
            ids[0, prompt:].tolist(),
            ended - started,
            arrivals.first_at - started,
            lengths,
            first_tokens=first,
            peak_bytes=peak[0],
            prompt_tokens=prompt,
        )

    def warm_up(self, request: Request) -> None:
        """See `Contender.warm_up`."""
        self.run(request, _WARM_UP_TOKENS)


class _Arrivals(BaseStreamer):
    """When the first tokens came, and how many came at a time: `put` is called once a pass."""

    def __init__(self) -> None:
        self.counts: list[int] = []
        self.first_at = 0.0
        self._prompt_seen = False

    def put(self, value: torch.Tensor) -> None:
        """Take a pass's tokens; the first call brings the prompt."""
        if not self._prompt_seen:
            self._prompt_seen = True
            return
        if not self.counts:
            self.first_at = time.perf_counter()
        self.counts.append(value.numel())

    def end(self) -> None:
        """Nothing is held back."""


@contextmanager
def _as_a_user_has_it(target: Target) -> Iterator[None]:
    """The model with the attention that transformers gives it, and a neutral generation config.

    Penalties and sampling defaults of the checkpoint are left out, as they are for every method.
    """
    model = target.model
    config, attention = model.generation_config, model.config._attn_implementation
    eos = sorted(target.eos)
    model.generation_config = GenerationConfig(
        eos_token_id=eos or None, pad_token_id=eos[0] if eos else 0
    )
    if attention == TREE_ATTENTION:
        model.set_attn_implementation("sdpa")
    try:
        yield
    finally:
        model.generation_config = config
        if attention == TREE_ATTENTION:
            model.set_attn_implementation(attention)


def make_contender(target: Target, spec: Spec, *, warm: bool) -> Contender:
    """The contender that a spec describes."""
    if spec.settings is not None:
        return Drafted(target, spec.label, spec.method, spec.settings, warm=warm)
    return Baseline(target, spec.label, spec.options or {})
