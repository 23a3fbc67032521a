"""What the log may say of an error: its kind and where it happened, never its message.

A message can quote what a visitor sent: a prompt in the wrong field, the name of a picture.
"""

from __future__ import annotations

import logging
import sys
import traceback

import gradio.queueing
import gradio.routes
import gradio.utils

from recap.errors import causes


def places(error: BaseException) -> str:
    """The kind of an error and the lines it came through, innermost last; its causes first."""
    lines = []
    for one in reversed([*causes(error)]):
        lines.append(type(one).__qualname__)
        for frame in traceback.extract_tb(one.__traceback__):
            lines.append(f"  {frame.filename}:{frame.lineno} in {frame.name}")
    return "\n".join(lines)


def keep_contents_out() -> None:
    """From here on neither Gradio nor its web server writes an error's message to the log."""
    for module in (gradio.queueing, gradio.routes, gradio.utils):
        module.traceback = _Places  # they call nothing of it but `print_exc`
    for name in ("uvicorn.error", "asyncio"):
        logging.getLogger(name).addFilter(_without_message)


class _Places:
    """Stands for the module `traceback`."""

    @staticmethod
    def print_exc() -> None:
        error = sys.exc_info()[1]
        if error is not None:
            print(places(error), file=sys.stderr)


def _without_message(record: logging.LogRecord) -> bool:
    if record.exc_info and record.exc_info[1] is not None:
        record.exc_text = places(record.exc_info[1])  # a formatter takes this as it stands
    return True
