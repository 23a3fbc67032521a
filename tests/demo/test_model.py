"""The training-time forward pass against transformers' own, packing, and a tiny training run."""

from __future__ import annotations

import random

import pytest
import torch
from torch.nn import functional

from recap.demo import forward
from recap.demo.__main__ import main
from recap.demo.draw import draw, to_pixels
from recap.demo.export import averaged_model, export_model, image_processor
from recap.demo.facts import KINDS, sample
from recap.demo.forward import decode_hidden, encode_pictures
from recap.demo.grammar import text_turn
from recap.demo.model import MAX_PARAMETERS, build_model
from recap.demo.optimise import Average, learning_rate, load_checkpoint, save_checkpoint
from recap.demo.pack import IGNORE, LENGTH, Packer
from recap.demo.teach import picture_batch, teach_tower
from recap.demo.tokenizer import special_ids
from recap.demo.train import BATCH, answer_loss, train_model


@pytest.fixture(scope="module")
def model(tokenizer):
    """A random model of the exported size."""
    torch.manual_seed(0)
    return build_model(len(tokenizer), special_ids(tokenizer)).eval()


def _inputs(picture):
    return image_processor()(images=[draw(picture)], return_tensors="pt")


def test_parameters_stay_in_the_budget(model):
    """At most 4.9 million, so that the bfloat16 file stays below 10 MB."""
    assert sum(p.numel() for p in model.parameters()) <= MAX_PARAMETERS


@torch.no_grad()
def test_vision_forward_equals_transformers(model):
    """The batched tower gives what transformers' tower gives picture by picture."""
    pictures = [sample(kind, "x/tower") for kind in KINDS]
    pixels = torch.stack([torch.from_numpy(to_pixels(draw(p))) for p in pictures])
    ours = encode_pictures(model.model.visual, pixels)
    for picture, features in zip(pictures, ours, strict=True):
        inputs = _inputs(picture)
        theirs = model.model.visual(inputs["pixel_values"], grid_thw=inputs["image_grid_thw"])
        torch.testing.assert_close(features, theirs.pooler_output, atol=1e-5, rtol=1e-4)


@torch.no_grad()
def test_packed_rows_equal_separate_conversations(model, tokenizer):
    """Every segment of a packed row has the logits that it would have alone."""
    packer = Packer(tokenizer)
    pictures = [sample(kind, "x/pack") for kind in KINDS]
    rows = packer.pack_rows(pictures, random.Random(3))
    features = encode_pictures(model.model.visual, picture_batch(pictures)[0])
    embeds = model.model.language_model.embed_tokens(rows.ids)
    embeds = embeds.masked_scatter((rows.ids == packer.image)[..., None], features)
    hidden = decode_hidden(model, embeds, rows.positions, rows.mask())
    seen = set()
    for row, picture in enumerate(pictures):
        segments = rows.segments[row]
        prefix = rows.ids[row][segments == 0]
        for segment in sorted({int(s) for s in segments if s != 0 and s > -LENGTH}):
            places = segments == segment
            own = rows.ids[row][places]
            ids = (torch.cat([prefix, own]) if segment > 0 else own)[None]
            inputs = dict(_inputs(picture)) if segment > 0 else {}
            kinds = (ids == packer.image).int()
            logits = model(input_ids=ids, mm_token_type_ids=kinds, **inputs).logits[0, -len(own) :]
            ours = model.lm_head(hidden[row][places])
            torch.testing.assert_close(ours, logits, atol=1e-4, rtol=1e-3)
            seen.add(segment > 0)
    assert True in seen


def test_rounded_products_have_the_same_gradients(model, tokenizer, monkeypatch):
    """With bfloat16 products loss and gradients are those of float32, but for rounding."""
    packer = Packer(tokenizer)
    pictures = [sample(kind, "x/round") for kind in KINDS]
    rows = packer.pack_rows(pictures, random.Random(5))
    pixels, _ = picture_batch(pictures)

    def gradients(fast: bool) -> tuple[float, dict[str, torch.Tensor]]:
        monkeypatch.setattr(forward, "bfloat16_is_fast", lambda: fast)
        model.zero_grad()
        features = encode_pictures(model.model.visual, pixels)
        loss, _ = answer_loss(model, features, rows, packer.image)
        loss.backward()
        return float(loss.detach()), {
            name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None
        }

    exact_loss, exact = gradients(fast=False)
    loss, rounded = gradients(fast=True)
    model.zero_grad()
    assert loss == pytest.approx(exact_loss, rel=1e-2)
    assert rounded.keys() == exact.keys()
    for name, gradient in exact.items():
        if float(gradient.norm()) > 1e-6:
            likeness = functional.cosine_similarity(
                gradient.flatten(), rounded[name].flatten(), dim=0
            )
            assert float(likeness) > 0.98, name


