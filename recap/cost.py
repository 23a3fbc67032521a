"""cost(N): the seconds that a pass of N rows takes, measured once and kept on disk.

    curve = cost_of(target, context=300)
    curve.table(64)[15]              # seconds of a pass of 16 rows

Measured once for a target, its placement, a dtype, a number of threads and a band of context
lengths, in two seconds, or two single-row passes where those take longer, on a cache of its own: no
request's cache or memory is touched. The file lies in the user's cache directory, or where
`RECAP_CACHE` says; without one that can be written, the curve is measured anew in every process. So
is one of a single size: a machine that was so slow may have been busy. What is measured is the
shape of the curve: how fast the machine is at the moment, a run sees for itself (`recap.budget`).
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import platform
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
import transformers

from recap import __version__
from recap.files import write_whole
from recap.tree import CandidateTree

if TYPE_CHECKING:
    from recap.targets.base import Target

#: Seconds that a measurement may take in all, behind two single-row passes.
LIMIT = 2.0
#: Rows that are measured. Few rows closely: matrix products have steps there, not always upwards.
SIZES = (1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 16, 20, 24, 32, 40, 48, 64, 81, 96, 129)
#: The fastest of so many passes counts, where there is time for them.
_REPEATS = 9
#: A size that takes a larger share of the time than this is left to extrapolation.
_LARGEST_SHARE = 0.12
#: Growth for each row, as a share of a single-row pass, where one size is all that was measured.
_GROWTH = 0.02
#: Context lengths are told apart by factors of this, from the shortest band on.
_BAND, _SHORTEST = 4, 64
_TOP_K = 8
_VERSION = 1

#: Curves of this process by key: they serve where nothing can be written.
_known: dict[str, CostCurve] = {}


@dataclass(frozen=True)
class CostCurve:
    """Measured (rows, seconds), by rows. Between them a straight line, behind them the last slope.

    Raises `ValueError` for points that are none.
    """

    points: tuple[tuple[int, float], ...]

    def __post_init__(self) -> None:
        rows = [n for n, _ in self.points]
        if not rows or rows[0] != 1 or rows != sorted(set(rows)):
            raise ValueError("a cost curve starts with one row, and its rows ascend")
        if not all(math.isfinite(s) and s > 0 for _, s in self.points):
            raise ValueError("seconds must be positive")

    def table(self, rows: int) -> list[float]:
        """[n]: seconds of a pass of n + 1 rows, up to this many."""
        result: list[float] = []
        for (n, low), (m, high) in zip(self.points, self.points[1:], strict=False):
            result += [low + (high - low) * i / (m - n) for i in range(m - n)]
        last, seconds = self.points[-1]
        # Over the upper half: two neighbours alone would multiply an error.
        n, low = next(((n, s) for n, s in self.points[:-1] if 2 * n >= last), self.points[0])
        slope = (seconds - low) / (last - n) if last > n else _GROWTH * seconds
        result += [seconds + max(0.0, slope) * i for i in range(max(1, rows - last + 1))]
        return result[:rows]


def cost_of(target: Target, context: int, *, remeasure: bool = False) -> CostCurve:
    """The cost curve of a target behind about this many rows of context.

    From this process or from disk, unless `remeasure`; else measured now.
    """
    length = band(context, target.context)
    about = describe(target, length)
    key = hashlib.sha256(json.dumps(about, sort_keys=True).encode()).hexdigest()[:24]
    if not remeasure:
        found = _known.get(key) or _read(key, about)
        if found is not None:
            _known[key] = found
            return found
    curve = _known[key] = measure(target, length)
    if len(curve.points) > 1:  # else the time was up before there was a shape
        _write(key, about, curve)
    return curve


def band(context: int, longest: int) -> int:
    """The context length that stands for this one: the nearest, by ratio, of a coarse scale."""
    step = round(math.log(max(context, 1) / _SHORTEST, _BAND))
    return max(1, min(_SHORTEST * _BAND ** max(0, step), longest - max(SIZES) - 1))


def describe(target: Target, length: int) -> dict[str, Any]:
    """What a curve belongs to, as JSON data."""
    config = target.model.config
    device = target.device
    text = json.dumps(config.to_dict(), sort_keys=True, default=str)
    return {
        "model": target.name,
        "config": hashlib.sha256(text.encode()).hexdigest(),
        "attention": [
            str(getattr(one, "_attn_implementation", None))
            for one in (config, config.get_text_config())
        ],
        "device": str(device),
        "placement": {
            part: str(place)
            for part, place in (getattr(target.model, "hf_device_map", None) or {}).items()
        },
        "machine": torch.cuda.get_device_name(device)
        if device.type == "cuda"
        else f"{platform.node()} {platform.machine()} {os.cpu_count()}",
        "dtype": str(target.dtype),
        "threads": torch.get_num_threads(),
        "context": length,
        "versions": {
            "torch": torch.__version__,
            "transformers": transformers.__version__,
            "recap": __version__,
        },
    }


def measure(target: Target, length: int) -> CostCurve:
    """Time passes of all sizes behind a context of `length` rows, in `LIMIT` seconds.

    Two single-row passes are run even where they take longer.
    The sizes take turns, so that a disturbance hits all of them, and each gets about the same time.
    """
    started = time.perf_counter()
    verify = _scratch(target, length)  # which warms up what all sizes share

    def timed(rows: int) -> float:
        before = time.perf_counter()
        verify(rows)
        return time.perf_counter() - before

    return measure_by(timed, LIMIT - (time.perf_counter() - started))


def measure_by(
    timed: Callable[[int], float], limit: float, clock: Callable[[], float] = time.perf_counter
) -> CostCurve:
    """The curve of a function that runs a pass of so many rows and says how long it took."""
    ends = clock() + limit
    taken: dict[int, list[float]] = {1: [timed(1)]}
    sizes = list(SIZES)
    while True:
        left = ends - clock()
        affordable = min(left, _LARGEST_SHARE * limit)
        waiting = [
            n
            for n in sizes
            if len(taken.get(n, ())) < _REPEATS
            and _foreseen(taken, n) <= (left if n == 1 else affordable)
        ]
        if not waiting:
            break
        rows = min(waiting, key=lambda n: (sum(taken.get(n, ())), n))
        try:
            taken.setdefault(rows, []).append(timed(rows))
        except RuntimeError:  # no memory for so many rows
            del taken[rows]
            sizes = [n for n in sizes if n < rows]
    return CostCurve(tuple((n, min(seconds)) for n, seconds in sorted(taken.items()) if seconds))


def _foreseen(taken: dict[int, list[float]], rows: int) -> float:
    """Seconds that a pass of this size will take, roughly."""
    known = taken.get(rows)
    if known:
        return min(known)
    smaller = max(n for n in taken if n < rows)
    return min(taken[smaller]) * (1.0 + 0.5 * (rows - smaller) / rows)


def _scratch(target: Target, length: int) -> Callable[[int], None]:
    """A function that verifies a tree of so many rows behind a made-up context."""
    from recap.targets.base import Request  # which imports the tree's parts from here on
    from recap.targets.cache import TreeCache

    token = next(n for n in range(target.vocabulary) if n not in target.placeholders)
    request = Request([token])
    request.cache = TreeCache(target.layers, length + max(SIZES))

    # Before the clock runs: in a run, trees and who sees whom in them are a part of drafting.
    trees = {}
    for size in SIZES:
        tree = trees[size] = CandidateTree(token)
        for _ in range(size - 1):
            tree.add(0, token, 0.0, 0.0)
        tree.ancestry()

    def verify(rows: int) -> None:
        target.verify(request, trees[rows], top_k=_TOP_K)
        target.commit(request, [])
        target.synchronize()

    request.next_position = 1
    verify(1)  # the first pass says what shape the cache has
    request.cache.fill(length)
    request.next_position = length
    return verify


# On disk ------------------------------------------------------------------------------------------


def cache_directory() -> Path | None:
    """Where curves are kept: `RECAP_CACHE`, else the platform's place for a user's caches."""
    if chosen := os.environ.get("RECAP_CACHE"):
        return Path(chosen)
    with suppress(RuntimeError):  # nobody's home
        if base := os.environ.get("XDG_CACHE_HOME"):
            return Path(base) / "recap"
        if sys.platform == "win32":
            base = os.environ.get("LOCALAPPDATA")
            return (Path(base) if base else Path.home() / "AppData" / "Local") / "recap"
        if sys.platform == "darwin":
            return Path.home() / "Library" / "Caches" / "recap"
        return Path.home() / ".cache" / "recap"
    return None


def _file(key: str) -> Path | None:
    directory = cache_directory()
    return directory / f"cost-{key}.json" if directory else None


def _read(key: str, about: dict[str, Any]) -> CostCurve | None:
    """The kept curve, None where there is none or it cannot be trusted."""
    path = _file(key)
    if path is None:
        return None
    try:
        data = json.loads(path.read_text("utf-8"))
        if data["version"] != _VERSION or data["about"] != about:
            return None
        return CostCurve(tuple((int(n), float(s)) for n, s in data["points"]))
    except (OSError, ValueError, LookupError, TypeError, RecursionError):
        return None


def _write(key: str, about: dict[str, Any], curve: CostCurve) -> None:
    """Keep a curve, where that is possible; another process never reads half of it."""
    path = _file(key)
    if path is None:
        return
    text = json.dumps({"version": _VERSION, "about": about, "points": _rounded(curve.points)})
    with suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        write_whole(path, text)


def _rounded(points: Sequence[tuple[int, float]]) -> list[list[Any]]:
    return [[n, float(f"{seconds:.6g}")] for n, seconds in points]
