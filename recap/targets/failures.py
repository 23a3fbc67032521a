"""What went wrong while a model was loaded, in words that say what to do.

The hub client, transformers, safetensors and torch raise many kinds of errors and wrap them in each
other; the chain is searched for the one that tells the cause.
"""

from __future__ import annotations

import errno
import json

import torch
import transformers
from huggingface_hub.errors import (
    EntryNotFoundError,
    GatedRepoError,
    HfHubHTTPError,
    HFValidationError,
    LocalEntryNotFoundError,
    OfflineModeIsEnabled,
    RepositoryNotFoundError,
)
from huggingface_hub.utils import httpx
from safetensors import SafetensorError

from recap.errors import causes
from recap.targets.versions import is_newer

_NO_MEMORY = ("out of memory", "not enough memory", "can't allocate memory", "cannot allocate")
#: What it looks like when Hugging Face cannot be reached.
UNREACHABLE = (OfflineModeIsEnabled, LocalEntryNotFoundError, httpx.TransportError, ConnectionError)


def is_out_of_memory(error: BaseException) -> bool:
    """Whether an allocation failed, on any device."""
    return any(
        isinstance(cause, torch.OutOfMemoryError | MemoryError)
        or (isinstance(cause, OSError) and cause.errno == errno.ENOMEM)
        or (isinstance(cause, RuntimeError) and any(w in str(cause).lower() for w in _NO_MEMORY))
        for cause in causes(error)
    )


def explain(name: str, error: BaseException, saved_with: str | None = None) -> str:
    """One or two sentences on why `name` cannot be loaded, and what to do about it.

    `saved_with` is the transformers version that the checkpoint names.
    """
    chain = list(causes(error))
    text = " ".join(str(cause) for cause in chain)
    kinds = {type(cause) for cause in chain}

    def has(*classes: type[BaseException]) -> bool:
        return any(issubclass(kind, classes) for kind in kinds)

    if has(GatedRepoError):
        return (
            f"{name} is gated. Accept its terms at https://huggingface.co/{name}, then log in with "
            "`hf auth login` (or set HF_TOKEN)."
        )
    if has(RepositoryNotFoundError):
        return (
            f"There is no model {name} on Hugging Face, or it is private. Check the spelling; for "
            "a private one log in with `hf auth login`."
        )
    if has(HFValidationError):
        return f"{name!r} is neither a folder nor a Hugging Face id (owner/model)."
    if has(*UNREACHABLE) or "connect to" in text.lower():
        return (
            f"{name} is not on this machine and Hugging Face cannot be reached. Connect to the "
            "network (and unset HF_HUB_OFFLINE), or give the folder of a copy."
        )
    if any(isinstance(c, OSError) and c.errno == errno.ENOSPC for c in chain):
        return f"The disk is full: {name} cannot be stored. Free some space, or set HF_HOME."
    if "does not recognize this architecture" in text:
        known = f"{name} is of a type that transformers {transformers.__version__} does not know."
        return known + _update(saved_with)
    if has(SafetensorError):
        return f"{name}: a weights file is damaged or incomplete. Delete it and fetch it again."
    if has(json.JSONDecodeError) or "valid JSON" in text:
        return f"{name}: one of its JSON files is damaged ({_first_line(error)})."
    hint = _update(saved_with) if is_newer(saved_with, transformers.__version__) else ""
    if has(EntryNotFoundError, FileNotFoundError) or "no file named" in text or (
        "does not appear to have" in text
    ):  # fmt: skip
        return f"{name} is incomplete: {_first_line(error)}{hint}"
    if has(HfHubHTTPError):
        return (
            f"Hugging Face refused to send {name}: {_first_line(error).rstrip('.')}. Try again "
            "later, log in with `hf auth login`, or give the folder of a copy."
        )
    return f"{name} cannot be loaded: {_first_line(error)}{hint}"


def _update(saved_with: str | None) -> str:
    saved = f" It was saved with {saved_with}." if saved_with else ""
    return f"{saved} Update it: pip install --upgrade transformers"


def _first_line(error: BaseException) -> str:
    lines = str(error).strip().splitlines()
    return lines[0] if lines else type(error).__name__
