"""The loop: propose, verify, accept, commit, observe; one `Step` a pass.

    run = Run(target, target.prepare("Describe this.", image), "recap", max_new_tokens=200)
    for step in run.steps():
        print(run.trace.text)
    print(run.trace.mat)

`steps()` is a generator that can be closed at any point: whatever was emitted stays in `run.trace`,
the memory stays consistent, and the target can be used again at once. Decoding is greedy, and the
tokens are those of `model.generate(do_sample=False)` whatever the method, since the target decides.
The loop knows neither families nor methods.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from recap.budget import Budget, FixedBudget, start_budget
from recap.cost import CostCurve, cost_of
from recap.detokenize import Detokenizer
from recap.drafters import Drafter, Outcome, Rows, get_method
from recap.errors import ContextError, MemoryMismatchError, PromptError, SettingsError
from recap.memory import PersistentMemory
from recap.prediction import GAP, SEED_STEP
from recap.processors import RowProcessors
from recap.recording import Vocabulary, record_step, start_trace
from recap.settings import ADAPTIVE, Settings
from recap.targets.base import Request, Target
from recap.trace import Step, Trace, finite
from recap.tree import CandidateTree, accept

MAX_NEW_TOKENS = 1_048_576
#: Most rows of cache that are allocated before they are needed.
_RESERVE = 1024
#: Tokens of an answer, for an estimate of the context that its passes run behind.
_USUAL_ANSWER = 256


def new_memory(target: Target) -> PersistentMemory:
    """An empty persistent memory for this target's vocabulary."""
    return PersistentMemory(target.vocabulary, target.tokenizer_id)


def usual_context(prompt_length: int, max_new_tokens: int) -> int:
    """Rows that passes run behind, about: the prompt and half of an answer of usual length."""
    return prompt_length + min(max_new_tokens, _USUAL_ANSWER) // 2


