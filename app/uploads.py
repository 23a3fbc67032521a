"""Uploaded files: whose they are, how much disk they take together, and what goes when.

Gradio keeps uploads in one folder, each under the salted digest of its content, so two sessions
with the same file share it. A file goes with the last session that uses it; what no session ever
used, or has not used for long, goes by its age (`sweep`); and before an upload that would not fit
any more the oldest go (`reserve`), those that a job needs excepted.
"""

from __future__ import annotations

import contextlib
import os
import tempfile
import threading
from collections import Counter
from collections.abc import Iterator
from contextvars import ContextVar
from pathlib import Path
from typing import Any

import gradio.route_utils
from gradio.utils import get_upload_folder

from app.assets import examples

#: What a file system hands out at a time, in bytes. A file has a folder of its own, too.
_BLOCK = 4096

#: Files that the upload of this context has begun; None outside of one.
_begun: ContextVar[list[Any] | None] = ContextVar("begun", default=None)


class Uploads:
    """The register of uploaded files. Any thread may use it."""

    def __init__(self) -> None:
        self._users: dict[Path, set[str]] = {}
        #: Files that jobs need, by how many.
        self._needed: Counter[Path] = Counter()
        #: Bytes of uploads that are on their way.
        self._coming = 0
        self._lock = threading.Lock()

    def use(self, session: str | None, path: str | None) -> None:
        """A session works with this file. Only uploads are noted: nothing else is ever deleted."""
        found = uploaded(path)
        if not session or found is None or _shown_to_all(found):
            return
        with self._lock:
            for gone in [path for path in self._users if not os.path.exists(path)]:  # by their age
                del self._users[gone]
            if os.path.exists(found):  # unlike pathlib's it takes any name
                self._users.setdefault(found, set()).add(session)

    def end(self, session: str | None) -> None:
        """A session is over: its files go, unless another session uses them, too."""
        with self._lock:
            for path in [path for path, users in self._users.items() if session in users]:
                self._users[path].discard(session or "")
                if not self._users[path]:
                    self._drop(path)

    @contextlib.contextmanager
    def needed(self, path: Any) -> Iterator[None]:
        """A job that runs or waits needs this file: neither age nor want of room takes it."""
        found = uploaded(path)
        job = Counter([found] if found is not None else [])
        with self._lock:
            self._needed += job
        try:
            yield
        finally:
            with self._lock:
                self._needed -= job

    def reserve(self, size: int, most: int) -> bool:
        """Make room for an upload of `size` bytes, so that all of them take at most `most`.

        Files used longest ago go first. Returns whether there is room; `release` gives it back
        once the upload is over, since the file is there by then.
        """
        size = _taken(size)
        with self._lock:
            self._coming += size
        files = sorted(_files())
        with self._lock:
            over = sum(taken for _, taken, _ in files) + self._coming - most
            for _, taken, path in files:
                if over <= 0:
                    break
                if path not in self._needed:
                    self._drop(path)
                    over -= taken
            if over > 0:
                self._coming -= size
        return over <= 0

    def release(self, size: int) -> None:
        """An upload that had a place reserved is over, well or badly."""
        with self._lock:
            self._coming -= _taken(size)

    def sweep(self, before: float) -> None:
        """Delete what was last used before a time (`time.time()`)."""
        files = list(_files())
        with self._lock:
            for used, _, path in files:
                if used < before and path not in self._needed:
                    self._drop(path)

    def _drop(self, path: Path) -> None:
        self._users.pop(path, None)
        with contextlib.suppress(OSError):
            path.unlink()
            path.parent.rmdir()  # the folder of its digest, if nothing else lies there


#: There is one folder of uploads a process, so there is one register.
UPLOADS = Uploads()


def refresh(path: str | Path) -> None:
    """Start the age of a file that is used anew."""
    with contextlib.suppress(OSError):
        os.utime(path)


@contextlib.contextmanager
def nothing_left() -> Iterator[None]:
    """Behind an upload that failed or was broken off, no half of a file stays on the disk."""
    begun: list[Any] = []
    token = _begun.set(begun)
    try:
        yield
    finally:
        _begun.reset(token)
        for file in begun:  # one that arrived has another name by now
            with contextlib.suppress(OSError):
                file.close()
            with contextlib.suppress(OSError):
                os.unlink(file.name)


def note_uploads() -> None:
    """From here on Gradio's uploads are known to `nothing_left`.

    By itself it leaves the part of a file that came before the disk was full, or before the
    visitor hung up, under a name that it forgets.
    """
    gradio.route_utils.NamedTemporaryFile = _temporary_file


def _temporary_file(*arguments: Any, **options: Any) -> Any:
    file = tempfile.NamedTemporaryFile(*arguments, **options)  # noqa: SIM115  # Gradio closes it
    begun = _begun.get()
    if begun is not None:
        begun.append(file)
    return file


def uploaded(path: Any) -> Path | None:
    """An upload's own path, whether the file is still there or not; None for any other path."""
    if not path:
        return None
    try:
        found = Path(path).resolve()
        return found if found.is_relative_to(_folder()) else None
    except (TypeError, ValueError, OSError):  # no text, a zero byte, a name without end
        return None


def _folder() -> Path:
    return Path(get_upload_folder()).resolve()


def _files() -> Iterator[tuple[float, int, Path]]:
    """(last use, bytes of disk, path) of every upload that has arrived."""
    for folder in _entries(_folder()):
        if not folder.is_dir(follow_symlinks=False):
            continue  # still on its way
        for file in _entries(folder.path):
            with contextlib.suppress(OSError):
                facts, path = file.stat(follow_symlinks=False), Path(file.path)
                if not _shown_to_all(path):
                    yield facts.st_mtime, _taken(facts.st_size), path


def _entries(folder: str | Path) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(folder) as entries:
            return [*entries]
    except OSError:  # it has gone meanwhile
        return []


def _taken(size: int) -> int:
    """Bytes of disk that a file of this size takes."""
    return (-(-size // _BLOCK) + 1) * _BLOCK


def _shown_to_all(path: Path) -> bool:
    """Whether this is the page's own copy of an example: an upload of it lies in the same place."""
    for example in examples():
        if example.image is not None and example.image.name == path.name:
            with contextlib.suppress(OSError):
                return path.read_bytes() == example.image.read_bytes()
    return False
