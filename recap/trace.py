"""Step and Trace: all that the app, the files and the benchmark read of a run.

A `Trace` is one run: what was asked, what answered, and one `Step` a verification pass. Everything
is plain data, so that a trace can be saved, sent, and replayed without a model:

    trace.save("run.json")
    assert Trace.load("run.json") == trace

Numbering. A step's *rows* are the root (row 0) and its nodes; node i is row i + 1. In `Nodes`,
`parent` is a node's number, -1 for the root. Orders are 1, 2, 3; as a bitmask 1, 2, 4.
`recap.schema` describes the fields.
"""

from __future__ import annotations

import json
import math
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from recap import schema
from recap.errors import TraceError, brief
from recap.files import write_whole

TRACE_VERSION = 1
#: Stands for infinity, which JSON has not.
LARGEST = 1e30
#: Largest trace file that is read, in bytes.
MAX_TRACE_BYTES = 200_000_000


@dataclass(slots=True)
class Nodes:
    """The candidate tree's nodes as parallel lists; see `recap.schema`."""

    token: list[int] = field(default_factory=list)
    parent: list[int] = field(default_factory=list)
    depth: list[int] = field(default_factory=list)
    orders: list[int] = field(default_factory=list)
    primary: list[int] = field(default_factory=list)
    weights: list[tuple[float, ...]] = field(default_factory=list)
    fused: list[float] = field(default_factory=list)
    path: list[float] = field(default_factory=list)
    pop: list[int] = field(default_factory=list)
    source: list[str] = field(default_factory=list)
    key: list[tuple[int, ...]] = field(default_factory=list)
    state: list[str] = field(default_factory=list)

    def __len__(self) -> int:
        return len(self.token)


@dataclass(slots=True)
class Lookups:
    """What every expanded row hit, one entry a hit; see `recap.schema`."""

    row: list[int] = field(default_factory=list)
    order: list[int] = field(default_factory=list)
    carried: list[bool] = field(default_factory=list)
    entry: list[int] = field(default_factory=list)
    specificity: list[float] = field(default_factory=list)
    weight: list[float] = field(default_factory=list)

    def __len__(self) -> int:
        return len(self.row)


@dataclass(slots=True)
class Entries:
    """The predictions that a step's lookups hit, each once; see `recap.schema`."""

    ids: list[tuple[int, ...]] = field(default_factory=list)
    probs: list[tuple[float, ...]] = field(default_factory=list)
    concentration: list[float] = field(default_factory=list)
    confidence: list[float] = field(default_factory=list)
    request: list[int] = field(default_factory=list)
    step: list[int] = field(default_factory=list)

    def __len__(self) -> int:
        return len(self.ids)


@dataclass(slots=True)
class Emitted:
    """A token added to the text, what supplied it, and the top two log-probabilities there."""

    token: int
    source: str
    top2: list[float]


@dataclass(slots=True)
class Step:
    """One verification pass; see `recap.schema`."""

    index: int
    position: int
    root: int
    nodes: Nodes
    rows: dict[str, list[Any]]
    lookups: Lookups
    expanded: list[int]
    suffix: list[dict[str, Any]]
    runner_up: dict[str, Any] | None
    entries: Entries
    writes: dict[str, dict[str, Any]]
    emitted: list[Emitted]
    accepted_length: int
    budget: dict[str, Any]
    seconds: dict[str, float]
    memory: dict[str, int]

    @property
    def matched(self) -> int:
        """Drafted tokens that were accepted."""
        return sum(token.source != "bonus" for token in self.emitted)

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Step:
        """The inverse of `dataclasses.asdict`. Raises `TraceError` for other fields."""
        _refuse_misfit(data, schema.STEP, "step")
        values = dict(data)
        values["nodes"] = _columns(Nodes, data["nodes"], "weights", "key")
        values["lookups"] = _columns(Lookups, data["lookups"])
        values["entries"] = _columns(Entries, data["entries"], "ids", "probs")
        values["emitted"] = [Emitted(**emitted) for emitted in data["emitted"]]
        step = cls(**values)
        step.check()
        return step

    def check(self) -> None:
        """Raise `TraceError` unless the parts fit each other."""
        count = len(self.nodes)
        for node, parent in enumerate(self.nodes.parent):
            if not -1 <= parent < node:
                raise TraceError(f"Step {self.index}: node {node} comes before its parent.")
        if any(len(values) != count + 1 for values in self.rows.values()):
            raise TraceError(f"Step {self.index}: rows and nodes do not fit.")
        looked_up = [*self.lookups.row, *self.expanded, *(found["row"] for found in self.suffix)]
        if any(not 0 <= row <= count for row in looked_up):
            raise TraceError(f"Step {self.index}: a lookup names a row that is not there.")
        if any(not 0 <= entry < len(self.entries) for entry in self.lookups.entry):
            raise TraceError(f"Step {self.index}: a lookup names an entry that is not there.")
        if self.accepted_length != len(self.emitted):
            raise TraceError(f"Step {self.index}: accepted_length is not the emitted tokens.")


