"""Checkpoints with parts missing, cut or mixed up: one sentence that says which."""

from __future__ import annotations

import json

import pytest

from recap.targets.failures import explain
from tests.recap.targets.checkpoints import change_config, failure


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


def test_a_full_disk_is_named():
    """Found in the chain of causes."""
    error = RuntimeError("download failed")
    error.__cause__ = OSError(28, "No space left on device")
    assert "The disk is full" in explain("owner/model", error)