class Run:
    """One request being decoded by one method.

    `memory` is the session's persistent memory of that method; without one, the run starts cold.
    `stop` are strings that end the answer with the token that completes one; `stop_when` is asked
    after every token, with prompt and answer so far, whether to end there; `eos` replaces the ids
    that end an answer of this target. `processors` apply to every row (`recap.processors`); by
    default penalties and the like are neutral. `trace` grows with every pass. `cost` is what passes
    cost, for callers that know it: without it an adaptive budget looks it up or measures it
    (`recap.cost`) before the prefill, outside the clock.

    Raises `SettingsError`, naming what is out of range.
    """

    def __init__(
        self,
        target: Target,
        request: Request,
        method: str = "recap",
        *,
        settings: Settings | None = None,
        memory: PersistentMemory | None = None,
        max_new_tokens: int = 200,
        stop: Sequence[str] = (),
        stop_when: Callable[[list[int]], bool] | None = None,
        eos: frozenset[int] | None = None,
        processors: RowProcessors | None = None,
        do_sample: bool = False,
        cost: CostCurve | None = None,
    ) -> None:
        if do_sample:
            raise SettingsError("do_sample", "only greedy decoding is supported, sampling is not")
        if not isinstance(max_new_tokens, int) or not 1 <= max_new_tokens <= MAX_NEW_TOKENS:
            raise SettingsError("max_new_tokens", f"must be between 1 and {MAX_NEW_TOKENS}")
        if any(not isinstance(s, str) or not s for s in stop):
            raise SettingsError("stop", "must be non-empty strings")
        if stop and target.tokenizer is None:
            raise SettingsError("stop", "needs a target with a tokenizer")
        if request.cache is not None:
            raise PromptError("This request was decoded already: prepare it again.")
        chosen = get_method(method)
        chosen.load()  # before the clock runs
        if memory is None:
            memory = new_memory(target)
        _check_memory(memory, target)
        self.target = target
        self.request = request
        self.settings = settings or chosen.settings()
        self.memory = memory
        self.max_new_tokens = max_new_tokens
        request.processors = processors
        self._stop = tuple(stop)
        self._stop_when = stop_when
        self._eos = target.eos if eos is None else eos
        self._cost = cost
        self._budget: Budget = FixedBudget(0)  # until the prefill
        started = time.perf_counter()
        self._drafter: Drafter = chosen.start(memory, self.settings, self._eos)
        # Part of the prefill: what an earlier request has left is put in order now.
        self._start_seconds = time.perf_counter() - started
        self._detokenizer = Detokenizer(target.tokenizer) if target.tokenizer else None
        self._alone = False
        self._finished = False
        self.trace = start_trace(
            target,
            request,
            chosen.name,
            self.settings,
            max_new_tokens=max_new_tokens,
            number=memory.requests if self.settings.persist else int(chosen.remembers),
            memory=self._memory_state(),
        )
        self._vocabulary = Vocabulary(self.trace, target.tokenizer, target.vocabulary)

    # What a caller does -----------------------------------------------------------------------

    def prefill(self) -> None:
        """Run the prompt and emit the first token. `steps` does it where it was not done."""
        if self.request.cache is not None or self._finished:
            return
        with self._reporting():
            self._prefill()

    def ready_budget(self, *, remeasure: bool = False) -> None:
        """Look up what passes cost, or measure it, where the budget asks.

        The prefill does it where it was not done. It is not charged to the clock.
        """
        if self.settings.budget == ADAPTIVE and (remeasure or self._cost is None):
            context = usual_context(self.request.prompt_length, self.max_new_tokens)
            self._cost = cost_of(self.target, context, remeasure=remeasure)

    def _prefill(self) -> None:
        self.ready_budget()
        known = self.memory.counts if self.settings.persist else None
        self._budget = start_budget(self.settings, self._cost, known)
        room = min(self.max_new_tokens, self.target.context, _RESERVE)
        started = time.perf_counter()
        first = self.target.prefill(
            self.request,
            top_k=self.settings.top_k,
            seed_rows=self._drafter.seed_rows,
            reserve=room + self.settings.most_nodes + 1,
        )
        last = len(first.positions) - 1
        token = first.rows.choice[last]
        self._drafter.observe(self._seed_outcome(first.positions, first.rows, token))
        seconds = self._start_seconds + time.perf_counter() - started
        self.trace.prefill = {
            "seconds": seconds,
            "first_token": token,
            "top2": [finite(float(x)) for x in first.rows.top2[last]],
            "rows": {
                "ids": first.rows.ids[last].tolist(),
                "probs": [finite(float(p)) for p in first.rows.probs[last]],
            },
        }
        _, ending = self._emit([token])
        # Keys reach into the prompt's text.
        tail = [known for known in self.request.text[-4:] if known >= 0]
        self._vocabulary.note({token, *tail, *self.trace.prefill["rows"]["ids"]})
        self._settle([token], ending)

    def steps(self) -> Iterator[Step]:
        """Decode to the end, one `Step` a pass."""
        with self._reporting():
            self.prefill()
            while not self._finished:
                yield self._step()

    @contextmanager
    def _reporting(self) -> Iterator[None]:
        """Whatever ends the run early is in the trace, which stays whole."""
        try:
            yield
        except BaseException as error:
            self._drop_unrecorded()
            if isinstance(error, GeneratorExit | KeyboardInterrupt):
                self.cancel()
            else:
                self._finish("context" if isinstance(error, ContextError) else "error", str(error))
            raise

    def cancel(self) -> None:
        """End the run where it stands, unless it has ended already."""
        self._finish("cancelled")

    def finish_all(self) -> Trace:
        """Decode to the end and return the trace."""
        for _ in self.steps():
            pass
        return self.trace

    # One pass -----------------------------------------------------------------------------------

    def _step(self) -> Step:
        request, target, drafter, budget = self.request, self.target, self._drafter, self._budget
        started = time.perf_counter()
        limit, limited_by = self._room()
        if limit and not self._alone and budget.drafts():
            tree = drafter.propose(request.text, limit, budget.floors())
            decision = budget.decide(tree)
        else:
            tree = CandidateTree.at(request.text)
            if not limit or self._alone:
                tree.reason = limited_by or "off"  # a near-tie is redone alone
            decision = budget.skip(tree)
        tree.ancestry()  # the mask's part of drafting; kept on the tree
        drafted = time.perf_counter()

        rows = target.verify(request, tree, top_k=self.settings.top_k)
        verified = time.perf_counter()

        path = accept(tree, rows.choice)
        candidates = [tree.token[row] for row in path[1:]] + [rows.choice[path[-1]]]
        candidates = self._guarded(candidates, path, rows)
        if request.processors:
            candidates = candidates[: request.processors.usable(path)]
        position, root = len(self.trace.token_ids), request.ids[-1]
        emitted, ending = self._emit(candidates)
        # The last token emitted becomes the next root, so its own row is not kept.
        target.commit(request, path[: len(emitted)])
        target.synchronize()  # else moving rows would be charged to the next pass
        path = path[: len(emitted) + 1]
        committed = time.perf_counter()

        learned = drafter.observe(self._outcome(tree, rows, path, emitted))
        observed = time.perf_counter()
        seconds = {
            "draft": drafted - started,
            "verify": verified - drafted,
            "commit": committed - verified,
            "observe": observed - committed,
        }
        budget.learn(decision, len(emitted), seconds)

        step = record_step(
            index=len(self.trace.steps),
            position=position,
            root=root,
            tree=tree,
            rows=rows,
            path=path,
            emitted=emitted,
            learned=learned,
            settings=self.settings,
            budget=decision.to_json(),
            seconds=seconds,
            memory=drafter.memory_entries(),
        )
        self.trace.steps.append(step)
        self._vocabulary.note_step(step, rows.ids)
        self._settle(emitted, ending)
        return step

    def _room(self) -> tuple[int, str | None]:
        """(deepest path that can still be emitted with its bonus token, what limits it to none)."""
        left = self.max_new_tokens - len(self.trace.token_ids) - 1
        context = self.target.context - 1 - self.request.root_position
        if min(left, context) > 0:
            return min(left, context), None
        return 0, "limit" if left <= 0 else "context"

    def _guarded(self, candidates: list[int], path: list[int], rows: Rows) -> list[int]:
        """Cut before the first row on the path whose top two are nearly tied; redo it alone."""
        was_alone, self._alone = self._alone, False
        guard = self.settings.near_tie_guard
        if not guard or was_alone or len(rows.choice) == 1:
            return candidates
        for place, row in enumerate(path):
            if rows.top2[row, 0] - rows.top2[row, 1] < guard:
                self._alone = True
                return candidates[:place]
        return candidates

    def _emit(self, tokens: list[int]) -> tuple[list[int], str | None]:
        """Add tokens to the answer up to its end. Returns (those that were added, what ended it).

        Text is needed here only to look for stop strings; else it is made outside the clock.
        """
        ids = self.trace.token_ids
        for count, token in enumerate(tokens, start=1):
            self.request.append([token])
            ids.append(token)
            stopped = bool(self._stop) and self._completes_stop(token)
            if self._stop_when is not None and self._stop_when(self.request.ids):
                stopped = True
            if token in self._eos:
                return tokens[:count], "eos"
            if stopped:
                return tokens[:count], "stop"
            if len(ids) >= self.max_new_tokens:
                return tokens[:count], "length"
        full = self.request.root_position >= self.target.context
        return tokens, "context" if full else None

    def _completes_stop(self, token: int) -> bool:
        """Add a token's text. Returns whether a stop string is complete with it."""
        assert self._detokenizer is not None  # stop strings need a tokenizer
        before = len(self.trace.text)
        self.trace.text += self._detokenizer.push(token)
        longest = max(map(len, self._stop))
        tail = self.trace.text[max(0, before - longest + 1) :] + self._detokenizer.held
        return any(stop in tail for stop in self._stop)

    def _settle(self, emitted: list[int], ending: str | None) -> None:
        """What the clock does not charge: the text of new tokens, and the end of the run."""
        if self._detokenizer is not None and not self._stop:
            for token in emitted:
                self.trace.text += self._detokenizer.push(token)
        if ending == "context":
            self._finish(
                ending, f"The answer fills the context of {self.target.context} positions."
            )
        elif ending:
            self._finish(ending)

    def _drop_unrecorded(self) -> None:
        """After a pass that failed half-way: the answer is what the recorded steps emitted."""
        count = sum(step.accepted_length for step in self.trace.steps)
        kept = self.trace.token_ids[: count + 1]
        self.trace.token_ids = kept
        if self._detokenizer is not None and not self._finished:
            self._detokenizer = Detokenizer(self.target.tokenizer)
            self.trace.text = "".join(map(self._detokenizer.push, kept))

    def _outcome(
        self, tree: CandidateTree, rows: Rows, path: list[int], emitted: list[int]
    ) -> Outcome:
        return Outcome(
            tree.contexts(),
            rows,
            path,
            emitted,
            path[max(len(emitted) - 1, 0)],
            len(self.trace.steps),
        )

    def _seed_outcome(self, positions: list[int], rows: Rows, token: int) -> Outcome:
        """The prompt's rows as an outcome: keys of prompt tokens, all of them accepted."""
        text = np.array([GAP, GAP, *self.request.text])  # so that the first rows have gaps before
        every = list(range(len(positions)))
        return Outcome(
            text[np.array(positions) + np.array([[2], [1], [0]])],
            rows,
            every,
            [token],
            every[-1],
            SEED_STEP,
        )

    # The trace ----------------------------------------------------------------------------------

    def _memory_state(self) -> dict[str, Any]:
        return {
            "entries": self._drafter.memory_entries(),
            "bytes": self._drafter.memory_bytes(),
        }

    def _finish(self, reason: str, message: str | None = None) -> None:
        if self._finished:
            return
        self._finished = True
        self.trace.finish, self.trace.message = reason, message
        if self._detokenizer is not None:
            self.trace.text += self._detokenizer.finish()
        self.trace.memory["end"] = self._memory_state()


def _check_memory(memory: PersistentMemory, target: Target) -> None:
    """Refuse a memory whose ids mean other tokens, or none."""
    if memory.vocabulary != target.vocabulary or (
        memory.tokenizer and target.tokenizer_id and memory.tokenizer != target.tokenizer_id
    ):
        raise MemoryMismatchError(
            f"This memory belongs to another model than {target.name}: start with an empty one."
        )
