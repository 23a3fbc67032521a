"""The scripts' own tests, run by Node where it is there."""

import shutil
import subprocess
from pathlib import Path

import pytest

HERE = Path(__file__).resolve().parent / "static"


def test_scripts():
    node = shutil.which("node")
    if node is None:
        pytest.skip("Node is not installed; the browser tests exercise the same scripts")
    files = sorted(str(path) for path in HERE.glob("*.test.mjs"))
    done = subprocess.run([node, "--test", *files], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr
