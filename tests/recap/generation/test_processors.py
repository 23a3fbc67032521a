"""Logits processors and constraints: applied to every row as `generate` applies them to its one."""

from __future__ import annotations

import pytest
import torch
from transformers import (
    LogitsProcessor,
    LogitsProcessorList,
    RepetitionPenaltyLogitsProcessor,
    SuppressTokensLogitsProcessor,
)

import recap
from recap.drafters import METHODS
from recap.processors import RowProcessors
from recap.tree import CandidateTree
from tests.recap.generation.calls import LENGTH, both


def test_processors_are_applied(target, inputs):
    """Those of the configuration and the caller's own."""
    own = LogitsProcessorList([RepetitionPenaltyLogitsProcessor(0.7)])
    plain, _ = both(target, inputs)
    for options in (
        {"repetition_penalty": 1.3},
        {"no_repeat_ngram_size": 2, "eos_token_id": [3], "min_new_tokens": 9},
        {"logits_processor": own},
        {"prefix_allowed_tokens_fn": lambda _, ids: [(int(ids[-1]) * 7 + i) % 200 for i in (1, 2)]},
    ):
        alone, ours = both(target, inputs, **options)
        assert torch.equal(alone, ours), options
        assert not torch.equal(plain, ours), options


def along(answer, start, ids):
    """What a trie of one answer allows behind `ids`: off the answer, and before it, nothing."""
    new = ids[start:].tolist()
    on_it = len(ids) >= start and new == answer[: len(new)]
    return [answer[len(new)]] if on_it else []


def test_a_constraint_may_raise_where_the_answer_does_not_come(target, inputs):
    """Speculative rows lie off the only texts that a trie allows, and prompt rows before them."""
    start = inputs["input_ids"].shape[1]
    free, _ = both(target, inputs)
    answer = free[0, start:].tolist()
    answer[20:24] = [7, 9, 7, 9]  # other than the model and its memory would have it
    asked = []

    def allowed(_, ids):
        asked.append(along(answer, start, ids))
        return asked[-1]

    options = {"max_new_tokens": LENGTH, "do_sample": False, "prefix_allowed_tokens_fn": allowed}
    alone = target.model.generate(**inputs, **options)
    assert alone[0, start:].tolist() == answer
    assert all(asked)
    for method in METHODS:
        ours = target.model.generate(
            **inputs, **options, custom_generate=recap.generate, method=method
        )
        assert torch.equal(alone, ours), method
    assert not all(asked), "nothing was tried off the answer"


def test_a_constraint_that_raises_on_the_answer_is_heard(target, inputs):
    """As in `generate`: with its own error, behind the same tokens."""
    start = inputs["input_ids"].shape[1]
    free, _ = both(target, inputs)
    for dead in (0, 1, 17):
        answer = free[0, start : start + dead].tolist()
        fails = {"prefix_allowed_tokens_fn": lambda _, ids, it=answer: it[len(ids) - start :][:1]}
        with pytest.raises(ValueError, match="empty list"):
            target.model.generate(**inputs, max_new_tokens=LENGTH, do_sample=False, **fails)
        for method in METHODS:
            steps = []
            with pytest.raises(ValueError, match="empty list"):
                target.model.generate(
                    **inputs,
                    max_new_tokens=LENGTH,
                    do_sample=False,
                    **fails,
                    custom_generate=recap.generate,
                    method=method,
                    on_step=steps.append,
                )
            emitted = [token.token for step in steps for token in step.emitted]
            assert emitted == answer[1:], method
            # Ended before it comes to that row, nothing is wrong.
            if dead:
                alone, ours = both(target, inputs, max_new_tokens=dead, **fails)
                assert torch.equal(alone, ours)


class Elsewhere(LogitsProcessor):
    """Adds a tensor that lies on a device of its own."""

    stateless = True

    def __call__(self, input_ids, scores):
        assert input_ids.device == scores.device == torch.device("meta")
        return scores + torch.zeros((), device="meta")[None]


def test_processors_run_where_the_ids_are():
    """transformers makes some of them there, and a model may have its head on another device."""
    rows = RowProcessors([Elsewhere()], "meta")
    assert rows.apply([1, 2], CandidateTree(2), torch.zeros(1, 5)).device.type == "meta"
    assert rows.usable([0]) == 1
    assert rows.apply_prompt([1, 2], [0, 1], torch.zeros(2, 5)).device.type == "meta"


def test_prompt_rows_are_not_processed():
    """But the last one, whose choice is the answer's first token."""
    rows = RowProcessors([SuppressTokensLogitsProcessor([3])])
    logits = torch.zeros(2, 5)
    assert rows.apply_prompt([1, 2], [0, 1], logits).isinf().any(-1).tolist() == [False, True]
    assert rows.apply_prompt([1, 2, 4], [0, 1], logits).equal(logits)
    assert not logits.any()
