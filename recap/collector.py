"""Python's garbage collector, told what a decoding process is like.

A run keeps what it makes: a step of a trace is hundreds of small objects, none of them in a cycle.
With Python's usual thresholds the collector looks through them again and again, which cost as much
as a quarter of the recording of a run.
"""

from __future__ import annotations

import gc

#: New objects before the collector looks at the young ones; Python's own number is 700.
_THRESHOLD = 20_000


def calm_collector() -> None:
    """Look through less, less often. Call it once, after the imports."""
    gc.freeze()  # the libraries' own objects stay for good
    gc.set_threshold(_THRESHOLD, 10, 10)
