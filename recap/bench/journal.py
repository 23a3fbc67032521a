"""What is done stays done: finished prompts are on disk at once, and a crashed run goes on.

`FILE.partial.jsonl` has a line with the configuration, then one line a finished prompt. Warm
memories lie beside it as one file a prompt, written before the line that makes it count and deleted
once the next one is there, so that lines and memories always fit, whenever the process dies.
"""

from __future__ import annotations

import json
import os
import zipfile
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO, Any, Protocol

import numpy as np

from recap.bench.statistics import Result
from recap.errors import RecapError
from recap.files import write_whole

VERSION = 1


class Keeper(Protocol):
    """Who has something to keep between prompts."""

    label: str

    def state(self) -> dict[str, Any] | None:
        """Plain data, or None."""
        ...

    def restore(self, state: dict[str, Any]) -> None:
        """The inverse."""
        ...


class Journal:
    """The finished prompts of one process. Without a path it keeps them in memory only.

    `finished` counts the prompts that are done, `results` holds what was measured on those that
    could be asked. Raises `RecapError` where the file is in the way or belongs to another run.
    """

    def __init__(
        self,
        path: Path | None,
        configuration: dict[str, Any],
        total: int,
        *,
        resume: bool = False,
    ) -> None:
        self.results: list[Result] = []
        self.finished = 0
        self._path = path
        self._total = total
        self._file: IO[str] | None = None
        if path is None:
            return
        header = {"version": VERSION, **configuration, "total": total}
        try:
            lines = _complete_lines(path)
            if resume and lines:
                self._read(lines, header)
            else:
                _refuse_unfinished(path, lines)
                lines = [json.dumps(header)]
            self._rewrite(lines)
        except OSError as error:
            raise RecapError(f"'{path.name}' cannot be written: {error.strerror}.") from None

    def restore(self, keepers: Sequence[Keeper]) -> None:
        """Give everyone back what was kept after the last finished prompt."""
        if self._path is None or not self.finished or self.finished == self._total:
            return
        if not any(keeper.state() for keeper in keepers):
            return
        saved = _memories(self._path, self.finished)
        try:
            with np.load(saved, allow_pickle=False) as arrays:
                states = {
                    label: _unpack(arrays, label) for label in json.loads(str(arrays["labels"]))
                }
        except (OSError, EOFError, ValueError, KeyError, zipfile.BadZipFile) as error:
            raise RecapError(
                f"'{saved.name}' cannot be read ({error}): start again without --resume."
            ) from None
        for keeper in keepers:
            if keeper.label in states:
                keeper.restore(states[keeper.label])

    def append(self, result: Result | None, keepers: Sequence[Keeper]) -> None:
        """A prompt is done; None where it could not be asked."""
        self.finished += 1
        if result is not None:
            self.results.append(result)
        if self._file is None or self._path is None:
            return
        try:
            self._keep(keepers)
            self._file.write(json.dumps(result and result.to_json()) + "\n")
            self._file.flush()
            os.fsync(self._file.fileno())
        except OSError as error:
            raise RecapError(
                f"'{self._path.name}' cannot be written: {error.strerror}. What was finished "
                "before is in it: make room and go on with --resume."
            ) from None
        _memories(self._path, self.finished - 1).unlink(missing_ok=True)
        if self.finished == self._total:
            _memories(self._path, self.finished).unlink(missing_ok=True)

    def close(self) -> None:
        """Nothing more will be appended."""
        if self._file is not None:
            with suppress(OSError):  # a line that did not fit; `append` has said so
                self._file.close()
            self._file = None

    def _read(self, lines: list[str], header: dict[str, Any]) -> None:
        assert self._path is not None
        try:
            found, *results = [json.loads(line) for line in lines]
            if found != header:
                raise RecapError(_difference(self._path.name, found, header))
            self.results = [Result.from_json(data) for data in results if data is not None]
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            raise RecapError(f"'{self._path.name}' is damaged ({error}): delete it.") from None
        self.finished = len(results)

    def _rewrite(self, lines: list[str]) -> None:
        """The file with these lines, without what a crash has left of one; open for more."""
        assert self._path is not None
        write_whole(self._path, "".join(line + "\n" for line in lines))
        self._file = self._path.open("a", encoding="utf-8")

    def _keep(self, keepers: Sequence[Keeper]) -> None:
        assert self._path is not None
        states = {keeper.label: keeper.state() for keeper in keepers}
        arrays: dict[str, Any] = {}
        kept = [label for label, state in states.items() if state is not None]
        if not kept or self.finished == self._total:
            return
        for label in kept:
            _pack(arrays, label, states[label] or {})
        saved = _memories(self._path, self.finished)
        partial = saved.with_name(saved.name + ".tmp")
        try:
            with partial.open("wb") as file:
                np.savez(file, labels=np.array(json.dumps(kept)), **arrays)
                file.flush()
                os.fsync(file.fileno())
            os.replace(partial, saved)
        except OSError:
            partial.unlink(missing_ok=True)
            raise


