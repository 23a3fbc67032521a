"""Finds the families: every module of a package that holds adapters.

An adapter's file holds the adapter, a subclass of `Target` that names its `model_type`s in
`families`, and `TINY`, small random models of it by name. That is all there is to registering one.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Iterable

from recap.targets.base import Target
from recap.targets.tiny import Tiny


def discover(package: str, path: Iterable[str]) -> tuple[dict[str, type[Target]], dict[str, Tiny]]:
    """(adapters by the `model_type` that they serve, small models by name) of a package.

    Raises `ValueError` where two adapters claim one `model_type`.
    """
    adapters: dict[str, type[Target]] = {}
    tiny: dict[str, Tiny] = {}
    for found in pkgutil.iter_modules(path):
        module = importlib.import_module(f"{package}.{found.name}")
        for value in vars(module).values():
            if not isinstance(value, type) or value.__module__ != module.__name__:
                continue
            if not issubclass(value, Target):
                continue
            for family in value.families:
                if family in adapters:
                    raise ValueError(f"{family} is served by {adapters[family]} and by {value}")
                adapters[family] = value
        tiny.update(getattr(module, "TINY", {}))
    return adapters, tiny
