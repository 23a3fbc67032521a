"""The one model that is loaded, shared by all sessions.

Switching keeps the old model until the new one is ready, and frees it then. Only the worker whose
turn it is asks for a model, so two loads never overlap.
"""

from __future__ import annotations

import gc
import os
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from app.assets import ROOT
from recap.errors import ModelError
from recap.known import KNOWN

if TYPE_CHECKING:  # torch and transformers take seconds to import, and the page need not wait
    from recap.targets import Target

TINY_RANDOM = "tiny-random"


def default_model() -> str:
    """`RECAP_MODEL`, else the bundled model, else (where that is missing) the tiny random one."""
    if chosen := os.environ.get("RECAP_MODEL"):
        return chosen
    return "demo" if (ROOT / "assets" / "demo-vlm" / "config.json").is_file() else TINY_RANDOM


def model_choices() -> list[tuple[str, str]]:
    """(label, name) of the models that the page offers."""
    titles = {"demo": "Bundled demo model", TINY_RANDOM: "Tiny random model (says nonsense)"}
    # The page is about pictures: a model that sees none is left to the command line.
    offered = [known.name for known in KNOWN.values() if known.takes_pictures]
    names = dict.fromkeys([default_model(), *offered, TINY_RANDOM])
    return [(titles.get(name, name), name) for name in names]


def other_models_allowed() -> bool:
    """Whether a person may name any model: not on a public Space, whose disk is not theirs."""
    return "SPACE_ID" not in os.environ


class ModelShelf:
    """Holds the current target; `get` switches it."""

    def __init__(self, load: Callable[[str], Any] | None = None) -> None:
        self._load = load or _load
        self._current: Target | None = None
        self._name = ""

    @property
    def current(self) -> Target | None:
        return self._current

    def get(self, name: str, note: Callable[[str], None] = lambda text: None) -> Target:
        """The target of this name, loading it where it is not the current one.

        Raises `ModelError`; the current model then stays as it is.
        """
        if self._current is not None and self._name == name:
            return self._current
        if not isinstance(name, str):
            raise ModelError("A model is chosen by its name.")
        known = {choice for _, choice in model_choices()}
        if name not in known and not other_models_allowed():
            raise ModelError(f"{name!r} is not offered here. Choose one of the list.")
        note(f"Loading {name}…")
        target = self._load(name)
        self._current, self._name = target, name
        gc.collect()  # the old weights, now that nothing refers to them
        _empty_cache()
        note("")
        return target


def _load(name: str) -> Target:
    from recap.targets import load_target

    return load_target(name)


def _empty_cache() -> None:
    import torch

    if torch.cuda.is_available():
        torch.cuda.empty_cache()
