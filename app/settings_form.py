"""The settings accordion, made from `recap.settings.Settings`: a field added there appears here."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import Field, fields
from typing import Any

import gradio as gr

from recap.drafters import METHODS, get_method
from recap.errors import SettingsError, brief
from recap.settings import Settings

#: What most people want to try, in this order; every other setting follows under "More".
_FIRST = (
    "persist", "budget", "top_k", "width", "max_depth", "orders", "specificity", "alpha", "beta",
    "suffix", "suffix_length",
)  # fmt: skip
_LABELS = {
    "persist": "Memory across requests",
    "top_k": "Predictions kept (K)",
    "max_depth": "Depth",
    "alpha": "α: concentration",
    "beta": "β: confidence",
    "epsilon": "ε: floor",
    "suffix": "Suffix",
    "runner_up": "Runner-up",
}
#: Numbers of nodes that are offered; any other can be typed.
_BUDGETS = (8, 16, 24, 32, 48, 63, 80)
#: A longer range than this is typed, not dragged.
_LONGEST_SLIDER = 512


class SettingsForm:
    """Components for every setting, and the way from their values to `Settings`."""

    def __init__(self, method: str = "recap") -> None:
        specs = {spec.name: spec for spec in fields(Settings)}
        order = [name for name in _FIRST if name in specs]
        self.names = [*order, *(name for name in specs if name not in order)]
        self.components: list[Any] = []
        defaults = get_method(method).settings()
        for name in self.names[: len(order)]:
            self.components.append(_component(specs[name], getattr(defaults, name)))
        with gr.Accordion("More", open=False):
            for name in self.names[len(order) :]:
                self.components.append(_component(specs[name], getattr(defaults, name)))

    def read(self, values: Sequence[Any]) -> Settings:
        """The settings that the components hold. Raises `SettingsError`, naming the field."""
        specs = {spec.name: spec for spec in fields(Settings)}
        return Settings(
            **{
                name: _parse(specs[name], value)
                for name, value in zip(self.names, values, strict=True)
            }
        )

    def show(self, settings: Settings) -> list[Any]:
        """Values for the components."""
        specs = {spec.name: spec for spec in fields(Settings)}
        return [_shown(specs[name], getattr(settings, name)) for name in self.names]

    def defaults(self, method: str) -> list[Any]:
        """A method's own values, for Reset."""
        return self.show(get_method(method).settings())

    @property
    def differing(self) -> list[Any]:
        """The components of those settings in which methods differ."""
        return self._differing(self.components)

    @property
    def presets(self) -> dict[str, list[Any]]:
        """By method, what `differing` show after that method was chosen."""
        return {name: self._differing(self.defaults(name)) for name in METHODS}

    def _differing(self, parts: Sequence[Any]) -> list[Any]:
        names = {name for known in METHODS.values() for name in known.defaults}
        return [part for name, part in zip(self.names, parts, strict=True) if name in names]


def _component(spec: Field[Any], value: Any) -> Any:
    label = _LABELS.get(spec.name, spec.name.replace("_", " ").capitalize())
    common = {
        "label": label,
        "info": spec.metadata["help"],
        "value": _shown(spec, value),
        "elem_id": f"setting-{spec.name}",
        "interactive": True,
    }
    if "word" in spec.metadata:
        numbers = [str(number) for number in _BUDGETS]
        return gr.Dropdown([spec.metadata["word"], *numbers], allow_custom_value=True, **common)
    if spec.name == "orders":
        return gr.CheckboxGroup([("1-token", 1), ("2-token", 2), ("3-token", 3)], **common)
    if isinstance(value, tuple):
        return gr.Textbox(**common)
    if "choices" in spec.metadata:
        return gr.Radio(list(spec.metadata["choices"]), **common)
    if isinstance(value, bool):
        return gr.Checkbox(**common)
    low, high = spec.metadata["range"]
    whole = isinstance(value, int)
    if high > _LONGEST_SLIDER:
        return gr.Number(
            minimum=low, maximum=high, precision=0 if whole else None, step=1, **common
        )
    return gr.Slider(low, high, step=1 if whole else 0.01, **common)


def _shown(spec: Field[Any], value: Any) -> Any:
    if "word" in spec.metadata:
        return str(value)
    if isinstance(value, tuple):
        return ", ".join(f"{v:g}" for v in value) if isinstance(value[0], float) else list(value)
    return value


def _parse(spec: Field[Any], value: Any) -> Any:
    if "word" in spec.metadata:
        text = str(value).strip().lower()
        return int(text) if text.isascii() and text.isdigit() else text
    if isinstance(spec.default, tuple) and isinstance(value, str):
        try:
            return tuple(float(part) for part in value.replace(";", ",").split(","))
        except ValueError:
            raise SettingsError(
                spec.name, f"must be numbers with commas, got {brief(value)}"
            ) from None
    if isinstance(spec.default, tuple):
        return tuple(value) if isinstance(value, list | tuple) else value
    if isinstance(spec.default, bool):
        return bool(value)
    if isinstance(spec.default, int) and isinstance(value, float) and value.is_integer():
        return int(value)
    return value
