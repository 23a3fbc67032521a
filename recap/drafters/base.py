"""The contract between the loop and a method: propose candidates, observe the outcome.

A drafter lives for one request. It sees tokens and predictions, never a model, a tensor or a
clock. Losslessness does not depend on it: whatever it proposes, the target decides.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

import numpy as np

if TYPE_CHECKING:
    from recap.memory import PersistentMemory
    from recap.settings import Settings
    from recap.tree import CandidateTree, Floors


@dataclass(frozen=True, slots=True)
class Rows:
    """What the target said at the rows of one pass, on the host.

    `ids` (rows, K) int, most probable first; `probs` (rows, K) float32 under the full softmax;
    `choice` (rows,): the greedy token of each row; `top2` (rows, 2) float32: the two largest
    log-probabilities. Image placeholders are left out of `ids`, not out of `choice`.
    """

    ids: np.ndarray
    probs: np.ndarray
    choice: list[int]
    top2: np.ndarray


@dataclass(frozen=True, slots=True)
class Outcome:
    """One pass as a drafter may learn from it.

    `contexts` (3, rows) int64: of each row its token, the one before it, and the one before that,
    of which its keys are made (`GAP` where there is none); `rows` the predictions there; `path` the
    accepted rows, root first; `emitted` the tokens that the pass added to the text; `chooser` the
    row that chose the last of them; `step` counts passes from 0, and is `SEED_STEP` for the
    prefill, whose rows are the prompt's last text rows and whose `path` is all of them.
    """

    contexts: np.ndarray
    rows: Rows
    path: list[int]
    emitted: list[int]
    chooser: int
    step: int


@dataclass(slots=True)
class Learned:
    """What an observation changed: by order, the number of new keys, and rows that repeated one."""

    writes: dict[int, tuple[int, list[int]]] = field(default_factory=dict)


class Drafter(Protocol):
    """One method at work on one request.

    It reads and writes `persistent`; `ends` are the tokens that end an answer.
    """

    #: How many of the prompt's last text rows `observe` wants to see after the prefill.
    seed_rows: int

    def __init__(
        self, persistent: PersistentMemory, settings: Settings, ends: frozenset[int]
    ) -> None: ...

    def propose(self, text: Sequence[int], limit: int, floors: Floors) -> CandidateTree:
        """A tree no deeper than `limit`, rooted at text[-1], its nodes in best-first order.

        `text` is the prompt and what was emitted, with `GAP` for image placeholders. `floors` say
        how probable a node must be, and how many there may be.
        """
        ...

    def observe(self, outcome: Outcome) -> Learned:
        """Learn from a pass (or from the prefill)."""
        ...

    def memory_entries(self) -> dict[str, int]:
        """Number of entries by order, for display."""
        ...

    def memory_bytes(self) -> dict[str, int]:
        """Bytes they take, roughly."""
        ...


def give_reason(tree: CandidateTree, floors: Floors, entries: dict[str, int]) -> CandidateTree:
    """Say on an empty tree why it is: no budget, nothing learnt yet, or nothing found.

    What the drafter has said already, that nothing pays, stands.
    """
    if not tree.nodes and tree.reason is None:
        nothing = "no-hit" if any(entries.values()) else "cold"
        tree.reason = nothing if floors.most else "off"
    return tree
