"""Where uploads lie. Knows nothing of Gradio, which reads the name when it is imported."""

from __future__ import annotations

import atexit
import os
import shutil
import tempfile
from pathlib import Path


def private_folder(parent: str | None = None) -> Path:
    """A fresh folder for uploads that only this user can enter, deleted when the program ends.

    From here on nothing that the program writes can be read by other users of the machine.
    """
    os.umask(0o077)
    if parent:
        Path(parent).mkdir(parents=True, exist_ok=True)
    folder = Path(tempfile.mkdtemp(prefix="recap-uploads-", dir=parent or None))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder
