"""Where a model goes, in which number format, and whether it fits there."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import torch
import transformers

from recap.decoding import Run
from recap.errors import ModelError, SettingsError
from recap.targets import ADAPTERS, TINY, load_target, make_target, placement
from recap.targets.failures import is_out_of_memory
from recap.targets.placement import place, resolve_device, resolve_dtype, too_large, weight_bytes
from tests.recap.reference import expect_identical, picture
from tests.recap.targets.checkpoints import failure, load

GB = 1_000_000_000


def test_a_model_that_accelerate_spreads_decodes_the_same(saved, tmp_path):
    """Hooks move tensors to each part's own place; here some parts are kept on disk."""
    pytest.importorskip("accelerate")
    plain = load(saved)
    parts = dict.fromkeys(("model.visual", "model.language_model", "lm_head"), "cpu")
    parts["model.language_model.layers.1"] = "disk"
    del parts["model.language_model"]
    for name in ("embed_tokens", "layers.0", "norm", "rotary_emb"):
        parts[f"model.language_model.{name}"] = "cpu"
    model = transformers.AutoModelForImageTextToText.from_pretrained(
        saved, device_map=parts, offload_folder=str(tmp_path), dtype=torch.float32
    )
    assert {str(p.device) for p in model.parameters()} == {"cpu", "meta"}
    spread = make_target(model, plain.tokenizer, plain.image_processor)
    for method in ("recap", "autoregressive"):
        wanted, ours = (
            Run(target, target.prepare("hi", picture(2)), method, max_new_tokens=16).finish_all()
            for target in (plain, spread)
        )
        expect_identical(ours, wanted.token_ids)


def test_number_format_follows_the_device(monkeypatch):
    """bfloat16 on CUDA, float16 where that is only emulated, float32 on the CPU."""
    assert resolve_dtype("auto", torch.device("cpu")) == torch.float32
    for real, dtype in ((True, torch.bfloat16), (False, torch.float16)):
        monkeypatch.setattr(
            torch.cuda, "is_bf16_supported", lambda including_emulation=True, real=real: real
        )
        assert resolve_dtype("auto", torch.device("cuda")) == dtype
    assert resolve_dtype("auto", torch.device("mps")) == torch.float16
    assert resolve_dtype("float64", torch.device("cuda")) == torch.float64
    with pytest.raises(SettingsError, match=r"dtype: .*float32, float64.*'int4'"):
        load_target("tiny-random", device="cpu", dtype="int4")


def test_the_best_device_is_chosen(monkeypatch):
    """CUDA, else MPS, else the CPU."""
    for cuda, mps, kind in ((1, 1, "cuda"), (1, 0, "cuda"), (0, 1, "mps"), (0, 0, "cpu")):
        monkeypatch.setattr(torch.cuda, "is_available", lambda cuda=cuda: bool(cuda))
        monkeypatch.setattr(torch.backends.mps, "is_available", lambda mps=mps: bool(mps))
        assert resolve_device("auto") == torch.device(kind)


@pytest.mark.parametrize("device", ["tpu9", "meta", "cuda:77", "", None])
def test_a_device_that_is_not_there_is_named(device):
    """With the reason, and what to use; `meta` is one that holds no weights."""
    with pytest.raises(ModelError, match=r"The device .* cannot be used: .* Use auto or cpu"):
        load_target("tiny-random", device=device)


def test_a_large_model_is_spread_over_all_gpus(monkeypatch):
    """Only where one is not enough, and none was asked for by number."""
    pytest.importorskip("accelerate")
    free = {0: 20 * GB, 1: 20 * GB}
    monkeypatch.setattr(torch.cuda, "device_count", lambda: len(free))
    monkeypatch.setattr(placement, "free_bytes", lambda device: free[device.index or 0])
    kind = torch.bfloat16
    one = torch.device("cuda")
    assert place("m", 15 * GB, one, kind) == {"device_map": {"": one}}
    assert place("m", 30 * GB, one, kind) == {"device_map": "auto"}
    with pytest.raises(ModelError, match=r"30\.0 GB in bfloat16, and 20\.0 GB are free"):
        place("m", 30 * GB, torch.device("cuda:1"), kind)
    with pytest.raises(ModelError, match=r"40\.0 GB are free.*--quantize 4bit.*--device cpu"):
        place("m", 50 * GB, one, kind)


def test_a_model_that_does_not_fit_is_refused_before_it_is_read(saved, monkeypatch):
    """With what it needs, what there is, and what to do."""
    monkeypatch.setattr(placement, "free_bytes", lambda device: 100_000)
    message = failure(saved)
    assert "does not fit on cpu" in message
    assert "--dtype bfloat16" in message
    assert "free some memory" in message


def test_running_out_of_memory_while_loading(saved, monkeypatch):
    """An allocation that fails on the way says the same."""

    def fail(self, *args, **kwargs):
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.")

    monkeypatch.setattr(torch.nn.Module, "to", fail)
    assert "does not fit on cpu" in failure(saved)
    assert is_out_of_memory(RuntimeError("DefaultCPUAllocator: can't allocate memory"))
    assert not is_out_of_memory(RuntimeError("shape mismatch"))
    assert "--device cpu" in too_large("m", torch.device("cuda"), torch.float16, GB, None)


def test_what_is_small_already_is_not_advised():
    """4-bit weights cannot be made smaller; 8-bit ones can."""
    gpu, kind = torch.device("cuda:0"), torch.bfloat16
    for quantize, advised in ((None, True), ("8bit", True), ("4bit", False)):
        with pytest.raises(ModelError) as caught:
            place("m", 10**18, torch.device("cpu"), kind, quantize)
        for message in (str(caught.value), too_large("m", gpu, kind, GB, None, quantize)):
            assert ("--quantize 4bit" in message) == advised
            assert f" GB in {quantize or 'bfloat16'}" in message


def test_quantised_weights_are_counted_as_they_are_loaded():
    """Embeddings and the head keep their number format."""
    model = TINY["qwen2_5_vl"].make()
    kinds = {id(part.weight) for part in model.modules() if isinstance(part, torch.nn.Linear)}
    fewer = sum(p.numel() for p in model.parameters() if id(p) in kinds)
    fewer -= model.lm_head.weight.numel()
    rest = sum(p.numel() for p in model.parameters()) - fewer
    auto = ADAPTERS["qwen2_5_vl"].auto_model
    for quantize, each in ((None, 2), ("8bit", 1.01), ("4bit", 0.57)):
        taken = weight_bytes(auto, model.config, torch.bfloat16, quantize)
        assert taken == pytest.approx(rest * 2 + fewer * each, abs=1)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="limits a forked process")
def test_really_running_out_of_memory(tmp_path):
    """A process that may have 30 MB more, and a model of 100 MB."""
    import resource

    TINY["llama"].make(vocab_size=200_000).save_pretrained(tmp_path)
    TINY["llama"].tokenizer().save_pretrained(tmp_path)
    reader, writer = os.pipe()
    child = os.fork()
    if not child:
        try:
            pages = int(Path("/proc/self/statm").read_text().split()[0])
            limit = pages * resource.getpagesize() + 30_000_000
            resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
            load(tmp_path)
            os.write(writer, b"loaded")
        except BaseException as error:
            os.write(writer, f"{type(error).__name__}: {error}".encode())
        finally:
            os._exit(0)
    os.close(writer)
    with os.fdopen(reader) as answer:
        said = answer.read()
    os.waitpid(child, 0)
    assert said.startswith("ModelError")
    assert "does not fit on cpu: its weights take about 0.1 GB in float32" in said
