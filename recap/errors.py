"""Errors that say what to do.

Everything the engine raises on purpose is a `RecapError`: its message is one sentence for the
person at the screen, so a command line can print it and an app can show it as it stands.
"""

from __future__ import annotations

from collections.abc import Iterator


def brief(value: object, most: int = 60) -> str:
    """A value as a message may quote it: its repr, cut where it has no end."""
    try:
        text = repr(value)
    except Exception:  # whole numbers of thousands of digits refuse, nested lists recurse
        text = f"a value of type {type(value).__name__}"
    return text if len(text) <= most else f"{text[: most - 1]}…"


def causes(error: BaseException | None) -> Iterator[BaseException]:
    """An error and all that caused it, the outermost first; each once, also where they go round."""
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        yield error
        error = error.__cause__ or error.__context__


class RecapError(Exception):
    """Base of all errors the engine raises on purpose."""


class SettingsError(RecapError, ValueError):
    """A setting is out of its documented range. `field` names it."""

    def __init__(self, field: str, message: str) -> None:
        super().__init__(f"{field}: {message}")
        self.field, self._message = field, message

    def __reduce__(self) -> tuple[type[SettingsError], tuple[str, str]]:
        return type(self), (self.field, self._message)  # so that other processes can raise it


class ImageError(RecapError):
    """A picture cannot be read, or cannot be used by this model."""


class PromptError(RecapError):
    """A prompt is empty, too long, or cannot be put through the model's chat template."""


class ContextError(RecapError):
    """The prompt leaves no room for an answer in the model's context."""


class ModelError(RecapError):
    """A model is unknown, cannot be loaded, or has a part that this engine does not support."""


class ProcessorError(RecapError):
    """A logits processor, or a generation setting, cannot be applied to each row of a tree."""


class MemoryMismatchError(RecapError):
    """A saved memory belongs to another tokenizer, vocabulary or version."""


class TraceError(RecapError):
    """A trace file is malformed or of a version that this program cannot read."""
