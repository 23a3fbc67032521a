"""What only a GPU can show. Skipped without CUDA."""

from __future__ import annotations

import pytest
import torch

from recap.decoding import Run
from recap.race import compare
from tests.recap.reference import METHOD_NAMES, expect_identical, picture, tiny_target

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]


def on_gpu(family: str, seed: int, dtype: torch.dtype):
    target = tiny_target(family, seed, dtype=dtype)
    target.model.to("cuda")
    return type(target)(
        target.model, target.tokenizer, **(
            {"image_processor": target.image_processor} if family == "qwen2_5_vl" else {}
        ),
    )  # fmt: skip


def run_of(target, method, count=64):
    image = picture(2) if target.family == "qwen2_5_vl" else None
    return Run(target, target.prepare("go", image), method, max_new_tokens=count)


@pytest.mark.parametrize("family", ["qwen2_5_vl", "llama"])
@pytest.mark.parametrize("seed", range(5))
def test_float32_identity(family, seed):
    """Token-identical to plain generate on the device."""
    target = on_gpu(family, seed, torch.float32)
    request = run_of(target, "recap").request
    ids = torch.tensor([request.ids], device="cuda")
    inputs = {"input_ids": ids, "attention_mask": torch.ones_like(ids), **request.inputs}
    if family == "qwen2_5_vl":
        inputs["mm_token_type_ids"] = (ids == target.model.config.image_token_id).int()
    wanted = target.model.generate(**inputs, max_new_tokens=64, do_sample=False, pad_token_id=0)
    for method in METHOD_NAMES:
        trace = run_of(target, method).finish_all()
        expect_identical(trace, wanted[0, ids.shape[1] :].tolist())


def test_one_device_to_host_copy_a_step():
    """Counted by the profiler: copies from the device in all passes together."""
    target = on_gpu("qwen2_5_vl", 1, torch.float32)
    run_of(target, "recap").finish_all()
    run = run_of(target, "recap")
    run.prefill()
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profile:
        passes = len(list(run.steps()))
        torch.cuda.synchronize()
    copies = sum(e.count for e in profile.key_averages() if "Memcpy DtoH" in e.key)
    assert copies == passes


@pytest.mark.parametrize("family", ["qwen2_5_vl", "llama"])
def test_half_precision_runs_and_reports_its_first_difference(family, capsys):
    """Rounding may decide a near-tie; the difference is reported with its log-probabilities."""
    dtype = torch.bfloat16 if torch.cuda.is_bf16_supported() else torch.float16
    target = on_gpu(family, 3, dtype)
    reference = run_of(target, "autoregressive").finish_all()
    for method in METHOD_NAMES:
        result = compare(reference, run_of(target, method).finish_all())
        with capsys.disabled():
            print(f"\n{family} {dtype} {method}: {result}")
        difference = result["first_difference"]
        if difference and difference["this"]["top2"] and difference["reference"]["top2"]:
            margin = difference["reference"]["top2"]
            assert margin[0] - margin[1] < 0.1  # a near-tie, not a bug
