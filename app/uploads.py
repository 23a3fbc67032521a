"""Uploaded files belong to the sessions that use them, and go when the last of these ends.

Gradio keeps uploads in one folder, each under the salted digest of its content, so two sessions
with the same file share it. What no session ever used goes by its age (`layout.build`).
"""

from __future__ import annotations

import contextlib
import os
import threading
from pathlib import Path

from gradio.utils import get_upload_folder


class Uploads:
    """Which session uses which uploaded file."""

    def __init__(self) -> None:
        self._users: dict[Path, set[str]] = {}
        self._lock = threading.Lock()

    def use(self, session: str | None, path: str | None) -> None:
        """A session works with this file. Only uploads are noted: nothing else is ever deleted."""
        if not session or not path:
            return
        found = Path(path).resolve()
        if not found.is_relative_to(Path(get_upload_folder()).resolve()):
            return
        with self._lock:
            self._users.setdefault(found, set()).add(session)

    def end(self, session: str | None) -> None:
        """A session is over: its files go, unless another session uses them, too."""
        with self._lock:
            for path in [path for path, users in self._users.items() if session in users]:
                self._users[path].discard(session or "")
                if not self._users[path]:
                    del self._users[path]
                    _delete(path)


def _delete(path: Path) -> None:
    with contextlib.suppress(OSError):
        path.unlink()
        path.parent.rmdir()  # the folder of its digest, if nothing else lies there


def refresh(path: str | Path) -> None:
    """Start the age of a file that is used anew."""
    with contextlib.suppress(OSError):
        os.utime(path)
