"""Files that are whole or not there: a disk that fills up half-way leaves the old one as it was."""

from __future__ import annotations

import contextlib
import os
import shutil
from pathlib import Path


def write_whole(path: str | Path, text: str) -> None:
    """Write a text file (UTF-8), by way of another one beside it. Raises `OSError`.

    What is no ordinary file (a pipe, a terminal) and what lies in a folder that takes no other file
    is written straight away.
    """
    target = Path(os.path.realpath(path))  # a link stays one
    partial = target.with_name(f"{target.name}.{os.getpid()}.part")
    if not _takes_another(target):
        target.write_text(text, "utf-8")
        return
    try:
        partial.write_text(text, "utf-8")
        with contextlib.suppress(OSError):
            shutil.copymode(target, partial)
        os.replace(partial, target)
    except BaseException:
        partial.unlink(missing_ok=True)
        raise


def _takes_another(target: Path) -> bool:
    """Whether a second file can be put in a file's place."""
    ordinary = target.is_file() or not target.exists()
    return ordinary and os.access(target.parent, os.W_OK)
