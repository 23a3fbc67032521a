"""Samples, their order, and going on after a crash; on small random models."""

from __future__ import annotations

import gc
import json
from dataclasses import replace

import numpy as np
import pytest

from recap.bench.contenders import Baseline, make_contender
from recap.bench.journal import Journal, partial_path
from recap.bench.runner import rotated, run_bench
from recap.bench.sets import Item
from recap.bench.spec import parse_spec, parse_specs
from recap.decoding import Run
from recap.errors import RecapError
from recap.targets import load_target
from recap.targets.attention import TREE_ATTENTION
from tests.recap.reference import expect_identical, generate, picture, tiny_target


@pytest.fixture(autouse=True, scope="module")
def _frozen():
    """As the command line does it: garbage is collected before every sample."""
    gc.freeze()
    yield
    gc.unfreeze()


LABELS = (
    "autoregressive,recap@16,recap-plus@16,token-recycling@8,prompt-lookup,"
    "transformers-greedy,transformers-prompt-lookup"
)


def items_of(count: int, *, pictures: bool = True) -> list[Item]:
    """Prompts of two categories, each with a picture of its own."""
    return [
        Item(
            f"item-{n}",
            f"go go {n}",
            "ab"[n % 2],
            picture=(lambda seed=n: picture(seed)) if pictures else None,
        )
        for n in range(count)
    ]


def bench(target, items, journal, specs=LABELS, *, warm=True, repeats=1, **options):
    contenders = [make_contender(target, spec, warm=warm) for spec in parse_specs(specs)]
    journal.restore(contenders)
    return run_bench(
        target, contenders, items, journal, max_new_tokens=24, repeats=repeats, **options
    )


def untimed(results):
    """What two runs of the same benchmark must agree on."""
    return [
        (r.id, r.category, {
            label: [(s.token_ids, s.lengths, s.rows, s.matched, s.first_tokens) for s in samples]
            for label, samples in r.samples.items()
        })
        for r in results
    ]  # fmt: skip


@pytest.mark.parametrize("family", ["qwen2_5_vl", "llama"])
def test_every_method_gives_the_tokens_of_generate(family):
    """Drafters and baselines alike, and each sample's parts fit each other."""
    target = tiny_target(family, 6)  # its answers hold no placeholder
    items = items_of(2, pictures=family == "qwen2_5_vl")
    for item, result in zip(items, bench(target, items, Journal(None, {}, 2)), strict=True):
        request = target.prepare(item.prompt, item.open_picture())
        wanted = generate(target, request, 24)
        assert list(result.samples) == LABELS.split(",")
        for label, (sample,) in result.samples.items():
            assert sample.token_ids == wanted, label
            assert sample.first_tokens + sum(sample.lengths) == len(wanted)
            assert sample.prompt_tokens == len(request.ids)
            assert 0 < sample.prefill_seconds < sample.seconds
            if sample.rows is not None:
                assert len(sample.rows) == len(sample.lengths) == len(sample.pass_seconds)
                assert sample.matched == sum(sample.lengths) - len(sample.lengths)
        plain = result.samples["autoregressive"][0]
        assert plain.rows == plain.lengths == [1] * 23


def test_the_clock_is_the_runs_own():
    """What a sample says of time is what the trace says of it."""
    target = tiny_target("llama", 1)
    [result] = bench(target, items_of(1, pictures=False), Journal(None, {}, 1), "recap@8")
    sample = result.samples["recap@8"][0]
    request = target.prepare("go go 0")
    trace = Run(target, request, "recap", settings=parse_spec("recap@8").settings,
                max_new_tokens=24).finish_all()  # fmt: skip
    assert trace.token_ids == sample.token_ids
    assert len(sample.lengths) == trace.passes
    spent = sample.prefill_seconds + sample.draft_seconds + sum(sample.pass_seconds)
    assert sample.seconds == pytest.approx(spent)


