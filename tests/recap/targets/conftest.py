"""One checkpoint for all that read it, and copies for all that damage it."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.recap.families import save


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """A Qwen2.5-VL checkpoint that nobody writes to."""
    return save(tmp_path_factory.mktemp("saved"), "qwen2_5_vl")


@pytest.fixture
def folder(saved, tmp_path):
    """A copy of it to be damaged."""
    return Path(shutil.copytree(saved, tmp_path / "model"))
