"""Loading by name or from a folder."""

from __future__ import annotations

import json

import pytest
import torch
import transformers

from recap import known
from recap.decoding import Run
from recap.errors import SettingsError
from recap.targets import ADAPTERS, KNOWN, TINY, load_target, make_target
from recap.targets.attention import TREE_ATTENTION
from tests.recap.families import save
from tests.recap.reference import expect_identical, generate, picture
from tests.recap.targets.checkpoints import failure, load


@pytest.mark.parametrize("family", TINY)
def test_every_family_loads_from_a_folder(family, tmp_path):
    """The same inputs and the same answer as the model that was saved."""
    target = load(save(tmp_path, family))
    tiny = TINY[family]
    model = TINY[family].make()
    parts = [tiny.tokenizer()] + ([tiny.image_processor()] if tiny.image_processor else [])
    original = make_target(model, *parts)
    image = picture(1, 90, 130) if target.takes_pictures else None
    request = target.prepare("What is it?", image)
    same = original.prepare("What is it?", image)
    assert (request.ids, target.eos) == (same.ids, original.eos)
    for name, value in same.inputs.items():
        assert torch.equal(request.inputs[name], value)
    wanted = generate(original, same, 12)
    expect_identical(Run(target, request, max_new_tokens=12).finish_all(), wanted)
    assert target.name == str(tmp_path)
    assert target.model.config._attn_implementation == TREE_ATTENTION


def test_a_template_beside_the_processor_is_found(folder):
    """As older checkpoints have it: not in the tokenizer's files."""
    template = (folder / "chat_template.jinja").read_text()
    (folder / "chat_template.jinja").unlink()
    (folder / "chat_template.json").write_text(json.dumps({"chat_template": template}))
    assert load(folder).prepare("hello", picture(0)).image_tokens


def test_options_reach_the_model(saved):
    """Number format and bounds of a picture."""
    target = load(saved, dtype="bfloat16", max_pixels=3200)
    assert target.dtype == torch.bfloat16
    assert target.prepare("hi", picture(0, 200, 200)).image_tokens <= 4


def test_progress_is_told(saved):
    """In order, with a share in [0, 1] or None."""
    told = []
    load(saved, progress=lambda text, share: told.append((text, share)))
    shares = [share for text, share in told if text == "Loading the weights" and share]
    assert shares == sorted(shares)
    assert len(shares) > 10
    assert shares[-1] == 1.0
    assert list(dict.fromkeys(text for text, _ in told)) == [
        "Reading the configuration",
        "Loading the tokenizer",
        "Loading the weights",
        "Ready",
    ]
    assert told[-1][1] == 1.0


def test_models_are_offered_by_name():
    """Those of the documentation, the bundled one first."""
    assert next(iter(KNOWN)) == "demo"
    assert set(KNOWN) >= {
        "Qwen/Qwen2.5-VL-7B-Instruct",
        "Qwen/Qwen2.5-VL-3B-Instruct",
        "llava-hf/llava-v1.6-vicuna-7b-hf",
        "llava-hf/llava-v1.6-mistral-7b-hf",
        "HuggingFaceTB/SmolVLM-256M-Instruct",
        "smollm2",
    }


@pytest.mark.parametrize("family", ["", *TINY])
def test_small_random_models_by_name(family):
    """For trying the program without any file."""
    target = load_target(f"tiny-random-{family}".removesuffix("-"), device="cpu")
    assert ADAPTERS[target.family] is type(target)


def test_unknown_family(tmp_path):
    """A model that transformers knows and this package does not."""
    config = transformers.GPT2Config(n_layer=1, n_embd=16, n_head=2, vocab_size=50)
    transformers.GPT2LMHeadModel(config).save_pretrained(tmp_path)
    message = failure(tmp_path)
    assert "'gpt2'" in message
    assert "Supported: idefics3, llama, llava_next" in message


def test_missing_folder_and_missing_configuration(tmp_path):
    """A path is taken for a path, not for a model on the Hub."""
    assert "There is no folder" in failure(tmp_path / "nowhere")
    assert "no config.json" in failure(tmp_path)
    assert "neither a folder nor a Hugging Face id" in failure("not a model!")


def test_the_bundled_model_may_be_missing(monkeypatch, tmp_path):
    """It says how to make it."""
    monkeypatch.setattr(known, "demo_path", lambda: tmp_path)
    assert "recap.demo make" in failure("demo")


def test_bounds_mean_nothing_to_a_text_model(tmp_path):
    """Rather than being ignored."""
    message = failure(save(tmp_path, "llama"), max_pixels=1000)
    assert "reads text only: leave out max_pixels" in message
    assert "leave out min_pixels and max_pixels" in failure(
        "tiny-random-llama", min_pixels=5, max_pixels=9
    )


def test_small_random_models_are_not_quantised():
    """Rather than ignoring it."""
    with pytest.raises(SettingsError, match="quantize: means nothing to tiny-random-llama"):
        load("tiny-random-llama", quantize="4bit")
