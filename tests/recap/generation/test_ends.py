"""What ends an answer: EOS, limits, criteria, the context."""

from __future__ import annotations

import torch
from transformers import (
    MaxLengthCriteria,
    MaxTimeCriteria,
    StoppingCriteria,
    StoppingCriteriaList,
    StopStringCriteria,
)

import recap
from recap import generation
from recap.decoding import MAX_NEW_TOKENS
from recap.targets import TINY, make_target
from tests.recap.generation.calls import LENGTH, both


def test_eos_of_the_call_ends_the_answer(target, inputs):
    """Whether the model's configuration knows it or not, also inside an accepted run."""
    free, _ = both(target, inputs)
    for eos in dict.fromkeys(free[0, inputs["input_ids"].shape[1] + 12 :: 7].tolist()):
        alone, ours = both(target, inputs, eos_token_id=[eos, 1])
        assert torch.equal(alone, ours)
        assert ours[0, -1] in (eos, 1)
        assert ours.shape[1] < free.shape[1]


def test_max_length_is_met(target, inputs):
    """`max_length` counts the prompt."""
    length = inputs["input_ids"].shape[1] + 5
    alone, ours = both(target, inputs, max_new_tokens=None, max_length=length)
    assert torch.equal(alone, ours)
    assert ours.shape[1] == length


def test_the_shortest_of_several_limits_counts():
    """Whatever their order, and one token comes where the prompt is as long as that already."""
    ids = torch.tensor([[1, 2, 3, 4]])
    for limits, most in (([9, 7], 3), ([7, 9], 3), ([10**9], MAX_NEW_TOKENS), ([4, 9], 1)):
        criteria = StoppingCriteriaList(MaxLengthCriteria(limit) for limit in limits)
        assert generation._ends(criteria, ids) == (most, frozenset(), None)


def test_a_limit_beyond_any_context_is_no_error():
    """`max_length` may be as large as it likes: EOS, or the context, ends the answer first."""
    target = make_target(TINY["llama"].make(2))
    inputs = {"input_ids": torch.tensor([[5, 9, 5, 9, 5]])}
    free, _ = both(target, inputs)
    options = {"max_new_tokens": None, "max_length": 10**8, "eos_token_id": [int(free[0, 20])]}
    alone, ours = both(target, inputs, **options)
    assert torch.equal(alone, ours)


class AfterTwo(StoppingCriteria):
    """Ends when a token has come a second time; remembers what it was asked."""

    def __init__(self, start):
        self.start = start
        self.asked = []

    def __call__(self, input_ids, scores, **kwargs):
        new = input_ids[0, self.start :].tolist()
        self.asked.append(new)
        return torch.tensor([new.count(new[-1]) >= 4])


def test_stopping_criteria_are_asked_after_each_token(target, inputs):
    """The same texts in the same order as in `generate`, and no more of them."""
    start = inputs["input_ids"].shape[1]
    criteria = [AfterTwo(start), AfterTwo(start)]
    options = {"max_new_tokens": LENGTH, "do_sample": False, "pad_token_id": 0}
    alone = target.model.generate(
        **inputs, **options, stopping_criteria=StoppingCriteriaList(criteria[:1])
    )
    ours = target.model.generate(
        **inputs,
        **options,
        stopping_criteria=StoppingCriteriaList(criteria[1:]),
        custom_generate=recap.generate,
    )
    assert torch.equal(alone, ours)
    assert alone.shape[1] < start + LENGTH
    assert criteria[0].asked == criteria[1].asked


def test_stop_strings_and_time_are_criteria(target, inputs):
    """A criterion of transformers' own, built by the caller since no tokenizer arrives."""
    free, _ = both(target, inputs)
    text = target.tokenizer.decode(free[0, inputs["input_ids"].shape[1] + 8 :])
    stop = next(text[i : i + 2] for i in range(len(text)) if text[i : i + 2].isascii())
    criteria = StoppingCriteriaList([StopStringCriteria(target.tokenizer, [stop])])
    alone, ours = both(target, inputs, stopping_criteria=criteria)
    assert torch.equal(alone, ours)
    assert ours.shape[1] < free.shape[1]
    criteria = StoppingCriteriaList([MaxTimeCriteria(0.0)])
    alone, ours = both(target, inputs, stopping_criteria=criteria)
    assert torch.equal(alone, ours)
    assert ours.shape[1] == inputs["input_ids"].shape[1] + 1


def test_the_end_of_the_context_ends_the_answer(caplog):
    """With a warning: up to there the ids are those of `generate`."""
    target = make_target(TINY["llama"].make(max_position_embeddings=32))
    alone, ours = both(target, {"input_ids": torch.arange(20, 40)[None]}, max_new_tokens=30)
    assert ours.shape[1] == 33  # the last token needs no position of its own
    assert torch.equal(alone[:, :33], ours)
    assert "context of 32" in caplog.text
