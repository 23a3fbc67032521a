"""Every method gives the tokens of `generate(do_sample=False)`, whatever the model and state."""

from __future__ import annotations

import pytest
import torch

from recap.cost import CostCurve
from recap.decoding import Run, new_memory
from recap.drafters import METHODS
from recap.errors import ProcessorError, SettingsError
from recap.processors import RowProcessors, processors_from
from recap.settings import Settings
from tests.recap.reference import (
    METHOD_NAMES,
    expect_identical,
    generate,
    picture,
    tiny_target,
)

FAMILIES = ("qwen2_5_vl", "qwen2_5_vl-text", "llama", "qwen2")
SEEDS = range(25)
LENGTH = 24
FREE_ROWS = CostCurve(((1, 1e-3), (129, 1e-3)))


def target_of(family: str, seed: int, **changes):
    """Weights of varying scale: some outputs wander, some loop."""
    scale = (0.05, 0.08, 0.12, 0.2)[seed % 4]
    return tiny_target(family.removesuffix("-text"), seed, scale=scale, **changes)


def request_of(target, family: str, seed: int, text: str = "what is this"):
    """A request whose picture, size and prompt vary with the seed."""
    image = None
    if family == "qwen2_5_vl":
        image = picture(seed, 60 + 17 * (seed % 7), 60 + 23 * (seed % 5))
    return target.prepare(f"{text} {'abc' * (seed % 4)}", image)


def budget_of(method: str, seed: int) -> dict:
    """In turn: many nodes, as many as pay on this machine, and as pay where rows cost nothing."""
    if seed % 3 == 0:
        return {"settings": METHODS[method].settings(budget=80)}
    return {} if seed % 3 == 1 else {"cost": FREE_ROWS}


def test_the_registry_has_the_methods_that_are_tested():
    """A method that is added must be added to these tests."""
    assert tuple(METHODS) == METHOD_NAMES


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("seed", SEEDS)
def test_identical_cold_and_warm(family, seed):
    """Cold, then again with the memory of that run, then another prompt with both."""
    target = target_of(family, seed)
    wanted = generate(target, request_of(target, family, seed), LENGTH)
    other = generate(target, request_of(target, family, seed + 1, "and that"), LENGTH)
    for method in METHOD_NAMES:
        memory = new_memory(target)
        for expected, shift, text in (
            (wanted, 0, "what is this"),
            (wanted, 0, "what is this"),
            (other, 1, "and that"),
        ):
            request = request_of(target, family, seed + shift, text)
            budget = budget_of(method, seed)
            run = Run(target, request, method, memory=memory, max_new_tokens=LENGTH, **budget)
            expect_identical(run.finish_all(), expected)


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("seed", range(25, 33))
def test_identical_in_float64(family, seed):
    """In float64 no near-tie can hide behind rounding: equality is exact, cold and warm."""
    target = target_of(family, seed, dtype=torch.float64)
    wanted = generate(target, request_of(target, family, seed), LENGTH)
    for method in METHOD_NAMES:
        memory = new_memory(target)
        for _ in range(2):
            request = request_of(target, family, seed)
            budget = budget_of(method, seed)
            run = Run(target, request, method, memory=memory, max_new_tokens=LENGTH, **budget)
            assert run.finish_all().token_ids == wanted, method


def test_looping_output_gives_long_acceptances():
    """The tests above would prove little if nothing long were ever accepted."""
    longest = dict.fromkeys(METHOD_NAMES, 0)
    for seed in range(8):
        target = target_of("llama", seed)
        for method in METHOD_NAMES:
            budget = budget_of(method, 3 * (seed % 2) + 2 * (seed % 2 == 0))
            request = request_of(target, "llama", seed)
            run = Run(target, request, method, max_new_tokens=80, **budget)
            steps = run.finish_all().steps
            longest[method] = max(longest[method], *(step.accepted_length for step in steps))
    assert longest.pop("autoregressive") == 1
    assert all(length >= 5 for length in longest.values()), longest


