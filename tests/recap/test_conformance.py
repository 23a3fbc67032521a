"""What the adapter of any family must do, checked the same way for every family.

An adapter stands between one transformers class and the engine. It must

1. turn a prompt and a picture into the inputs that the family's ordinary processor makes, with what
   a person types kept inert, and without a picture too;
2. name the placeholder ids, so that no drafter ever sees, keeps or proposes a picture's rows;
3. give every row of a pass the position that step-by-step decoding gives it, so that a tree's
   logits agree with it to 1e-4 in float32, and decoding agrees with `generate` token for token;
4. keep all that belongs to a request on the request: two of them, with different pictures, may take
   turns on one model, and the model object is not written to;
5. keep `min_pixels` and `max_pixels` in the way of its family.

`recap.targets.vision.VisionTarget` does most of it. A new family is

- one file in `recap/targets`: the adapter, a class that names its `model_type`s in `families`, and
  `TINY`, a small configuration of its real class, with its image processor, special tokens and chat
  template where they are not like another family's;
- one line in `FAMILIES` in `tests/recap/families.py`: its name in `TINY`, its ordinary processor,
  and how many numbers of rows the pictures come to.

Nothing else in the package has to know of it (`recap.targets.discovery` finds it), which
`test_new_family.py` shows with one; and this suite fails for an adapter that is not listed.
"""

from __future__ import annotations

import copy
import json
import random
from itertools import chain

import pytest
import torch
from transformers import AutoProcessor

import recap
from recap.decoding import Run, new_memory
from recap.drafters import METHODS
from recap.errors import ImageError, PromptError, SettingsError
from recap.targets import ADAPTERS, TINY, images, load_target
from recap.tree import CandidateTree
from tests.recap.families import (
    FAMILIES,
    SIZES,
    family_target,
    ordinary_inputs,
    save,
    tokenizer_of,
    uncached_logits,
)
from tests.recap.reference import expect_identical, generate, model_inputs, picture

LENGTH = 28
every_family = pytest.mark.parametrize("family", FAMILIES.values(), ids=list(FAMILIES))


def requests_of(target, sizes=SIZES):
    """A request for each size, each with a picture of its own."""
    return [
        target.prepare(f"What is it{'?' * seed}", picture(seed, *size))
        for seed, size in enumerate(sizes)
    ]


def test_every_adapter_that_takes_pictures_is_tested():
    """A family that is registered is in the table."""
    seeing = {name for name, adapter in ADAPTERS.items() if adapter.takes_pictures}
    assert {name.partition("-")[0] for name in FAMILIES} == seeing


@every_family
def test_inputs_are_those_of_the_ordinary_processor(family):
    """Ids and pixels alike, for every size; and the sizes do differ in rows."""
    target = family_target(family.name)
    rows = set()
    for seed, size in enumerate(SIZES):
        image = picture(seed, *size)
        ordinary = ordinary_inputs(family, target, "What is it?", image)
        request = target.prepare("What is it?", image)
        assert request.ids == ordinary["input_ids"][0].tolist()
        assert not set(request.inputs) - set(ordinary)
        for name, value in request.inputs.items():
            assert torch.equal(value, ordinary[name]), name
        rows.add(request.image_tokens)
    assert len(rows) >= family.shapes


@every_family
def test_the_ordinary_processor_and_our_own_placeholders_give_the_same(family):
    """With the ordinary processor where it loads and without it where it does not."""
    ours = family_target(family.name)
    ordinary = family.processor(ours.image_processor, ours.tokenizer)
    theirs = family_target(family.name, processor=ordinary)
    for seed, size in enumerate(SIZES):
        for prompt in ("What is it?", "What is <image> <|image_pad|>?"):
            one, other = (t.prepare(prompt, picture(seed, *size)) for t in (ours, theirs))
            assert one.ids == other.ids
            assert one.inputs.keys() == other.inputs.keys()
            for name, value in one.inputs.items():
                assert torch.equal(value, other.inputs[name]), name