@dataclass(slots=True)
class Trace:
    """One run; see the module's docstring. `finish` is one of `schema.FINISHES`."""

    id: str
    created: str
    model: str
    family: str
    device: str
    dtype: str
    versions: dict[str, str]
    method: str
    settings: dict[str, Any]
    prompt: str
    image: dict[str, Any] | None
    prompt_tokens: int
    image_tokens: int
    prefill: dict[str, Any]
    max_new_tokens: int
    request: int = 0
    steps: list[Step] = field(default_factory=list)
    vocabulary: dict[str, dict[str, Any]] = field(default_factory=dict)
    finish: str | None = None
    message: str | None = None
    text: str = ""
    token_ids: list[int] = field(default_factory=list)
    memory: dict[str, Any] = field(default_factory=dict)
    identical: dict[str, Any] | None = None
    version: int = TRACE_VERSION

    @property
    def passes(self) -> int:
        """Verification passes; the prefill is not one."""
        return len(self.steps)

    @property
    def emitted(self) -> list[Emitted]:
        """Every token of the answer with its source, the prefill's first."""
        if self.prefill["first_token"] is None:
            return []
        first = Emitted(self.prefill["first_token"], "prefill", self.prefill["top2"])
        return [first, *(token for step in self.steps for token in step.emitted)]

    @property
    def mat(self) -> float | None:
        """Mean accepted length: tokens a pass, the prefill's token not counted."""
        if not self.steps:
            return None
        return sum(step.accepted_length for step in self.steps) / len(self.steps)

    @property
    def seconds(self) -> dict[str, float]:
        """Seconds by phase: prefill, draft, verify, commit, observe, and their total."""
        result = {"prefill": float(self.prefill["seconds"])}
        for phase in ("draft", "verify", "commit", "observe"):
            result[phase] = sum(step.seconds[phase] for step in self.steps)
        result["total"] = sum(result.values())
        return result

    @property
    def tokens_per_second(self) -> float | None:
        """Tokens after the first over the time after the prefill; None without any."""
        seconds = self.seconds
        spent = seconds["total"] - seconds["prefill"]
        emitted = sum(step.accepted_length for step in self.steps)
        return emitted / spent if spent > 0 and emitted else None

    def to_json(self) -> dict[str, Any]:
        """The trace as plain JSON data."""
        return asdict(self)

    @classmethod
    def from_json(cls, data: Any) -> Trace:
        """The inverse of `to_json`. Raises `TraceError` for other versions and malformed data."""
        if not isinstance(data, dict) or type(data.get("version")) is not int:
            raise TraceError("This is not a trace: it has no version.")
        if data["version"] != TRACE_VERSION:
            raise TraceError(
                f"This trace has version {brief(data['version'])}; this program reads version "
                f"{TRACE_VERSION}. Record it again, or use the program that wrote it."
            )
        rest = {name: value for name, value in data.items() if name != "steps"}
        _refuse_misfit(rest, schema.TRACE, "trace")
        if not isinstance(data.get("steps"), list):
            raise TraceError("This trace is malformed: it has no steps.")
        trace = cls(**{**rest, "steps": [Step.from_json(step) for step in data["steps"]]})
        if trace.token_ids != [emitted.token for emitted in trace.emitted]:
            raise TraceError("This trace is malformed: the steps' tokens are not the answer's.")
        return trace

    def save(self, path: str | Path) -> None:
        """Write the trace as one JSON file (UTF-8), whole or not at all. Raises `OSError`."""
        write_whole(path, self.dumps())

    def dumps(self) -> str:
        """The trace as JSON text, without insignificant spaces."""
        return json.dumps(self.to_json(), separators=(",", ":"), allow_nan=False)

    @classmethod
    def load(cls, path: str | Path) -> Trace:
        """Read a file that `save` wrote. Raises `TraceError`."""
        path = Path(path)
        try:
            if path.stat().st_size > MAX_TRACE_BYTES:
                raise TraceError(f"'{path.name}' is larger than {MAX_TRACE_BYTES // 1_000_000} MB.")
            return cls.loads(path.read_text("utf-8"))
        except OSError as error:  # its own words would say where the server keeps it
            raise TraceError(f"'{path.name}' cannot be read: {error.strerror}.") from None
        except UnicodeDecodeError as error:
            raise TraceError(f"'{path.name}' cannot be read: {error}") from None

    @classmethod
    def loads(cls, text: str) -> Trace:
        """Read JSON text. Raises `TraceError`."""
        try:
            data = json.loads(text, parse_constant=_refuse_constant)
        except (ValueError, RecursionError) as error:
            raise TraceError(f"This is not a trace: {error}") from None
        return cls.from_json(data)


def finite(value: float, digits: int = 6) -> float:
    """A float for JSON: rounded, and large instead of infinite."""
    if math.isfinite(value):
        return round(value, digits)
    return 0.0 if math.isnan(value) else math.copysign(LARGEST, value)


def _refuse_misfit(data: Any, shape: Any, what: str) -> None:
    wrong = schema.misfit(data, shape)
    if wrong is not None:
        where = brief(wrong or "fields", 80).strip("'")
        raise TraceError(f"This trace is malformed: a {what} has no proper {where}.")


def _columns(cls: type, data: dict[str, list[Any]], *tuples: str) -> Any:
    """A dataclass of parallel lists, all of one length; the columns of `tuples` hold tuples."""
    if len({len(column) for column in data.values()}) > 1:
        raise TraceError(f"This trace is malformed: columns of {cls.__name__} differ in length.")
    return cls(
        **{
            name: [tuple(value) for value in column] if name in tuples else list(column)
            for name, column in data.items()
        }
    )


def _refuse_constant(name: str) -> float:
    raise ValueError(f"{name} is not a number in JSON")