def partial_path(json_file: str, rank: int = 0) -> Path:
    """Where the process of this rank keeps what is done."""
    return Path(f"{json_file}.partial.{rank}.jsonl" if rank else f"{json_file}.partial.jsonl")


def _memories(path: Path, finished: int) -> Path:
    return path.with_name(f"{path.name.removesuffix('.jsonl')}.memories-{finished}.npz")


def _complete_lines(path: Path) -> list[str]:
    """The lines that were written to their end."""
    if not path.exists():
        return []
    try:
        return path.read_text("utf-8").split("\n")[:-1]
    except UnicodeDecodeError as error:
        raise RecapError(f"'{path.name}' is damaged ({error}): delete it.") from None


def _refuse_unfinished(path: Path, lines: list[str]) -> None:
    """Raise `RecapError` where a new run would wipe what another, of any length, has not finished.

    A finished run is no obstacle, nor one that has not finished a prompt.
    """
    if not lines:
        return
    done = len(lines) - 1
    try:
        total = int(json.loads(lines[0])["total"])
    except (ValueError, TypeError, LookupError):
        raise RecapError(
            f"'{path.name}' is in the way, and is not a journal of this version: delete it."
        ) from None
    if 0 < done < total:
        raise RecapError(
            f"'{path.name}' holds {done} of {total} prompts of an unfinished run: go on from it "
            "with --resume, or delete it."
        )


def _difference(name: str, found: Any, wanted: dict[str, Any]) -> str:
    other = found if isinstance(found, dict) else {}
    differing = [key for key in wanted if other.get(key) != wanted[key]]
    return (
        f"'{name}' belongs to another run: {', '.join(differing) or 'its layout'} differ. "
        "Use the same options, or start again without --resume in another file."
    )


def _pack(arrays: dict[str, Any], prefix: str, state: dict[str, Any]) -> None:
    """Nested plain data as flat arrays: leaves that are not arrays go to one JSON text."""
    plain: dict[str, Any] = {}
    for key, value in _leaves(state):
        if isinstance(value, np.ndarray):
            arrays[f"{prefix}|{json.dumps(key)}"] = value
        else:
            plain[json.dumps(key)] = value
    arrays[f"{prefix}|"] = np.array(json.dumps(plain))


def _leaves(state: dict[Any, Any], above: tuple[Any, ...] = ()) -> list[tuple[list[Any], Any]]:
    found: list[tuple[list[Any], Any]] = []
    for key, value in state.items():
        if isinstance(value, dict) and value:
            found += _leaves(value, (*above, key))
        else:
            found.append(([*above, key], value))
    return found


def _unpack(arrays: Any, prefix: str) -> dict[str, Any]:
    """The inverse of `_pack`."""
    state: dict[Any, Any] = {}
    leaves = dict(json.loads(str(arrays[f"{prefix}|"])))
    for name in arrays.files:
        if name.startswith(f"{prefix}|") and name != f"{prefix}|":
            leaves[name.removeprefix(f"{prefix}|")] = arrays[name]
    for path, value in leaves.items():
        *above, last = json.loads(path)
        place = state
        for key in above:
            place = place.setdefault(key, {})
        place[last] = value
    return state
