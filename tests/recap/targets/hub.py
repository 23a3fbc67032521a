"""A small Hugging Face hub on this machine, for the real hub client to talk to.

It serves the files of one folder under every repository name, except that

- `owner/gated-401` and `owner/gated-403` are gated as on the real hub, which describes such a
  repository to anybody and refuses its files: 401 without a token, 403 before the terms are met;
- `owner/absent` is not there;
- `owner/answers-N` gives nothing but the status N.
"""

from __future__ import annotations

import hashlib
import json
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

_COMMIT = "a" * 40


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    folder: Path

    def log_message(self, *args: Any) -> None:
        """Say nothing."""

    def do_HEAD(self) -> None:
        self._answer()

    def do_GET(self) -> None:
        self._answer()

    def _answer(self) -> None:
        path = self.path.partition("?")[0]
        answers = re.search(r"/answers-(\d+)", path)
        gated = re.search(r"/gated-(\d+)/resolve/", path)
        if answers:
            self._send(int(answers[1]), b"{}")
        elif gated:
            self._send(int(gated[1]), b"{}", {"X-Error-Code": "GatedRepo"})
        elif "/absent" in path:
            self._send(404, b"{}", {"X-Error-Code": "RepoNotFound"})
        elif path.startswith("/api/") and "/tree/" in path:
            if path.endswith(("/main", _COMMIT)):
                self._send(200, json.dumps(self._files()).encode())
            else:
                self._send(404, b"{}", {"X-Error-Code": "EntryNotFound"})
        elif path.startswith("/api/"):
            about = {"id": "owner/tiny", "sha": _COMMIT, "siblings": self._files()}
            self._send(200, json.dumps(about).encode())
        else:
            file = self.folder / path.rsplit("/", 1)[1]
            if not file.is_file():
                self._send(404, b"", {"X-Error-Code": "EntryNotFound"})
                return
            data = file.read_bytes()
            digest = hashlib.sha1(data).hexdigest()
            self._send(200, data, {"X-Repo-Commit": _COMMIT, "ETag": f'"{digest}"'})

    def _files(self) -> list[dict[str, Any]]:
        return [
            {
                "type": "file",
                "path": file.name,
                "rfilename": file.name,
                "size": file.stat().st_size,
                "oid": hashlib.sha1(file.read_bytes()).hexdigest(),
            }
            for file in self.folder.iterdir()
        ]

    def _send(self, status: int, data: bytes, headers: dict[str, str] | None = None) -> None:
        self.send_response(status)
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(data)))
        self.send_header("Connection", "close")  # so that nothing is left open when it stops
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(data)


@contextmanager
def hub(folder: Path) -> Iterator[str]:
    """The address of a hub that serves `folder`, for as long as the block runs."""
    handler = type("Handler", (_Handler,), {"folder": folder})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