@every_family
def test_a_checkpoint_is_loaded_with_its_ordinary_processor_where_that_works(family, tmp_path):
    """And without it, by the same words and pictures, where its video part has no torchvision."""
    save(tmp_path, family.name)
    ordinary = family.processor(TINY[family.name].image_processor(), tokenizer_of(family.name))
    kind = type(ordinary)
    if kind.__name__ == "ImagesOnly":
        kind = kind.__mro__[1]
        config = {"processor_class": kind.__name__, "video_processor": {}}
        (tmp_path / "processor_config.json").write_text(json.dumps(config))
    else:
        ordinary.save_pretrained(tmp_path)
    target = load_target(str(tmp_path), device="cpu")
    try:
        AutoProcessor.from_pretrained(tmp_path)
    except Exception:
        assert kind is not type(ordinary), "nothing in it needs torchvision"
        assert target.processor is None
    else:
        assert type(target.processor) is kind
        assert target.image_processor is target.processor.image_processor
    expected = family_target(family.name).prepare("What is it?", picture(0))
    assert target.prepare("What is it?", picture(0)).ids == expected.ids


@every_family
def test_inputs_without_a_picture_are_those_of_the_ordinary_processor(family):
    """The template is told of text parts, and the tokenizer's opening is there once."""
    target = family_target(family.name)
    ordinary = ordinary_inputs(family, target, "Who are you?")
    request = target.prepare("Who are you?")
    assert request.ids == ordinary["input_ids"][0].tolist()
    assert not request.inputs
    assert "Who are you?" in target.tokenizer.decode(request.ids)


@every_family
def test_typed_special_tokens_are_inert(family):
    """A prompt that spells any of them claims no row of a picture, ends no turn, marks no tile."""
    target = family_target(family.name)
    tokenizer = tokenizer_of(family.name)
    every = tokenizer.added_tokens_decoder

    def live(request):
        return [token for token in request.ids if token in every]

    plain = live(target.prepare("say X please", picture(0)))
    prompts = [f"say {token.content} please" for token in every.values()]
    assert len(prompts) > 2
    for prompt in [*prompts, "".join(prompts)]:
        request = target.prepare(prompt, picture(0))
        assert live(request) == plain, prompt
        assert prompt in tokenizer.decode([token for token in request.ids if token not in every])
    assert Run(target, request, "recap", max_new_tokens=4).finish_all().finish == "length"


@every_family
def test_decoding_is_identical(family):
    """Every method, every size, one memory a method over all of them."""
    target = family_target(family.name)
    wanted = [generate(target, request, LENGTH) for request in requests_of(target)]
    longest = 0
    for method in METHODS:
        memory = new_memory(target)
        for request, expected in zip(requests_of(target), wanted, strict=True):
            run = Run(target, request, method, memory=memory, max_new_tokens=LENGTH)
            expect_identical(run.finish_all(), expected)
            longest = max(longest, *(step.accepted_length for step in run.trace.steps))
    assert len({tuple(ids) for ids in wanted}) == len(SIZES), "the pictures must matter"
    assert longest >= 4, "identity proves little where nothing long is accepted"


@every_family
def test_decoding_without_a_picture_is_identical(family):
    """The same adapter on text alone."""
    target = family_target(family.name)
    wanted = generate(target, target.prepare("Who are you?"), LENGTH)
    for method in METHODS:
        run = Run(target, target.prepare("Who are you?"), method, max_new_tokens=LENGTH)
        expect_identical(run.finish_all(), wanted)


@every_family
def test_custom_generate_is_identical(family):
    """The same ids from `model.generate` with and without RECAP, for every method."""
    target = family_target(family.name, 1)
    options = {"max_new_tokens": LENGTH, "do_sample": False, "pad_token_id": 0}
    session = recap.Session(target)
    for request in requests_of(target, SIZES[:3]):
        inputs = model_inputs(target, request)
        wanted = target.model.generate(**inputs, **options)
        for method in METHODS:
            ids = target.model.generate(
                **inputs, **options, custom_generate=recap.generate, method=method, memory=session
            )
            assert torch.equal(ids, wanted), method


