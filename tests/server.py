"""A real server in a process of its own, on a free port of the loopback.

    with running_server(RECAP_MODEL="tiny-random") as server:
        httpx.get(server.address)

Whatever it writes, uploads included, lies in a folder of its own that goes with it.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import httpx

ROOT = Path(__file__).resolve().parents[1]


@dataclass
class Server:
    """A running server. `log` holds all that it wrote to stdout and stderr."""

    address: str
    process: subprocess.Popen[bytes]
    log: Path
    folder: Path

    @property
    def output(self) -> str:
        return self.log.read_text("utf-8", "replace")

    def facts(self) -> dict[str, int]:
        """Resident memory in KiB, threads, open files and uploaded files of the process."""
        process = Path("/proc") / str(self.process.pid)
        status = dict(line.split(":", 1) for line in (process / "status").read_text().splitlines())
        uploads = [path for path in self.folder.rglob("*") if path.is_file()]
        return {
            "rss": int(status["VmRSS"].split()[0]),
            "threads": int(status["Threads"]),
            "files": len(os.listdir(process / "fd")),
            "uploads": len(uploads),
        }

    def stop(self) -> int:
        """End it as a service manager does; returns the exit status."""
        self.process.send_signal(signal.SIGTERM)
        try:
            return self.process.wait(30)
        finally:
            self.process.kill()


@contextlib.contextmanager
def running_server(*command: str, **environment: str) -> Iterator[Server]:
    """`python app.py`, or Python with another command, which may read lines from its stdin.

    Raises `RuntimeError` with the server's own words where it does not come up.
    """
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    with tempfile.TemporaryDirectory(prefix="recap-test-") as name:
        folder = Path(name)
        log = folder / "log.txt"
        uploads = folder / "uploads"
        variables = {
            **os.environ,
            "GRADIO_SERVER_NAME": "127.0.0.1",
            "GRADIO_SERVER_PORT": str(port),
            "GRADIO_TEMP_DIR": str(uploads),
            "HF_HUB_OFFLINE": "1",
            "OMP_NUM_THREADS": "1",
            "PYTHONUNBUFFERED": "1",
            **environment,
        }
        with log.open("wb") as out:
            process = subprocess.Popen(
                [sys.executable, *(command or ("app.py",))], cwd=ROOT, env=variables,
                stdin=subprocess.PIPE, stdout=out, stderr=subprocess.STDOUT,
            )  # fmt: skip
        server = Server(f"http://127.0.0.1:{port}", process, log, uploads)
        try:
            _wait_for(server)
            yield server
        finally:
            if process.poll() is None:
                server.stop()


def _wait_for(server: Server) -> None:
    for _ in range(600):
        if server.process.poll() is not None:
            raise RuntimeError(server.output)
        with contextlib.suppress(httpx.HTTPError):
            httpx.get(server.address, timeout=5)
            return
        time.sleep(0.2)
    raise RuntimeError("the server did not come up: " + server.output)
