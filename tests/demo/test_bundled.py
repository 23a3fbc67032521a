"""The shipped model: loads everywhere, answers held-out pictures, and looks at them."""

from __future__ import annotations

import json

import pytest
import torch
from PIL import Image
from transformers import AutoTokenizer, Qwen2_5_VLForConditionalGeneration

from recap.demo import parse
from recap.demo.draw import draw, draw_smooth
from recap.demo.evaluate import Figure, question
from recap.demo.facts import KINDS, sample
from recap.demo.model import IMAGE_TOKENS, MAX_PARAMETERS
from recap.demo.score import attributes_right, best_alignment, same, words_right
from recap.session import Session
from recap.targets import demo_path, load_target

EXAMPLES = demo_path().parent / "examples"


@pytest.fixture(scope="module")
def target():
    """The bundled model behind the engine, in float32."""
    return load_target("demo", device="cpu", dtype="float32")


def _ask(target, prompt, image=None):
    return Session(target).run(prompt, image, "recap-plus", max_new_tokens=256).finish_all()


def test_files_stay_small():
    """Below 10 MB and 4.9 million parameters, so that nothing needs LFS."""
    assert (demo_path() / "model.safetensors").stat().st_size < 10_000_000
    for name in ("config.json", "generation_config.json", "preprocessor_config.json", "README.md"):
        assert (demo_path() / name).is_file()


@torch.no_grad()
def test_loads_with_plain_transformers_and_agrees_with_the_engine(target):
    """`from_pretrained` and `generate` give the engine's tokens."""
    model = Qwen2_5_VLForConditionalGeneration.from_pretrained(demo_path(), dtype=torch.float32)
    assert sum(p.numel() for p in model.parameters()) <= MAX_PARAMETERS
    tokenizer = AutoTokenizer.from_pretrained(demo_path())
    picture = draw(sample("scene", "held-out/plain/0"))
    prompt = "Describe the picture."
    inputs = target.image_processor(images=[picture], return_tensors="pt")
    content = [{"type": "image"}, {"type": "text", "text": prompt}]
    text = tokenizer.apply_chat_template(
        [{"role": "user", "content": content}], tokenize=False, add_generation_prompt=True
    ).replace("<|image_pad|>", "<|image_pad|>" * IMAGE_TOKENS)
    ids = tokenizer(text, return_tensors="pt").input_ids
    out = model.generate(
        input_ids=ids,
        attention_mask=torch.ones_like(ids),
        mm_token_type_ids=(ids == model.config.image_token_id).int(),
        do_sample=False,
        **inputs,
    )[0, ids.shape[1] :]
    assert out.tolist() == _ask(target, prompt, picture).token_ids


def test_answers_held_out_scenes(target):
    """Nearly all attributes right in prose and JSON, and every answer ends by itself."""
    right = asked = 0
    for index in range(6):
        scene = sample("scene", f"held-out/test/{index}")
        detail = _ask(target, question("scene", "detail", index), draw(scene))
        listed = _ask(target, question("scene", "json", index), draw_smooth(scene))
        assert detail.finish == listed.finish == "eos"
        for seen in (parse.shapes_in_prose(detail.text), parse.shapes_in_json(listed.text)):
            hits, total = attributes_right(seen, scene)
            right, asked = right + hits, asked + total
    assert right / asked > 0.9


def test_answers_held_out_charts(target):
    """Nearly all labels and values right."""
    right = asked = 0
    for index in range(6):
        chart = sample("chart", f"held-out/test/{index}")
        text = _ask(target, question("chart", "json", index), draw(chart)).text
        bars = parse.bars_in_json(text)
        right += best_alignment(bars, [(b.label, b.value) for b in chart.bars], same)
        asked += len(chart.bars)
    assert right / asked > 0.8


def test_answers_held_out_cards(target):
    """Most printed words right."""
    right = asked = 0
    for index in range(6):
        card = sample("card", f"held-out/test/{index}")
        text = _ask(target, "Read the text.", draw(card)).text
        hits, total = words_right(parse.printed_lines(text), card)
        right, asked = right + hits, asked + total
    assert right / asked > 0.7


@pytest.mark.parametrize("kind", KINDS)
def test_another_picture_gives_another_answer(target, kind):
    """The answer depends on the picture, not on the prompt alone."""
    one, two = (draw(sample(kind, f"held-out/swap/{i}")) for i in range(2))
    prompt = "Describe the picture in detail."
    assert _ask(target, prompt, one).text != _ask(target, prompt, two).text


def test_speaks_without_a_picture(target):
    """Greets, explains itself, and says when a picture is missing."""
    assert "Hello" in _ask(target, "Hello!").text
    assert "one forward pass" in _ask(target, "How does speculative decoding work?").text or (
        "single forward pass" in _ask(target, "How does speculative decoding work?").text
    )
    assert "no picture" in _ask(target, "Where is the red circle?").text


def test_examples_fit_their_listing():
    """Every listed picture is there, small and square, and at least 12 are drawings."""
    entries = json.loads((EXAMPLES / "examples.json").read_text())
    assert sum(e["kind"] in KINDS for e in entries) >= 12
    assert sum(e["kind"] == "photo" for e in entries) == 2
    for entry in entries:
        assert entry["prompt"]
        if entry["image"]:
            path = EXAMPLES / entry["image"]
            assert path.stat().st_size < 200_000
            with Image.open(path) as image:
                assert image.width == image.height


def test_figures_know_their_targets():
    """A figure below its target is a miss; one without targets never is."""
    assert Figure("x", 96.0, low=95).met
    assert not Figure("x", 94.0, low=95).met
    assert not Figure("x", 5.0, low=3, high=4.5).met
    assert Figure("x", 0.0).met
    assert "MISS" in Figure("x", 94.0, low=95).line()