def test_a_baseline_leaves_the_model_as_it_was():
    """Attention and generation config are a user's while it runs, and ours again afterwards."""
    target = load_target("tiny-random", device="cpu")
    model = target.model
    model.set_attn_implementation(TREE_ATTENTION)
    model.generation_config.repetition_penalty = 1.7
    config = model.generation_config
    request = target.prepare("go", picture(1))
    plain = Run(target, request.twin(), "autoregressive", max_new_tokens=24).finish_all()
    for options in ({}, {"prompt_lookup_num_tokens": 4}):
        sample = Baseline(target, "x", options).run(request, 24)
        expect_identical(plain, sample.token_ids)  # the penalty was neutral for both
        assert model.generation_config is config
        assert model.config._attn_implementation == TREE_ATTENTION
        assert model.config.get_text_config()._attn_implementation == TREE_ATTENTION


def test_cold_forgets_and_warm_remembers():
    """The same prompt twice: only a warm memory makes the second one shorter."""
    target = tiny_target("llama", 6)
    items = [Item("a", "go"), Item("b", "go")]
    passes = {}
    for warm in (False, True):
        results = bench(target, items, Journal(None, {}, 2), "recap-plus@16", warm=warm)
        passes[warm] = [len(r.samples["recap-plus@16"][0].lengths) for r in results]
    assert passes[False][0] == passes[False][1] == passes[True][0]
    assert passes[True][1] < passes[True][0]


def test_repeats_know_nothing_of_each_other():
    """Each repeat of a prompt starts with the memory of the prompts before it."""
    target = tiny_target("llama", 3)
    items = items_of(3, pictures=False)
    once = bench(target, items, Journal(None, {}, 3), "recap-plus@16")
    thrice = bench(target, items, Journal(None, {}, 3), "recap-plus@16", repeats=3)
    for single, several in zip(untimed(once), untimed(thrice), strict=True):
        for label, samples in several[2].items():
            assert samples == single[2][label] * 3


def test_without_persistence_warm_is_cold():
    """The switch of the ablation."""
    target = tiny_target("llama", 6)
    items = [Item("a", "go"), Item("b", "go")]
    label = "recap-plus@16:persist=off"
    results = bench(target, items, Journal(None, {}, 2), label)
    first, second = (r.samples[label][0] for r in results)
    assert (first.lengths, first.rows) == (second.lengths, second.rows)


def test_the_order_rotates():
    """Everyone comes first equally often, and follows more than one other."""
    names = list("abcd")
    turns = [rotated(names, turn) for turn in range(8)]
    assert [order[0] for order in turns[:4]] == names
    assert sorted(order[0] for order in turns[4:]) == names
    assert all(sorted(order) == names for order in turns)
    followed = {order[order.index("b") - 1] for order in turns if order[0] != "b"}
    assert len(followed) > 1
    assert rotated(names[:1], 5) == ["a"]


def test_what_cannot_be_asked_is_skipped():
    """A picture for a model that reads text only; the others are asked."""
    target = tiny_target("llama", 1)
    items = [*items_of(1), *items_of(3, pictures=False)[1:]]
    reasons = []
    results = bench(
        target, items, Journal(None, {}, 3), "recap@8",
        skipped=lambda item, reason: reasons.append((item.id, reason)),
    )  # fmt: skip
    assert [result.id for result in results] == ["item-1", "item-2"]
    assert reasons[0][0] == "item-0"
    assert "reads text only" in reasons[0][1]


class Killed(BaseException):
    """The process dies."""


def killed_after(count: int):
    """A `progress` that dies after so many samples."""
    seen = []

    def progress(label: str) -> None:
        seen.append(label)
        if len(seen) == count:
            raise Killed

    return progress


@pytest.mark.parametrize("warm", [True, False])
def test_killed_half_way_and_resumed(tmp_path, warm):
    """The same tokens and passes as without the crash: memories are where they were."""
    target = tiny_target("qwen2_5_vl", 3)
    items = items_of(5)
    items[1] = replace(items[1], prompt=" ")  # cannot be asked, before and after the crash
    specs = "recap@16,recap-plus@16,token-recycling@8,transformers-greedy"
    path = partial_path(str(tmp_path / "out.json"))
    whole = bench(target, items, Journal(None, {}, 5), specs, warm=warm)
    journal = Journal(path, {"model": "m"}, 5)
    with pytest.raises(Killed):
        # Four prompts of five methods: in the middle of the third that can be asked.
        bench(target, items, journal, specs, warm=warm, progress=killed_after(12))
    journal.close()
    with path.open("a") as file:
        file.write('{"id": "torn li')  # what a crash leaves of a line
    assert len(path.read_text().splitlines()) == 1 + 3 + 1
    memories = sorted(p.name for p in tmp_path.glob("*.npz"))
    assert memories == (["out.json.partial.memories-3.npz"] if warm else [])

    with pytest.raises(RecapError, match="--resume"):
        Journal(path, {"model": "m"}, 5)
    with pytest.raises(RecapError, match="model differ"):
        Journal(path, {"model": "other"}, 5, resume=True)
    journal = Journal(path, {"model": "m"}, 5, resume=True)
    assert journal.finished == 3
    resumed = bench(target, items, journal, specs, warm=warm)
    journal.close()
    assert untimed(resumed) == untimed(whole)
    assert [r.seconds for r in resumed[0].samples["recap@16"]] != [0]
    assert not list(tmp_path.glob("*.npz"))
    assert not list(tmp_path.glob("*.tmp"))

    again = Journal(path, {"model": "m"}, 5, resume=True)
    assert untimed(again.results) == untimed(whole)
    assert again.results == resumed  # times included: nothing was measured again
    again.close()