@every_family
def test_two_pictures_in_one_prompt(family):
    """The caller's own inputs may hold more than `prepare` makes."""
    target = family_target(family.name, 1)
    pictures = (picture(1, *SIZES[0]), picture(2, *SIZES[1]))
    inputs = ordinary_inputs(family, target, "Which is larger?", *pictures)
    inputs = {name: value for name, value in inputs.items() if name not in ("rows", "cols")}
    rows = [target.prepare("Which?", image).image_tokens for image in pictures]
    placeholders = sorted(target.placeholders)
    assert int(torch.isin(inputs["input_ids"], torch.tensor(placeholders)).sum()) == sum(rows)
    options = {"max_new_tokens": LENGTH, "do_sample": False, "pad_token_id": 0}
    wanted = target.model.generate(**inputs, **options)
    for method in METHODS:
        ids = target.model.generate(
            **inputs, **options, custom_generate=recap.generate, method=method
        )
        assert torch.equal(ids, wanted), method


def random_tree(root: int, bytes_only: random.Random, nodes: int = 14) -> CandidateTree:
    """A tree of random bytes, deep in places and broad in others."""
    tree = CandidateTree(root)
    for row in range(nodes):
        parent = row if row < 4 else bytes_only.randrange(len(tree))
        tree.add(parent, bytes_only.randrange(256), 0.5, 0.5)
    return tree


@every_family
@pytest.mark.parametrize("size", SIZES[:3])
def test_tree_logits_agree_with_step_by_step(family, size):
    """Every row of two tree passes in a row, against one uncached pass over its own path."""
    target = family_target(family.name, 2)
    request = target.prepare("Look", picture(3, *size))
    inputs = dict(request.inputs)
    first = target.prefill(request, top_k=4)
    request.append([first.rows.choice[-1]])
    caught: list[torch.Tensor] = []
    head = target.model.lm_head
    hook = head.register_forward_hook(lambda _, __, out: caught.append(out.clone()))
    chance = random.Random(4)
    try:
        for _ in range(2):
            tree = random_tree(request.ids[-1], chance)
            caught.clear()
            target.verify(request, tree, top_k=4)
            tree_logits = caught[0]
            for row in range(len(tree)):
                path, at = [], row
                while at:
                    path.append(tree.token[at])
                    at = tree.parent[at]
                expected = uncached_logits(target, inputs, [*request.ids, *reversed(path)])
                assert float((tree_logits[row] - expected).abs().max()) <= 1e-4
            # Keep a branch whose rows are not the first ones of the pass.
            leaf = len(tree) - 1
            kept = [leaf]
            while tree.parent[kept[0]]:
                kept.insert(0, tree.parent[kept[0]])
            # The last token becomes the next root, so its row goes.
            target.commit(request, [0, *kept[:-1]])
            request.append([tree.token[row] for row in kept])
    finally:
        hook.remove()


@every_family
def test_two_requests_with_different_pictures_take_turns(family):
    """Neither notices the other, and the model object is left as it was."""
    target = family_target(family.name, 3)
    sizes = (SIZES[1], SIZES[2])
    wanted = [generate(target, request, LENGTH) for request in requests_of(target, sizes)]
    assert wanted[0] != wanted[1]
    # What `generate` leaves on the model object is then of neither picture.
    generate(target, target.prepare("Look", picture(5, *SIZES[4])), 1)
    state = _state(target.model)
    for method in METHODS:
        memory = new_memory(target)
        runs = [
            Run(target, request, method, memory=memory, max_new_tokens=LENGTH)
            for request in requests_of(target, sizes)
        ]
        passes = [run.steps() for run in runs]
        while passes:
            passes = [steps for steps in passes if next(steps, None) is not None]
        for run, expected in zip(runs, wanted, strict=True):
            expect_identical(run.trace, expected)
    assert _state(target.model) == state


