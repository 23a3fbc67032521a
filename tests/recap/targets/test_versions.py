"""A transformers that is too old for this package or for a checkpoint is named."""

from __future__ import annotations

import textwrap

import pytest
import transformers

from recap.errors import ModelError
from recap.targets.versions import check_transformers, is_newer
from tests.recap.process import run_python
from tests.recap.targets.checkpoints import change_config, failure, load


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
    done = run_python("-c", textwrap.dedent(code))
    assert done.returncode
    assert "ModelError: recap needs transformers 5.24" in done.stderr
