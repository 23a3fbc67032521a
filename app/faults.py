"""What went wrong, in one sentence for the person at the screen, and what to clean up after it."""

from __future__ import annotations

import errno
import logging
import traceback

from app.logs import places
from recap.errors import RecapError, causes

_log = logging.getLogger(__name__)

_NO_MEMORY = (
    "Out of memory. Use a smaller picture, fewer new tokens, a smaller budget, or a smaller model."
)
#: What a full disk is called to a visitor.
DISK_FULL = (
    "The disk of this app is full. Try again in a few minutes; if this message comes again, "
    "whoever hosts it has to make room."
)
_NO_DEVICE = (
    "The device does not answer any more. The next run loads the model anew; if this message "
    "comes again, the app has to be restarted."
)
#: No space, no quota, or no larger file allowed.
_FULL = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
#: How torch begins the message of a device that failed, whatever was being computed.
_DEVICE_WORDS = ("cuda error", "cudnn error", "cublas error", "no nvidia driver", "no cuda gpus",
                 "no cuda-capable device", "device-side assert", "mps backend")  # fmt: skip


class FaultError(RecapError):
    """Something failed elsewhere, and its explanation came from there. `device`: it was lost."""

    def __init__(self, message: str, device: bool = False) -> None:
        super().__init__(message)
        self.device = device


def explain(error: BaseException) -> str:
    """One sentence for the person at the screen. What nobody expected is logged."""
    if isinstance(error, RecapError):
        return str(error)
    # Known by name, since neither torch nor Gradio needs to be there to explain an error.
    kind = type(error)
    if (kind.__module__, kind.__name__) == ("gradio.exceptions", "Error"):
        return str(getattr(error, "message", error))  # meant for the visitor, as quotas of a Space
    if is_out_of_memory(error):
        return _NO_MEMORY
    if is_disk_full(error):
        return DISK_FULL
    _log.error("A run failed: %s", places(error))
    if is_device_lost(error):
        return _NO_DEVICE
    return f"Something went wrong inside the program ({kind.__name__}); see its log."


def is_out_of_memory(error: BaseException) -> bool:
    """Whether an allocation failed, on any device."""
    if any(isinstance(cause, MemoryError) for cause in causes(error)):
        return True
    from recap.targets.failures import is_out_of_memory

    return is_out_of_memory(error)


def is_disk_full(error: BaseException) -> bool:
    """Whether a file could not be written for want of room."""
    return any(isinstance(cause, OSError) and cause.errno in _FULL for cause in causes(error))


def is_device_lost(error: BaseException) -> bool:
    """Whether a device failed under the computation: a reset, a driver gone, a broken context."""
    if isinstance(error, FaultError):
        return error.device
    return any(
        isinstance(cause, RuntimeError)
        and type(cause).__name__ != "OutOfMemoryError"
        and str(cause).lower().lstrip().startswith(_DEVICE_WORDS)
        for cause in causes(error)
    )


def let_go(error: BaseException) -> None:
    """Drop what the failed calls still hold: tensors of a pass that ran out of memory."""
    for cause in causes(error):
        traceback.clear_frames(cause.__traceback__)
