"""What one person keeps between requests: a persistent memory for each method.

session = Session(load_target("demo"))
run = session.run("Describe this picture.", image, "recap-plus")
run.finish_all()                      # the next run of this method starts with what it learnt

A session also keeps the memory over calls of `model.generate`; see `recap.generation`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from PIL import Image

from recap.decoding import Run, new_memory
from recap.drafters import get_method
from recap.memory import PersistentMemory
from recap.race import Race
from recap.settings import Settings
from recap.targets.base import Target


class Session:
    """The persistent memories of one person on one target."""

    def __init__(self, target: Target) -> None:
        self.target = target
        self.memories: dict[str, PersistentMemory] = {}

    def memory(self, method: str) -> PersistentMemory:
        """The memory of a method; empty at first."""
        get_method(method)
        if method not in self.memories:
            self.memories[method] = new_memory(self.target)
        return self.memories[method]

    def clear(self) -> None:
        """Forget everything that was learnt."""
        self.memories.clear()

    def run(
        self,
        prompt: str,
        image: Image.Image | None = None,
        method: str = "recap",
        *,
        settings: Settings | None = None,
        **options: Any,
    ) -> Run:
        """A run on this session's memory; `options` as `Run` has them."""
        request = self.target.prepare(prompt, image)
        return Run(
            self.target, request, method, settings=settings, memory=self.memory(method), **options
        )

    def race(
        self,
        prompt: str,
        image: Image.Image | None = None,
        methods: Sequence[str] = ("recap", "token-recycling", "autoregressive"),
        **options: Any,
    ) -> Race:
        """A race on copies of this session's memories; `options` as `Race` has them."""
        request = self.target.prepare(prompt, image)
        return Race(self.target, request, methods, memories=self.memories, **options)
