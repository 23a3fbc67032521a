"""The methods. A new one is a file here and a line in `METHODS`.

drafter = METHODS["recap"].start(persistent_memory, settings)
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

from recap.drafters.autoregressive import AutoregressiveDrafter
from recap.drafters.base import Drafter, Learned, Outcome, Rows
from recap.drafters.prompt_lookup import PromptLookupDrafter
from recap.drafters.recap import RecapDrafter
from recap.drafters.token_recycling import TokenRecyclingDrafter
from recap.errors import SettingsError, brief
from recap.memory import PersistentMemory
from recap.settings import Settings

__all__ = ["METHODS", "Drafter", "Learned", "Method", "Outcome", "Rows", "get_method"]


@dataclass(frozen=True)
class Method:
    """A drafting method: how it is called, what it defaults to, how it starts on a request."""

    name: str
    title: str
    summary: str
    drafter: Callable[[PersistentMemory, Settings, frozenset[int]], Drafter]
    defaults: dict[str, Any] = field(default_factory=dict)
    #: Whether it keeps anything across requests.
    remembers: bool = True

    def settings(self, base: Settings | None = None, **changes: Any) -> Settings:
        """This method's own settings: `base`, its defaults, then `changes`."""
        return replace(base or Settings(), **{**self.defaults, **changes})

    def start(
        self,
        persistent: PersistentMemory,
        settings: Settings,
        ends: frozenset[int] = frozenset(),
    ) -> Drafter:
        """A drafter for one request. It reads and writes `persistent`; `ends` end an answer."""
        return self.drafter(persistent, settings, ends)


#: In the order in which ties between them are broken and in which they are listed.
METHODS: dict[str, Method] = {
    method.name: method
    for method in (
        Method(
            "recap",
            "RECAP",
            "Fuses what followed the last one, two and three tokens; builds the tree best-first.",
            RecapDrafter,
        ),
        Method(
            "recap-plus",
            "RECAP+",
            "RECAP whose entries blend, carry over between requests, and reuse runners-up.",
            RecapDrafter,
            {"blend": 0.3, "carry": 0.5, "runner_up": 0.1, "depth_factor": 0.75, "max_depth": 16},
        ),
        Method(
            "token-recycling",
            "Token Recycling",
            "Follows the last token's latest predictions along a tree of ranks.",
            TokenRecyclingDrafter,
            {"orders": (1,)},
        ),
        Method(
            "prompt-lookup",
            "Prompt lookup",
            "Copies what followed the last time the text ended like this.",
            PromptLookupDrafter,
            remembers=False,
        ),
        Method(
            "autoregressive",
            "Autoregressive",
            "One token a pass: no speculation at all.",
            AutoregressiveDrafter,
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
