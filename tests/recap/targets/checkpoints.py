"""Checkpoints in folders: loading them, and what is said where that fails."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from recap.errors import ModelError
from recap.targets import load_target


def load(where, **options):
    """The target of a folder or a name, on the CPU."""
    return load_target(str(where), device="cpu", **options)


def failure(where, **options) -> str:
    """What loading says when it fails, as it must."""
    with pytest.raises(ModelError) as caught:
        load(where, **options)
    return str(caught.value)


def change_config(folder: Path, **changes) -> None:
    """Set fields of a checkpoint's configuration."""
    path = folder / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))
