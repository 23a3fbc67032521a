"""Step and Trace: all that the app, the files and the benchmark read of a run.

A `Trace` is one run: what was asked, what answered, and one `Step` a verification pass. Everything
is plain data, so that a trace can be saved, sent, and replayed without a model:

    trace.save("run.json")
    assert Trace.load("run.json") == trace

Numbering. A step's *rows* are the root (row 0) and its nodes; node i is row i + 1. In `Nodes`,
`parent` is a node's number, -1 for the root. Orders are 1, 2, 3; as a bitmask 1, 2, 4.
`SCHEMA` describes the fields in words.
"""

from __future__ import annotations

import json
import math
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

from recap.errors import TraceError

TRACE_VERSION = 1
#: Largest trace file that is read, in bytes.
MAX_TRACE_BYTES = 200_000_000

FINISHES = ("eos", "length", "stop", "context", "cancelled", "error")
REASONS = ("cold", "no-hit", "does-not-pay", "limit", "context", "off")
SOURCES = ("memory", "carried", "suffix", "runner-up", "mixed", "template")
EMITTED_SOURCES = (
    "prefill", "1", "2", "3", "carried-2", "carried-3", "suffix", "runner-up", "bonus",
)  # fmt: skip
STATES = ("accepted", "rejected", "unreached")

SCHEMA: dict[str, str] = {
    "step.index": "number of the pass, from 0",
    "step.position": "tokens emitted before it (the prefill's token included)",
    "step.root": "id of the last emitted token, row 0 of the pass",
    "step.nodes": "parallel arrays, one entry a node, in the order of popping",
    "step.nodes.token": "id",
    "step.nodes.parent": "node number of the parent, -1 for the root",
    "step.nodes.depth": "1 for a child of the root",
    "step.nodes.orders": "bitmask of the orders whose entry holds the token (1, 2, 4)",
    "step.nodes.primary": "order with the largest part of the fused score; 0 where none has one",
    "step.nodes.weights": "parts of the fused score: w_n p_n(t) for n = 1, 2, 3, carried included",
    "step.nodes.fused": "fused score among siblings, in [0, 1]",
    "step.nodes.path": "path score: estimated probability that the path is accepted",
    "step.nodes.pop": "when the best-first search popped it, from 0",
    "step.nodes.source": "memory | carried | suffix | runner-up | mixed | template",
    "step.nodes.key": "the longest matched key behind it, as token ids; empty where none matched",
    "step.nodes.state": "accepted | rejected (its parent was accepted) | unreached (it was not)",
    "step.rows": "what the target said: ids and probs (rows x K), choice and top2 a row",
    "step.lookups": "parallel arrays, one entry a hit: the expanded row, the order, whether "
    "carried, the number of the entry in step.entries, its specificity and its weight",
    "step.expanded": "rows that were looked up; an order without a hit there has missed",
    "step.suffix": "rows where the suffix match took part: row, token, match length, share of the "
    "fused score",
    "step.runner_up": "the root's runners-up: ids, probs, share; null where there were none",
    "step.entries": "parallel arrays, the predictions that were hit, each once: ids, probs, "
    "concentration, confidence, and who wrote it: request, step (-1: the prompt)",
    "step.writes": "by order: keys written anew (new) and rows that overwrote a key (overwritten)",
    "step.emitted": "tokens added to the text: token, source, top2 log-probabilities of their row",
    "step.accepted_length": "tokens really emitted: normally matched + 1",
    "step.budget": "k nodes, expected_tokens, expected_seconds (null unless adaptive), reason "
    "(cold | no-hit | does-not-pay | limit | context | off, or null)",
    "step.seconds": "draft, verify, commit, observe",
    "step.memory": "entries by order after the step",
}