def test_any_nested_state_survives(tmp_path):
    """Numbers, texts, lists, arrays, whole-number keys, and dictionaries with nothing in them."""
    state = {"n": 1, "text": "x", "list": [0.5, 2], "orders": {1: {"ids": np.arange(3)}, 2: {}}}

    class Keeper:
        label = "recap@8:orders=1+2"
        restored = None

        def state(self):
            return state

        def restore(self, found):
            self.restored = found

    path, keeper = tmp_path / "x.partial.jsonl", Keeper()
    journal = Journal(path, {}, 2)
    journal.append(None, [keeper])
    journal.close()
    journal = Journal(path, {}, 2, resume=True)
    journal.restore([keeper])
    journal.close()
    ids = keeper.restored["orders"][1].pop("ids")
    assert ids.tolist() == [0, 1, 2]
    assert keeper.restored == {**state, "orders": {1: {}, 2: {}}}


def test_a_finished_file_is_no_obstacle(tmp_path):
    """A new run begins anew."""
    path = tmp_path / "x.partial.jsonl"
    target = tiny_target("llama", 1)
    items = items_of(1, pictures=False)
    for _ in range(2):
        journal = Journal(path, {}, 1)
        assert journal.finished == 0
        bench(target, items, journal, "recap@8")
        journal.close()
        assert len(path.read_text().splitlines()) == 2


def test_an_unfinished_run_of_any_length_is_an_obstacle(tmp_path):
    """Whatever the new run's own number of prompts; what is no journal is not wiped either."""
    path = tmp_path / "x.partial.jsonl"
    journal = Journal(path, {}, 5)
    for _ in range(3):
        journal.append(None, [])
    journal.close()
    held = path.read_text()
    for total in (1, 3, 4, 5, 9):
        with pytest.raises(RecapError, match="3 of 5 prompts"):
            Journal(path, {}, total)
        assert path.read_text() == held
    for text in ("notes\n", "[]\n", '{"version": 1}\nnull\n'):
        path.write_text(text)
        with pytest.raises(RecapError, match="in the way"):
            Journal(path, {}, 1)
        assert path.read_text() == text


def test_damaged_files_are_named(tmp_path):
    """Lines that are no results, memories that are missing."""
    path = tmp_path / "x.partial.jsonl"
    header = json.dumps({"version": 1, "total": 2}) + "\n"
    path.write_text(header + '{"id": "a"}\n')
    with pytest.raises(RecapError, match="damaged"):
        Journal(path, {}, 2, resume=True)
    path.write_bytes(header.encode() + b"\xff\n")
    for resume in (True, False):
        with pytest.raises(RecapError, match="damaged"):
            Journal(path, {}, 2, resume=resume)
    result = {"id": "a", "category": "x", "samples": {}}
    path.write_text(header + json.dumps(result) + "\n")
    journal = Journal(path, {}, 2, resume=True)
    target = tiny_target("llama", 1)
    contender = make_contender(target, parse_spec("recap"), warm=True)
    for damage in (None, b"", b"PK\x03\x04", b"PK\x03\x04" + bytes(100), b"no archive"):
        if damage is not None:
            (tmp_path / "x.partial.memories-1.npz").write_bytes(damage)
        with pytest.raises(RecapError, match=r"memories-1\.npz"):
            journal.restore([contender])
    journal.close()
