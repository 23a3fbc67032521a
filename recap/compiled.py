"""What runs as machine code: the loops that a step repeats hundreds of times.

Drafting a tree of 63 nodes looks up some hundred entries and compares some thousand tokens. Each is
a few instructions, and dozens of microseconds where an interpreter runs them. So these loops are
plain functions over NumPy arrays that Numba compiles; everything around them is ordinary Python.

    @inline                                         # part of whatever calls it
    def double(x): ...

    @kernel(INT(INTS, INT))                         # what Python calls, with its types
    def count(values, limit): ...

A kernel is compiled when its module is imported, so never in the middle of a request, and kept on
disk: beside the source, or where that cannot be written in the user's cache directory. Compiling
everything took 25 seconds on the slowest core that was tried, once; reading it back takes one.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from numba import njit, types

INT, FLOAT, BOOL = types.int64, types.float64, types.boolean
INTS, FLOATS = types.int64[::1], types.float64[::1]
INT_TABLE, FLOAT_TABLE = types.int64[:, ::1], types.float64[:, ::1]
BOOL_TABLE, COUNTS = types.boolean[:, ::1], types.float64[:, :, ::1]
VOID = types.void

#: Not contracted or reordered: the arithmetic is that of the same lines in Python.
inline = njit


def _digest() -> str:
    """Names this version of all sources: Numba looks for changes only in a kernel's own file."""
    sources = sorted(Path(__file__).parent.glob("*.py"))
    sources += sorted(Path(__file__).parent.glob("drafters/*.py"))
    return hashlib.sha256(b"".join(path.read_bytes() for path in sources)).hexdigest()[:12]


_DIGEST = _digest()


def kernel(signature: Any) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Compile a function for these types now.

    It holds Python's lock, as any line of Python does, so no other thread sees half of its work.
    """

    def compile_it(function: Callable[..., Any]) -> Callable[..., Any]:
        function.__qualname__ = f"{function.__qualname__}_{_DIGEST}"
        try:
            made = njit(signature, cache=True)(function)
        except (OSError, RuntimeError):  # nowhere to keep it: then once a process
            made = njit(signature)(function)
        if not made.stats.cache_hits:
            _say_so()
        return made

    return compile_it


@cache
def _say_so() -> None:
    """Once, when the first of them was not on disk."""
    logging.getLogger(__name__).warning(
        "Compiling what drafts. This takes a while, once a machine."
    )


def ints(values: Any) -> np.ndarray:
    """As an array that a kernel takes."""
    return np.ascontiguousarray(values, np.int64)


def floats(values: Any) -> np.ndarray:
    """As an array that a kernel takes."""
    return np.ascontiguousarray(values, np.float64)