@pytest.mark.parametrize("length", [1, 2, 64])
@pytest.mark.parametrize("method", METHOD_NAMES)
def test_length_is_exact(length, method):
    """The limit is met to the token, also inside an accepted run."""
    target = target_of("qwen2_5_vl", 3)
    wanted = generate(target, request_of(target, "qwen2_5_vl", 3), length)
    request = request_of(target, "qwen2_5_vl", 3)
    trace = Run(target, request, method, max_new_tokens=length).finish_all()
    assert len(trace.token_ids) == length
    assert trace.finish == "length"
    assert len(trace.token_ids) == 1 + sum(step.accepted_length for step in trace.steps)
    expect_identical(trace, wanted)


@pytest.mark.parametrize("method", METHOD_NAMES)
@pytest.mark.parametrize("family", ["qwen2_5_vl", "llama"])
def test_two_requests_interleaved_on_one_model(family, method):
    """Two requests with different pictures take turns; neither notices."""
    target = target_of(family, 5)
    wanted = [generate(target, request_of(target, family, s), LENGTH) for s in (11, 12)]
    memory = new_memory(target)
    runs = [
        Run(target, request_of(target, family, s), method, memory=memory, max_new_tokens=LENGTH)
        for s in (11, 12)
    ]
    passes = [run.steps() for run in runs]
    while passes:
        passes = [steps for steps in passes if next(steps, None) is not None]
    for run, expected in zip(runs, wanted, strict=True):
        expect_identical(run.trace, expected)


@pytest.mark.parametrize("method", METHOD_NAMES)
def test_eos_ends_the_answer_inside_an_accepted_run(method):
    """Any EOS id ends the answer; what was accepted behind it is cut."""
    inside = 0
    for seed in range(8):
        target = target_of("llama", seed)
        free = generate(target, request_of(target, "llama", seed), 40)
        for eos in dict.fromkeys(free[15:30:6]):
            ends = sorted({eos, 7})
            target.eos = frozenset(ends)
            wanted = generate(target, request_of(target, "llama", seed), 40, eos_token_id=ends)
            memory = new_memory(target)
            for _ in range(2):  # warm the second time, so that runs are long
                request = request_of(target, "llama", seed)
                run = Run(target, request, method, memory=memory, max_new_tokens=40)
                trace = run.finish_all()
                expect_identical(trace, wanted)
                if wanted[-1] in ends:
                    assert trace.finish == "eos"
                last = trace.steps[-1] if trace.steps else None
                inside += bool(last and last.emitted[-1].source != "bonus")
    assert inside or method in ("autoregressive", "prompt-lookup")


@pytest.mark.parametrize("method", METHOD_NAMES)
@pytest.mark.parametrize("size", [1, 2, 3])
def test_stop_strings_end_the_answer_as_generate_does(method, size):
    """A stop string may lie inside a run and across the borders of tokens."""
    stopped = 0
    for seed in range(8):
        target = target_of("qwen2", seed)
        free = generate(target, request_of(target, "qwen2", seed), 50)
        text = target.tokenizer.decode(free)
        # generate() compares spellings of tokens: a lone byte has none, and a special token,
        # which is no part of our text, has one. So plain ASCII, and no special tokens.
        if any(token >= 256 for token in free):
            continue
        places = range(15, len(text) - size + 1)
        stops = [text[i : i + size] for i in places if text[i : i + size].isascii()][:2]
        if not stops:
            continue
        wanted = generate(
            target,
            request_of(target, "qwen2", seed),
            50,
            stop_strings=stops,
            tokenizer=target.tokenizer,
        )
        request = request_of(target, "qwen2", seed)
        trace = Run(target, request, method, max_new_tokens=50, stop=stops).finish_all()
        expect_identical(trace, wanted)
        stopped += trace.finish == "stop"
    assert stopped


