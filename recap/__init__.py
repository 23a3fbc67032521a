"""RECAP: training-free, lossless speculative decoding for vision-language models.

from recap import Run, load_target

target = load_target("demo")
run = Run(target, target.prepare("Describe this picture.", image), "recap")
for step in run.steps():
    ...
print(run.trace.text, run.trace.mat)
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from recap.decoding import Run, new_memory
    from recap.generation import generate
    from recap.session import Session
    from recap.settings import Settings
    from recap.targets import load_target, make_target
    from recap.trace import Step, Trace

__all__ = [
    "Run",
    "Session",
    "Settings",
    "Step",
    "Trace",
    "__version__",
    "generate",
    "load_target",
    "make_target",
    "new_memory",
]

_HOMES = {
    "Run": "recap.decoding",
    "new_memory": "recap.decoding",
    "generate": "recap.generation",
    "Session": "recap.session",
    "Settings": "recap.settings",
    "load_target": "recap.targets",
    "make_target": "recap.targets",
    "Step": "recap.trace",
    "Trace": "recap.trace",
}


def __getattr__(name: str) -> Any:
    """Load the public names on first use: reading a trace needs neither torch nor a model."""
    if name in _HOMES:
        from importlib import import_module

        return getattr(import_module(_HOMES[name]), name)
    raise AttributeError(f"module 'recap' has no attribute {name!r}")
