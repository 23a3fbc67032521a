"""Which methods take part, and with which settings: `METHOD[@BUDGET][:SETTING=VALUE]...`.

    >>> [spec] = parse_specs("recap@63:suffix=off:orders=1+2")
    >>> spec.settings.budget, spec.settings.suffix, spec.settings.orders
    (63, False, (1, 2))

Specs are separated by commas, and nothing in them needs quoting in a shell. A method is one of
`recap.drafters.METHODS`, or one of `BASELINES`: what a user of transformers would pick instead. The
name of a preset stands for all of its specs.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, fields
from typing import Any

from recap.drafters import METHODS
from recap.errors import RecapError, SettingsError
from recap.race import REFERENCE
from recap.settings import Settings

#: Options of `model.generate` by name. A budget sets the option that is called `budget` here.
BASELINES: dict[str, dict[str, Any]] = {
    "transformers-greedy": {},
    "transformers-prompt-lookup": {"prompt_lookup_num_tokens": 10},
}

_SWITCHES = {"on": True, "true": True, "yes": True, "off": False, "false": False, "no": False}
#: What RECAP+ adds, each at the value that it has there.
_ADDED = {
    name: f"{name}={METHODS['recap-plus'].defaults[name]}"
    for name in ("blend", "carry", "runner_up")
}
#: What the ablation changes, one at a time, of RECAP and of RECAP+: parts of the method are left
#: out or replaced by something simpler.
_WITHOUT = (
    "orders=1",
    "orders=1+2",
    "orders=2+3",
    "persist=off",
    "suffix=off",
    "alpha=0:beta=0",
    "fusion=back-off",
    "seed_prompt=off",
)

#: Lists of specs by name.
PRESETS: dict[str, tuple[str, ...]] = {
    "default": (
        "recap@adaptive",
        "recap-plus@adaptive",
        "recap@63",
        "recap-plus@63",
        "token-recycling@80",
        "token-recycling@adaptive",
        "prompt-lookup",
        "autoregressive",
        "transformers-greedy",
        "transformers-prompt-lookup",
    ),
    "token-recycling-budgets": tuple(
        f"token-recycling@{n}" for n in (8, 16, 24, 32, 48, 80, "adaptive")
    ),
    "ablation": (
        "token-recycling@80",
        "recap@63",
        *(f"recap@63:{change}" for change in _WITHOUT),
        *(f"recap@63:{change}" for change in _ADDED.values()),
        f"recap@63:{_ADDED['blend']}:{_ADDED['carry']}",
        f"recap@63:{_ADDED['blend']}:{_ADDED['runner_up']}",
        f"recap@63:{_ADDED['carry']}:{_ADDED['runner_up']}",
        "recap-plus@63",
    ),
    "ablation-plus": (
        "recap-plus@63",
        *(f"recap-plus@63:{change}" for change in _WITHOUT),
        *(f"recap-plus@63:{name}=0" for name in _ADDED),
    ),
}


@dataclass(frozen=True)
class Spec:
    """One method as it takes part. `label` is what it is called in tables and files.

    Exactly one of `settings` (a drafter's) and `options` (of `model.generate`) is set.
    """

    label: str
    method: str
    settings: Settings | None = None
    options: dict[str, Any] | None = None


def parse_specs(text: str) -> list[Spec]:
    """The methods that a comma-separated list names, and autoregressive where it is missing.

    Raises `RecapError` for what is not a spec, `SettingsError` for a setting out of range.
    """
    words = [word.strip() for word in text.split(",") if word.strip()]
    if not words:
        raise RecapError("--methods must name at least one method.")
    specs = [parse_spec(word) for word in _expand(words)]
    if all(spec.label != REFERENCE for spec in specs):
        specs.insert(0, parse_spec(REFERENCE))  # what every answer is compared with
    return specs


def _expand(words: Iterable[str]) -> list[str]:
    """Presets as their specs; what is named twice takes part once."""
    return list(dict.fromkeys(spec for word in words for spec in PRESETS.get(word, (word,))))


def parse_spec(text: str) -> Spec:
    """One spec. Raises as `parse_specs`."""
    head, *changes = text.split(":")
    name, at, budget = head.partition("@")
    if at and not budget:
        raise RecapError(f"{text!r} names no budget: write for example {name}@63.")
    if name in BASELINES:
        return _baseline(text, name, budget, changes)
    if name not in METHODS:
        raise RecapError(
            f"There is no method {name!r}. Methods: {', '.join([*METHODS, *BASELINES])}; "
            f"presets: {', '.join(PRESETS)}."
        )
    values: dict[str, Any] = {"budget": _value("budget", budget)} if budget else {}
    for change in changes:
        field, equals, value = change.partition("=")
        if not equals or not field or not value:
            raise RecapError(f"{text!r}: {change!r} is not SETTING=VALUE.")
        if field in values:
            raise RecapError(f"{text!r} sets {field} twice.")
        values[field] = _value(field, value)
    return Spec(text, name, settings=METHODS[name].settings(**values))


def _baseline(text: str, name: str, budget: str, changes: list[str]) -> Spec:
    options = dict(BASELINES[name])
    if changes or (budget and not options):
        raise RecapError(f"{name} has no settings: leave out {text.removeprefix(name)!r}.")
    if budget:
        if not budget.isdecimal() or not int(budget):
            raise RecapError(f"{text!r}: {budget!r} is not a number of tokens.")
        options = dict.fromkeys(options, int(budget))
    return Spec(text, name, options=options)


def _value(field: str, text: str) -> Any:
    """A setting's value as typed; whether it fits is for `Settings` to say.

    Tuples are joined by plus signs (`orders=1+2`), switches are `on` or `off`.
    """
    kinds = {spec.name: type(spec.default) for spec in fields(Settings)}
    kind = kinds.get(field)
    if kind is None:
        raise SettingsError(field, f"is not a setting. Settings: {', '.join(kinds)}")
    if kind is tuple:
        return tuple(_number(part) for part in text.split("+"))
    if kind is bool:
        return _SWITCHES.get(text, text)
    return _number(text)


def _number(text: str) -> Any:
    """A number where the text is one, else the text."""
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            pass
    return text
