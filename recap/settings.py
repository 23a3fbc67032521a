"""Every setting of a drafter in one frozen dataclass.

    >>> Settings().budget, Settings(budget=32).budget
    ('adaptive', 32)
    >>> Settings(width=0)
    Traceback (most recent call last):
    ...
    recap.errors.SettingsError: width: must be between 1 and 32, got 0

A setting that a method does not use is ignored by it: Token Recycling has a template, so `width`
means nothing to it. Methods differ in *defaults* (see `recap.drafters`), never in the meaning of a
field.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, field, fields
from typing import Any

from recap.errors import SettingsError, brief

#: Ways to fuse what several orders return; see `recap.fusion`.
FUSIONS = ("entropy-confidence", "back-off")
#: Which earlier occurrence of a suffix supplies its continuation; see `recap.suffix`.
OCCURRENCES = ("recent", "earliest")


#: The budget that pays for itself, instead of a number; see `recap.budget`.
ADAPTIVE = "adaptive"
#: Most nodes that an adaptive budget may take.
MOST_ADAPTIVE_NODES = 128


def _ranged(default: Any, low: float, high: float, help: str) -> Any:
    return field(default=default, metadata={"range": (low, high), "help": help})


def _choice(default: str, choices: tuple[str, ...], help: str) -> Any:
    return field(default=default, metadata={"choices": choices, "help": help})


def _flag(default: bool, help: str) -> Any:
    return field(default=default, metadata={"help": help})


@dataclass(frozen=True)
class Settings:
    """Settings of drafting. Each field's `metadata` holds its range or choices and a line of help.

    Raises `SettingsError`, which names the field, for a value of the wrong type or out of range.
    """

    # The candidate tree.
    budget: int | str = field(
        default=ADAPTIVE,
        metadata={
            "word": ADAPTIVE,
            "range": (0, 256),
            "help": "Nodes in the candidate tree, without the root; adaptive takes as many as pay.",
        },
    )
    width: int = _ranged(8, 1, 32, "Most children that one node may have.")
    max_depth: int = _ranged(10, 1, 32, "Longest path from the root, in tokens.")
    depth_factor: float = _ranged(
        0.6,
        0.05,
        1.0,
        "With a number of nodes: trust in a score, by which each level multiplies a path.",
    )

    # Predictions and the keys they are kept under.
    top_k: int = _ranged(8, 1, 32, "Predictions kept for each row (K).")
    orders: tuple[int, ...] = field(
        default=(1, 2, 3),
        metadata={"help": "Which keys to look up: the last one, two, three tokens."},
    )
    local_capacity: int = _ranged(
        65_536,
        64,
        4_194_304,
        "Entries an order keeps for one request; the oldest written go first.",
    )
    persistent_capacity: int = _ranged(
        262_144,
        64,
        4_194_304,
        "Entries an order keeps across requests; the oldest written go first.",
    )
    persist: bool = _flag(True, "Keep what was learnt for later requests, and use what is kept.")
    seed_prompt: bool = _flag(True, "Let the prompt's own rows fill the memories first.")
    # On a language model of 135 M parameters with 49,152 words, 128 rows took 0.18 s of the
    # prefill, the time of three passes, and 32 a quarter of that; accepted lengths were the same.
    seed_rows: int = _ranged(32, 1, 4096, "Most prompt rows used for that, counted from the end.")

    # Fusion of the orders.
    fusion: str = _choice(
        "entropy-confidence", FUSIONS, "Weigh all orders that hit, or take the longest hit alone."
    )
    specificity: tuple[float, float, float] = field(
        default=(1.0, 2.0, 4.0),
        metadata={"range": (0.0, 1000.0), "help": "Weight of the 1-, 2- and 3-token keys."},
    )
    alpha: float = _ranged(1.0, 0.0, 8.0, "Exponent of concentration in a weight; 0 ignores it.")
    beta: float = _ranged(1.0, 0.0, 8.0, "Exponent of confidence in a weight; 0 ignores it.")
    epsilon: float = _ranged(0.05, 0.0, 1.0, "Floor under concentration, so that no hit is mute.")

    # Suffix-matched continuations.
    suffix: bool = _flag(True, "Propose what followed an earlier occurrence of the current suffix.")
    suffix_length: int = _ranged(4, 1, 16, "Most tokens that a suffix match proposes.")
    suffix_min_match: int = _ranged(2, 1, 8, "Shortest match that proposes anything.")
    suffix_max_match: int = _ranged(8, 1, 16, "Longest match that is looked for.")
    suffix_occurrence: str = _choice(
        "recent", OCCURRENCES, "Which occurrence in this request's own text is continued."
    )
    suffix_trust: float = _ranged(
        0.35,
        0.0,
        1.0,
        "Chance that a matched token carries evidence; longer matches count for more.",
    )

    # What RECAP+ adds. Each is off at 0.
    blend: float = _ranged(
        0.0, 0.0, 0.95, "Share of the old kept when a one-token key repeats, or a longer one later."
    )
    carry: float = _ranged(
        0.0,
        0.0,
        1.0,
        "Weight of earlier requests' 2- and 3-token entries. Above 0, suffixes match their texts.",
    )
    runner_up: float = _ranged(
        0.0, 0.0, 0.5, "Weight of the root's own runners-up, one token later."
    )

    # Verification.
    near_tie_guard: float = _ranged(
        0.0, 0.0, 1.0, "Redo a row alone when its top-two margin (log-probability) is below this."
    )

    def __post_init__(self) -> None:
        for spec in fields(self):
            _check(spec.name, getattr(self, spec.name), spec.metadata, type(spec.default))
        self._check_orders()
        self._check_specificity()
        if self.suffix_min_match > self.suffix_max_match:
            raise SettingsError("suffix_min_match", "must not exceed suffix_max_match")

    @property
    def most_nodes(self) -> int:
        """Nodes that a tree may have at most."""
        return self.budget if isinstance(self.budget, int) else MOST_ADAPTIVE_NODES

    def _check_orders(self) -> None:
        orders = self.orders
        if not isinstance(orders, tuple | list) or not orders:
            raise SettingsError("orders", "must name at least one of 1, 2, 3")
        if any(type(n) is not int or n not in (1, 2, 3) for n in orders):
            raise SettingsError("orders", f"may hold only 1, 2 and 3, got {brief(tuple(orders))}")
        object.__setattr__(self, "orders", tuple(sorted(set(orders))))

    def _check_specificity(self) -> None:
        values = self.specificity
        if not isinstance(values, tuple | list) or len(values) != 3:
            raise SettingsError("specificity", "must be three numbers, for orders 1, 2 and 3")
        for value in values:
            _check_number("specificity", value, 0.0, 1000.0)
        if not values[0] < values[1] < values[2]:
            raise SettingsError("specificity", "must grow with the order: s1 < s2 < s3")
        object.__setattr__(self, "specificity", tuple(float(v) for v in values))

    def to_json(self) -> dict[str, Any]:
        """The settings as plain JSON data."""
        return {k: list(v) if isinstance(v, tuple) else v for k, v in asdict(self).items()}

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Settings:
        """The inverse of `to_json`. Raises `SettingsError` for an unknown field."""
        known = {spec.name for spec in fields(cls)}
        for name in data:
            if name not in known:
                raise SettingsError(brief(name).strip("'"), "is not a setting")
        values: dict[str, Any] = {
            name: tuple(value) if isinstance(value, list) else value for name, value in data.items()
        }
        return cls(**values)


def _check(name: str, value: Any, metadata: Any, kind: type) -> None:
    """Check one scalar field against its declared range, choices or type."""
    if "word" in metadata:
        if value == metadata["word"]:
            return
        if isinstance(value, str):
            raise SettingsError(
                name, f"must be {metadata['word']} or a whole number, got {brief(value)}"
            )
        kind = int
    if kind is tuple:
        return  # tuples have checks of their own
    if "choices" in metadata:
        if value not in metadata["choices"]:
            raise SettingsError(name, f"must be one of {', '.join(metadata['choices'])}")
    elif kind is bool:
        if not isinstance(value, bool):
            raise SettingsError(name, f"must be true or false, got {brief(value)}")
    else:
        if kind is int and (isinstance(value, bool) or not isinstance(value, int)):
            raise SettingsError(name, f"must be a whole number, got {brief(value)}")
        _check_number(name, value, *metadata["range"])


def _check_number(name: str, value: Any, low: float, high: float) -> None:
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if not number or (isinstance(value, float) and not math.isfinite(value)):
        raise SettingsError(name, f"must be a number, got {brief(value)}")
    if not low <= value <= high:
        raise SettingsError(name, f"must be between {low:g} and {high:g}, got {brief(value)}")