def test_labels_are_the_answers(tokenizer):
    """Loss falls on answers and their end only; text-only segments do not see the picture."""
    packer = Packer(tokenizer)
    pictures = [sample(kind, f"x/{i}") for i in range(16) for kind in KINDS]
    rows = packer.pack_rows(pictures, random.Random(0))
    assert rows.ids.shape == (len(pictures), LENGTH)
    kept = rows.labels != IGNORE
    assert torch.equal(rows.labels[kept], rows.ids[kept])
    assert int((rows.labels == packer.end).sum()) == rows.turns
    alone = rows.segments < 0
    mask = rows.mask()[:, 0] == 0
    prefix = rows.segments == 0
    assert not bool((mask & alone[:, :, None] & prefix[:, None, :]).any())
    assert bool((rows.segments[alone] > -LENGTH).any())


def test_every_text_request_fits_a_row(tokenizer):
    """What does not fit is never taught."""
    packer = Packer(tokenizer)
    for number in range(600):
        turn = text_turn(random.Random(number))
        tokens, _ = packer.segment(turn.question, turn.answer, alone=True)
        assert len(packer.prefix) + len(tokens) <= LENGTH, turn.question


def test_learning_rate_schedule():
    """Up to one, then down to the floor."""
    factors = [learning_rate(step, 100, 10) for step in range(100)]
    assert max(factors) == pytest.approx(1, abs=1e-3)
    assert factors[0] == pytest.approx(0.1)
    assert factors[-1] < 0.03
    assert factors[10:] == sorted(factors[10:], reverse=True)


def test_average_follows_the_weights():
    """The moving average forgets the start quickly at first."""
    module = torch.nn.Linear(1, 1, bias=False)
    average = Average(module, decay=0.99)
    torch.nn.init.constant_(module.weight, 5.0)
    for step in range(200):
        average.update(module, step)
    assert float(average.weights["weight"]) == pytest.approx(5.0, abs=0.05)


def test_checkpoint_is_written_whole(tmp_path):
    """A saved state loads again and leaves no partial file."""
    path = tmp_path / "work" / "x.pt"
    assert load_checkpoint(path) is None
    save_checkpoint(path, {"step": 3, "w": torch.ones(2)})
    assert load_checkpoint(path)["step"] == 3
    assert [p.name for p in path.parent.iterdir()] == ["x.pt"]


def test_make_learns_resumes_and_exports(tmp_path, tokenizer, capsys):
    """Few steps: the tower stands still first, a second call goes on, the export loads."""
    teach_tower(tmp_path, seed=0, pictures=32)
    taught = load_checkpoint(tmp_path / "vision.pt")
    assert taught["step"] == 1
    state = load_checkpoint(train_model(tmp_path, tokenizer, seed=0, pictures=BATCH))
    name = "visual.patch_embed.proj.weight"
    assert torch.equal(state["model"][f"model.{name}"], taught["tower"][name])
    state = load_checkpoint(train_model(tmp_path, tokenizer, seed=0, pictures=2 * BATCH))
    assert state["step"] == 2
    assert not torch.equal(state["model"][f"model.{name}"], taught["tower"][name])
    assert "left" in capsys.readouterr().out
    output = tmp_path / "out"
    export_model(averaged_model(state, tokenizer), tokenizer, output)
    assert (output / "model.safetensors").stat().st_size < 10_000_000
    names = {p.name for p in output.iterdir()}
    assert {"config.json", "generation_config.json", "preprocessor_config.json"} <= names
    assert {"tokenizer.json", "tokenizer_config.json", "README.md"} <= names


def test_training_needs_a_taught_tower(tmp_path, tokenizer):
    """Without stage 1 the error names the missing file."""
    with pytest.raises(FileNotFoundError, match="vision"):
        train_model(tmp_path, tokenizer, seed=0, pictures=BATCH)


def test_a_few_steps_lower_the_loss(tokenizer):
    """Gradients reach decoder and tower: the loss on one batch falls."""
    torch.manual_seed(0)
    model = build_model(len(tokenizer), special_ids(tokenizer))
    packer = Packer(tokenizer)
    pictures = [sample(kind, "x/fit") for kind in KINDS]
    rows = packer.pack_rows(pictures, random.Random(0))
    pixels, _ = picture_batch(pictures)
    optimiser = torch.optim.AdamW(model.parameters(), lr=1e-3)
    losses = []
    for _ in range(4):
        features = encode_pictures(model.model.visual, pixels)
        loss, _ = answer_loss(model, features, rows, packer.image)
        loss.backward()
        optimiser.step()
        optimiser.zero_grad()
        losses.append(float(loss.detach()))
    assert losses[-1] < losses[0] - 0.5


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["make", "--pictures", "7"], "32 or more"),
        (["make", "--vision-pictures", "many"], "32 or more"),
        (["evaluate", "--pictures", "0"], "1 or more"),
        (["evaluate", "--method", "nope"], "nope"),
        (["evaluate", "--model", "nope"], "nope"),
    ],
)
def test_commands_refuse_in_words(arguments, words, capsys):
    """Exit status 2 and a line that says what is wrong, no traceback."""
    try:
        status = main(arguments)
    except SystemExit as ended:
        status = ended.code
    assert status == 2
    assert words in capsys.readouterr().err