def _state(model):
    """What a model object carries besides weights: plain values and small tensors."""
    return {
        (name, key): value.tolist() if isinstance(value, torch.Tensor) else value
        for name, module in model.named_modules()
        for key, value in vars(module).items()
        if not key.startswith("_")
        and (value is None or isinstance(value, int | float | str | torch.Tensor))
    }


@every_family
def test_no_placeholder_is_ever_kept_or_proposed(family):
    """Not in a tree, a prediction or a key: also where the model itself likes to write them."""
    target = family_target(family.name)
    written = generate(target, requests_of(target)[0], LENGTH)
    favourite = max(written, key=written.count)
    head = target.model.lm_head.weight.data
    for token in target.placeholders:
        head[token] = 1.01 * head[favourite]
    memory = new_memory(target)
    wanted = [generate(target, request, LENGTH) for request in requests_of(target, SIZES[:2])]
    assert target.placeholders & {token for ids in wanted for token in ids}
    for request, expected in zip(requests_of(target, SIZES[:2]), wanted, strict=True):
        run = Run(target, request, "recap-plus", memory=memory, max_new_tokens=LENGTH)
        for step in run.steps():
            seen = {*step.nodes.token, *chain(*step.rows["ids"])}
            seen |= {*chain(*step.nodes.key), *chain(*step.entries.ids)}
            assert not seen & target.placeholders
        expect_identical(run.trace, expected)


@every_family
def test_pixels_can_be_bounded(family):
    """Fewer at most means fewer rows, more at least means more; decoding stays identical."""
    image = picture(1, 210, 190)
    rows = {}
    for name, bounds in {
        "free": {},
        "small": {"max_pixels": 60 * 60},
        "large": {"min_pixels": 230 * 230},
    }.items():
        target = family_target(family.name, **bounds)
        if name == "large":  # from a picture that would take few rows by itself
            image = picture(1, 40, 40)
        request = target.prepare("What is it?", image)
        rows[name] = request.image_tokens
        if name == "large":
            few = family_target(family.name).prepare("What is it?", image).image_tokens
        wanted = generate(target, request.twin(), 12)
        expect_identical(Run(target, request, max_new_tokens=12).finish_all(), wanted)
    assert rows["small"] < rows["free"]
    assert rows["large"] > few


def test_the_most_wins_where_whole_tiles_miss_both_bounds():
    """Idefics3 has tiles of 56 pixels: an edge of 112 is too small, and one of 168 too large."""
    one, two = (
        family_target("idefics3", max_pixels=160 * 160, **bounds).prepare("hi", picture(1))
        for bounds in ({}, {"min_pixels": 150 * 150})
    )
    assert one.image_tokens == two.image_tokens


def test_pixel_bounds_are_checked():
    """Bounds that cross or are not positive name themselves."""
    with pytest.raises(SettingsError, match="min_pixels"):
        family_target("llava_next", min_pixels=100, max_pixels=50)
    with pytest.raises(SettingsError, match="max_pixels"):
        family_target("llava_next", max_pixels=0)


def test_a_picture_needs_an_image_processor_and_a_place():
    """Clear words where a target was put together without one, or a template has no picture."""
    target = family_target("idefics3")
    target.image_processor = None
    with pytest.raises(PromptError, match="image processor"):
        target.prepare("hello", picture(0))
    target = family_target("llava_next")
    target.tokenizer = copy.copy(target.tokenizer)
    target.tokenizer.chat_template = "{{ messages[0]['content'][1]['text'] }}"
    with pytest.raises(PromptError, match="no place for a picture"):
        target.prepare("hello", picture(0))


def test_a_picture_that_cannot_be_cut_is_an_image_error(monkeypatch):
    """Whatever an image processor refuses: Qwen's what is far longer than wide."""
    target = family_target("qwen2_vl")
    with pytest.raises(ImageError, match="too long and thin"):
        target.prepare("hello", picture(0, 4, 1200))
    monkeypatch.setattr(images, "MAX_ASPECT", 1000)
    with pytest.raises(ImageError, match=r"cannot be cut into patches: .*ratio.*Crop it"):
        target.prepare("hello", picture(0, 4, 1200))
