"""The transformers that this package is written for. Imported first, so that an older one is named.

Older releases call the cache `past_key_values` and lack some of the families, which would fail
further down in words that help nobody.
"""

from __future__ import annotations

from importlib.metadata import version

from packaging.version import InvalidVersion, Version

from recap.errors import ModelError

#: The oldest release that the adapters work with.
MINIMUM = "5.24"


def check_transformers(installed: str) -> None:
    """Raise `ModelError` where this release of transformers is too old."""
    if is_newer(MINIMUM, installed):
        raise ModelError(
            f"recap needs transformers {MINIMUM} or newer, and {installed} is installed. "
            "Update it: pip install --upgrade transformers"
        )


def is_newer(one: str | None, other: str) -> bool:
    """Whether `one` is a later release than `other`; not so where it is no version at all."""
    try:
        return one is not None and Version(one).release > Version(other).release
    except InvalidVersion:
        return False


check_transformers(version("transformers"))
