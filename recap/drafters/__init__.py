"""The methods. A new one is a file here and a line in `METHODS`.

drafter = METHODS["recap"].start(persistent_memory, settings)
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from importlib import import_module
from typing import TYPE_CHECKING, Any

from recap.drafters.base import Drafter, Learned, Outcome, Rows
from recap.errors import SettingsError, brief
from recap.settings import Settings

if TYPE_CHECKING:
    from recap.memory import PersistentMemory

__all__ = ["METHODS", "Drafter", "Learned", "Method", "Outcome", "Rows", "get_method"]


@dataclass(frozen=True)
class Method:
    """A drafting method: how it is called, what it defaults to, how it starts on a request.

    `drafter` is where its class is, as "module.Class" of this package. It is imported when it is
    needed: names and defaults are there at once, and compiled code takes a moment.
    """

    name: str
    title: str
    summary: str
    drafter: str
    defaults: dict[str, Any] = field(default_factory=dict)
    #: Whether it keeps anything across requests.
    remembers: bool = True

    def settings(self, base: Settings | None = None, **changes: Any) -> Settings:
        """This method's own settings: `base`, its defaults, then `changes`."""
        return replace(base or Settings(), **{**self.defaults, **changes})

    def load(self) -> type[Drafter]:
        """The drafter's class. The first time it is imported, and compiled where it must be."""
        module, name = self.drafter.split(".")
        return getattr(import_module(f"{__name__}.{module}"), name)

    def start(
        self,
        persistent: PersistentMemory,
        settings: Settings,
        ends: frozenset[int] = frozenset(),
    ) -> Drafter:
        """A drafter for one request. It reads and writes `persistent`; `ends` end an answer."""
        return self.load()(persistent, settings, ends)


#: In the order in which ties between them are broken and in which they are listed.
METHODS: dict[str, Method] = {
    method.name: method
    for method in (
        Method(
            "recap",
            "RECAP",
            "Fuses what followed the last one, two and three tokens; builds the tree best-first.",
            "recap.RecapDrafter",
        ),
        Method(
            "recap-plus",
            "RECAP+",
            "RECAP whose entries blend, carry over between requests, and reuse runners-up.",
            "recap.RecapDrafter",
            {
                "blend": 0.3,
                "carry": 0.5,
                "runner_up": 0.1,
                "depth_factor": 0.75,
                "max_depth": 16,
                "suffix_length": 8,
            },
        ),
        Method(
            "token-recycling",
            "Token Recycling",
            "Follows the last token's latest predictions along a tree of ranks.",
            "token_recycling.TokenRecyclingDrafter",
            {"orders": (1,)},
        ),
        Method(
            "prompt-lookup",
            "Prompt lookup",
            "Copies what followed the last time the text ended like this.",
            "prompt_lookup.PromptLookupDrafter",
            remembers=False,
        ),
        Method(
            "autoregressive",
            "Autoregressive",
            "One token a pass: no speculation at all.",
            "autoregressive.AutoregressiveDrafter",
            {"budget": 0},
            remembers=False,
        ),
    )
}


def get_method(name: str) -> Method:
    """The method of this name. Raises `SettingsError` that lists the names."""
    try:
        return METHODS[name]
    except (KeyError, TypeError):  # unknown, or nothing that can be a name
        raise SettingsError(
            "method", f"must be one of {', '.join(METHODS)}, got {brief(name)}"
        ) from None
