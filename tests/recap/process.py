"""Python in a process of its own, with this package to be imported, as a shell would run it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[2]


class Done(NamedTuple):
    """What a command left behind."""

    returncode: int
    stdout: str
    stderr: str


def run_python(*arguments: str, **environment: str) -> Done:
    """`python` with these arguments, to its end; what is no UTF-8 on its stdout is replaced."""
    done = subprocess.run(
        [sys.executable, *arguments],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT), **environment},
        capture_output=True,
        timeout=300,
        check=False,
    )
    return Done(
        done.returncode, done.stdout.decode("utf-8", "replace"), done.stderr.decode("utf-8")
    )


def run_recap(*arguments: str, **environment: str) -> Done:
    """`python -m recap` with these arguments."""
    return run_python("-m", "recap", *arguments, **environment)