@dataclass(slots=True)
class Nodes:
    """The candidate tree's nodes as parallel lists; see `SCHEMA`."""

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
    """What every expanded row hit, one entry a hit; see `SCHEMA`."""

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
    """The predictions that a step's lookups hit, each once; see `SCHEMA`."""

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
    """One verification pass; see `SCHEMA`."""

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
        values = _exactly(cls, data, "step")
        values["nodes"] = _columns(Nodes, values["nodes"], "nodes", "weights", "key")
        values["lookups"] = _columns(Lookups, values["lookups"], "lookups")
        values["entries"] = _columns(Entries, values["entries"], "entries", "ids", "probs")
        values["emitted"] = [Emitted(**_exactly(Emitted, e, "emitted")) for e in values["emitted"]]
        step = cls(**values)
        step.check()
        return step

    def check(self) -> None:
        """Raise `TraceError` unless the parts fit each other."""
        count = len(self.nodes)
        for node, parent in enumerate(self.nodes.parent):
            if not -1 <= parent < node:
                raise TraceError(f"Step {self.index}: node {node} comes before its parent.")
        for values in self.rows.values():
            if values and len(values) != count + 1:
                raise TraceError(f"Step {self.index}: rows and nodes do not fit.")
        if any(not 0 <= entry < len(self.entries) for entry in self.lookups.entry):
            raise TraceError(f"Step {self.index}: a lookup names an entry that is not there.")
        if self.accepted_length != len(self.emitted):
            raise TraceError(f"Step {self.index}: accepted_length is not the emitted tokens.")


@dataclass(slots=True)
class Trace:
    """One run; see the module's docstring. `finish` is one of `FINISHES`."""

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
        if not self.token_ids:
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
        if not isinstance(data, dict) or "version" not in data:
            raise TraceError("This is not a trace: it has no version.")
        if data["version"] != TRACE_VERSION:
            raise TraceError(
                f"This trace has version {data['version']!r}; this program reads version "
                f"{TRACE_VERSION}. Record it again, or use the program that wrote it."
            )
        try:
            values = _exactly(cls, data, "trace")
            values["steps"] = [Step.from_json(step) for step in values["steps"]]
            trace = cls(**values)
            trace._check()
        except TraceError:
            raise
        except (TypeError, ValueError, KeyError, AttributeError, RecursionError) as error:
            raise TraceError(f"This trace is malformed: {error}") from None
        return trace

    def save(self, path: str | Path) -> None:
        """Write the trace as one JSON file (UTF-8)."""
        Path(path).write_text(self.dumps(), "utf-8")

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
        except (OSError, UnicodeDecodeError) as error:
            raise TraceError(f"'{path.name}' cannot be read: {error}") from None

    @classmethod
    def loads(cls, text: str) -> Trace:
        """Read JSON text. Raises `TraceError`."""
        try:
            data = json.loads(text, parse_constant=_refuse_constant)
        except (ValueError, RecursionError) as error:
            raise TraceError(f"This is not a trace: {error}") from None
        return cls.from_json(data)

    def _check(self) -> None:
        if self.finish is not None and self.finish not in FINISHES:
            raise TraceError(f"finish is {self.finish!r}, not one of {', '.join(FINISHES)}.")
        emitted = sum(step.accepted_length for step in self.steps)
        if self.token_ids and len(self.token_ids) != 1 + emitted:
            raise TraceError("The steps' tokens are not the answer's.")


def finite(value: float, digits: int = 6) -> float:
    """A float for JSON: rounded, and large instead of infinite."""
    if math.isfinite(value):
        return round(value, digits)
    return 0.0 if math.isnan(value) else math.copysign(1e30, value)


def _exactly(cls: type, data: Any, what: str) -> dict[str, Any]:
    """`data` as keyword arguments of a dataclass: all of its fields and no others."""
    if not isinstance(data, dict):
        raise TraceError(f"This trace is malformed: a {what} is not an object.")
    names = {spec.name for spec in fields(cls)}
    if data.keys() != names:
        odd = ", ".join(sorted(map(str, data.keys() ^ names)))
        raise TraceError(f"This trace is malformed: {what} has missing or unknown fields ({odd}).")
    return dict(data)


def _columns(cls: type, data: Any, what: str, *tuples: str) -> Any:
    """A dataclass of parallel lists, all of one length; the columns of `tuples` hold tuples."""
    values = _exactly(cls, data, what)
    lengths = set()
    for name, column in values.items():
        if not isinstance(column, list):
            raise TraceError(f"This trace is malformed: {what}.{name} is not a list.")
        lengths.add(len(column))
        if name in tuples:
            values[name] = [tuple(value) for value in column]
    if len(lengths) > 1:
        raise TraceError(f"This trace is malformed: the columns of {what} differ in length.")
    return cls(**values)


def _refuse_constant(name: str) -> float:
    raise ValueError(f"{name} is not a number in JSON")
