"""A real server in a process of its own, on a free port of the loopback.

with serve(RECAP_MODEL="tiny-random") as address:
    ...
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

ROOT = Path(__file__).resolve().parents[1]


@contextmanager
def serve(*command: str, **environment: str) -> Iterator[str]:
    """`python app.py`, or another command of Python's; gives its address."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    variables = {
        **os.environ,
        "GRADIO_SERVER_PORT": str(port),
        "GRADIO_SERVER_NAME": "127.0.0.1",
        "HF_HUB_OFFLINE": "1",
        "OMP_NUM_THREADS": "1",
        "PYTHONUNBUFFERED": "1",
        **environment,
    }
    address = f"http://127.0.0.1:{port}"
    with tempfile.TemporaryFile("w+") as output:
        process = subprocess.Popen(
            [sys.executable, *(command or ("app.py",))], cwd=ROOT, env=variables, text=True,
            stdout=output, stderr=subprocess.STDOUT,
        )  # fmt: skip
        try:
            _wait_for(address, process, output)
            yield address
        finally:
            process.terminate()
            process.wait(20)


def _wait_for(address: str, process: subprocess.Popen[str], output: IO[str]) -> None:
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline:
        if process.poll() is not None:
            output.seek(0)
            raise RuntimeError(output.read() or "the server ended")
        try:
            urllib.request.urlopen(address, timeout=5).close()
            return
        except urllib.error.HTTPError:
            return
        except OSError:
            time.sleep(0.2)
    raise RuntimeError("the server did not come up")