@pytest.mark.parametrize("method", METHOD_NAMES)
@pytest.mark.parametrize(
    "penalties",
    [
        {"repetition_penalty": 1.3},
        {"no_repeat_ngram_size": 3},
        {"repetition_penalty": 0.8, "min_new_tokens": 12, "bad_words_ids": [[65], [66, 67]]},
        {"exponential_decay_length_penalty": (10, 1.05), "suppress_tokens": [70, 71, 72]},
        {"begin_suppress_tokens": [70, 80], "sequence_bias": {(75,): 1.5}, "min_length": 40},
    ],
)
def test_penalties_of_the_generation_config_are_applied_to_each_row(method, penalties):
    """Greedy choices after the processors, each row on its own text."""
    for seed in range(2):
        target = target_of("qwen2_5_vl", seed)
        config = target.model.generation_config
        config.update(eos_token_id=[3], **penalties)
        target.eos = frozenset([3])
        request = request_of(target, "qwen2_5_vl", seed)
        wanted = generate(target, request_of(target, "qwen2_5_vl", seed), LENGTH)
        processors = processors_from(config, request.prompt_length, device="cpu")
        run = Run(target, request, method, processors=processors, max_new_tokens=LENGTH)
        expect_identical(run.finish_all(), wanted)


def test_processors_that_cannot_run_per_row_are_refused_by_name():
    """State between calls cannot be kept for every branch of a tree."""

    class Counting:
        def __call__(self, ids, scores):
            return scores

    with pytest.raises(ProcessorError, match="Counting"):
        RowProcessors([Counting()])
    config = target_of("llama", 0).model.generation_config
    config.guidance_scale = 2.0
    with pytest.raises(ProcessorError, match="guidance_scale"):
        processors_from(config, 3, device="cpu")


@pytest.mark.parametrize("method", METHOD_NAMES)
def test_near_tie_guard_changes_no_token(method):
    """Rows under the threshold are redone alone; here that is every second row or so."""
    target = target_of("llama", 2)
    wanted = generate(target, request_of(target, "llama", 2), LENGTH)
    settings = METHODS[method].settings(near_tie_guard=0.5, budget=63)
    request = request_of(target, "llama", 2)
    trace = Run(target, request, method, settings=settings, max_new_tokens=LENGTH).finish_all()
    expect_identical(trace, wanted)
    assert len(trace.token_ids) == 1 + sum(step.accepted_length for step in trace.steps)
    if method == "recap":
        assert any(step.budget["reason"] == "off" for step in trace.steps)
        for step in trace.steps[:-1]:  # whatever was kept of a tree pass had a clear margin
            if len(step.nodes):
                assert all(e.top2[0] - e.top2[1] >= 0.5 for e in step.emitted)


@pytest.mark.parametrize(
    "settings",
    [
        Settings(budget=5),
        Settings(budget=63),
        Settings(),
        Settings(budget=256, max_depth=32, width=32, top_k=32),
        Settings(fusion="back-off"),
        Settings(alpha=0, beta=0),
        Settings(orders=(2,)),
        Settings(orders=(1, 3), suffix=False, seed_prompt=False),
        Settings(blend=0.5),
        Settings(carry=0.5),
        Settings(runner_up=0.1),
        Settings(top_k=1, width=1),
        Settings(persistent_capacity=64, local_capacity=64),
        Settings(suffix_occurrence="earliest", suffix_min_match=1, suffix_length=16),
    ],
)
def test_no_setting_changes_a_token(settings):
    """Losslessness depends on no setting."""
    for method in ("recap", "token-recycling", "prompt-lookup"):
        target = target_of("qwen2_5_vl", 1)
        wanted = generate(target, request_of(target, "qwen2_5_vl", 1), LENGTH)
        memory = new_memory(target)
        for _ in range(2):
            request = request_of(target, "qwen2_5_vl", 1)
            run = Run(
                target, request, method, settings=settings, memory=memory, max_new_tokens=LENGTH
            )
            expect_identical(run.finish_all(), wanted)


def test_sampling_is_refused():
    """Greedy only, and it says so."""
    target = target_of("llama", 0)
    with pytest.raises(SettingsError, match="greedy"):
        Run(target, request_of(target, "llama", 0), do_sample=True)
