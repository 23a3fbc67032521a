"""The one model that is loaded, shared by all sessions.

Switching keeps the old model until the new one is ready, and frees it then. Only the worker whose
turn it is asks for a model, so two loads never overlap.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Any

from app.assets import ROOT
from app.faults import is_device_lost, let_go
from app.hosting import Host
from app.jobs import Job, Memories, Stop
from app.lending import Lent
from recap.errors import ModelError
from recap.known import KNOWN

if TYPE_CHECKING:  # torch and transformers take seconds to import, and the page need not wait
    from recap.targets import Target

TINY_RANDOM = "tiny-random"


def default_model(chosen: str = "") -> str:
    """`chosen`, else the bundled model, else (where that is missing) the tiny random one."""
    if chosen:
        return chosen
    return "demo" if (ROOT / "assets" / "demo-vlm" / "config.json").is_file() else TINY_RANDOM


class ModelShelf:
    """Holds the current target; `get` switches it, `events` puts it to work."""

    def __init__(
        self,
        load: Callable[[str], Any] | None = None,
        host: Host | None = None,
        gpu: Callable[..., Any] | None = None,
    ) -> None:
        self.host = host or Host()
        self.default = default_model(self.host.model)
        self._load = load or partial(_load, self.host)
        self._current: Target | None = None
        self._name = ""
        # `gpu` stands in for `spaces.GPU`.
        self._lent = Lent(self, gpu) if gpu or self.host.lends else None

    @property
    def current(self) -> Target | None:
        return self._current

    @property
    def open(self) -> bool:
        """Whether a person may name any model: not on a public Space, whose disk is not theirs."""
        return not self.host.public and not self.host.lends

    def choices(self) -> list[tuple[str, str]]:
        """(label, name) of the models that the page offers."""
        titles = {"demo": "Bundled demo model", TINY_RANDOM: "Tiny random model (says nonsense)"}
        # The page is about pictures: a model that sees none is left to the command line. A GPU
        # that is lent only knows the weights that were there when the app started.
        offered = (known.name for known in KNOWN.values() if known.takes_pictures)
        others = () if self.host.lends else (*offered, TINY_RANDOM)
        return [(titles.get(name, name), name) for name in dict.fromkeys([self.default, *others])]

    def get(self, name: str, note: Callable[[str], None] = lambda text: None) -> Target:
        """The target of this name, loading it where it is not the current one.

        Raises `ModelError`; the current model then stays as it is.
        """
        if self._current is not None and self._name == name:
            return self._current
        if not isinstance(name, str):
            raise ModelError("A model is chosen by its name.")
        known = {choice for _, choice in self.choices()}
        if name not in known and not self.open:
            raise ModelError(f"{name!r} is not offered here. Choose one of the list.")
        note(f"Loading {name}…")
        try:
            target = self._load(name)
        except Exception as error:
            let_go(error)  # a model that was half there
            free_memory()
            raise
        self._current, self._name = target, name
        free_memory()  # the old weights, now that nothing refers to them
        note("")
        return target

    def events(self, job: Job, target: Target, memories: Memories, stop: Stop) -> Iterator[Any]:
        """Do a job on the current target: here, or on a GPU that is lent for it."""
        try:
            if self._lent is not None:
                yield from self._lent.events(job, target, memories, stop)
            else:
                yield from job.events(target, memories, stop, self.host)
        except Exception as error:
            # Where GPUs are lent, it was the forked process's; the weights here are whole.
            if is_device_lost(error) and self._lent is None:
                self._drop()
            let_go(error)
            free_memory()
            raise

    def _drop(self) -> None:
        """Let go of a target whose device does not answer: the next run loads it anew."""
        self._current, self._name = None, ""


def _load(host: Host, name: str) -> Target:
    from recap.drafters import METHODS
    from recap.targets import load_target

    for method in METHODS.values():
        method.load()  # what must be compiled, now and not in a person's first run
    return load_target(
        name,
        device=host.device,
        dtype=host.dtype,
        quantize=host.quantize or None,
        max_pixels=host.max_pixels or None,
    )


def free_memory() -> None:
    """Give back what nothing refers to any more, a failed pass's tensors among it."""
    gc.collect()
    import torch

    if torch.cuda.is_available():
        torch.cuda.empty_cache()
