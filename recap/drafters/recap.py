"""RECAP: predictions under one-, two- and three-token keys, fused and composed best-first.

The method of arXiv 2611.05894. RECAP+ is this same class with deeper trees, a larger depth factor
and three settings on, each of which can be switched alone (`recap.settings`): *blend* keeps a share
of the old prediction when a one-token key repeats, or a longer one in a later request; *carry* lets
2- and 3-token entries of earlier requests stand in, at a discount, where this one has none, and
their texts continue where the suffix matches better there; *runner-up* offers the root's runners-up
once more, one token later.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from recap.calibration import LEVELS, Calibration
from recap.compiled import ints
from recap.drafters.base import Learned, Outcome, give_reason
from recap.fusion import Weighting
from recap.memory import PersistentMemory, RequestMemory
from recap.prediction import SEED_STEP, Prediction, predictions_from_rows
from recap.search import KINDS, Extras, Found, Limits, judge, search
from recap.settings import ADAPTIVE, Settings
from recap.suffix import SuffixIndex
from recap.tree import CandidateTree, Floors, RunnerUp

#: Trust in a fused score by its level, before any data: about what the bundled model and a
#: language model of 135 M parameters show. Low scores deserve it; the middle is too sure of itself.
_PRIORS = (0.8, 0.8, 0.85, 0.9, 0.9, 0.9, 0.85, 0.75, 0.7, 0.7, 0.7, 0.75, 0.9)


class RecapDrafter:
    """RECAP on one request; `persistent` is the session's memory and is written to.

    Nothing is drafted behind one of `ends`: the answer would be over there.
    """

    def __init__(
        self,
        persistent: PersistentMemory,
        settings: Settings,
        ends: frozenset[int] = frozenset(),
    ) -> None:
        self.settings = settings
        self._ends = ints(sorted(ends))
        self._index = SuffixIndex(settings.suffix_max_match, settings.suffix_occurrence)
        self.memory = RequestMemory(persistent, settings)
        self.seed_rows = settings.seed_rows if settings.seed_prompt else 0
        self._weighting = Weighting.of(settings)
        # Evidence of a match of n tokens: the chance that at least one of them tells something.
        longest = settings.suffix_max_match + settings.suffix_length
        self._suffix_shares = [1 - (1 - settings.suffix_trust) ** n for n in range(longest + 1)]
        self._runner_up = RunnerUp()
        self._calibration = Calibration(self.memory.counts, 2 * KINDS, _PRIORS)
        # A fixed budget asks for no trust, and learns none.
        fixed = settings.budget != ADAPTIVE
        self._flat = np.full((2 * KINDS, LEVELS), settings.depth_factor) if fixed else None
        self._found: Found | None = None  # by the last proposal

    def propose(self, text: Sequence[int], limit: int, floors: Floors) -> CandidateTree:
        """See `Drafter.propose`."""
        settings = self.settings
        tree = CandidateTree.at(text)
        self.memory.carry_text(text)
        match, continuation, carried = self._suffix(text)
        shares = self._suffix_shares[match : match + len(continuation)]
        extras = Extras.of(self._runner_up, continuation, shares, self._ends)
        flat = self._flat
        found = search(
            np.array([tree.token[0], tree.previous[0], tree.before[0]]),
            self.memory.readers(),
            self._weighting,
            extras,
            self._calibration.factors() if flat is None else flat,
            floors,
            Limits(min(settings.max_depth, limit), settings.width),
        )
        self._found = found
        tree.fill(found.nodes, found.scores, lambda: found.lookups(extras, match, carried))
        if found.stopped:
            tree.reason = "does-not-pay"
        return give_reason(tree, floors, self.memory_entries())

    def _suffix(self, text: Sequence[int]) -> tuple[int, list[int], bool]:
        """Match length, continuation, and whether it is from the text of an earlier request.

        Such a one must match longer than this request's own.
        """
        settings = self.settings
        if not settings.suffix:
            return 0, [], False
        self._index.extend(text[len(self._index.text) :])
        match, continuation = self._index.propose(settings.suffix_min_match, settings.suffix_length)
        if settings.carry:
            longer = max(settings.suffix_min_match, match + 1)
            found = self.memory.texts.propose(
                text[-settings.suffix_max_match :], longer, settings.suffix_length
            )
            if found[0]:
                return *found, True
        return match, continuation, False

    def observe(self, outcome: Outcome) -> Learned:
        """Write every row under its keys, rejected ones first, so that the accepted win."""
        rows = outcome.rows
        self._judge(outcome)
        predictions = predictions_from_rows(rows.ids, rows.probs, self.memory.request, outcome.step)
        if self.settings.runner_up and outcome.emitted:
            self._runner_up = _runners_up(
                predictions[outcome.chooser], outcome.emitted[-1], self.settings.runner_up
            )
        if outcome.step == SEED_STEP and not self.seed_rows:
            return Learned()
        accepted = set(outcome.path)
        order = [row for row in range(len(predictions)) if row not in accepted] + outcome.path
        writes = self.memory.write(outcome.contexts, predictions, order)
        return Learned(writes)

    def _judge(self, outcome: Outcome) -> None:
        """Learn what the candidates at the accepted rows were worth, verified or not."""
        found, self._found = self._found, None
        if found is None or self._flat is not None:
            return
        path = ints(outcome.path[: len(outcome.emitted)])
        judge(found, path, ints(outcome.rows.choice), self._calibration.table)

    def memory_entries(self) -> dict[str, int]:
        """See `Drafter.memory_entries`."""
        return self.memory.entries()

    def memory_bytes(self) -> dict[str, int]:
        """See `Drafter.memory_bytes`."""
        return self.memory.nbytes()


def _runners_up(prediction: Prediction, token: int, share: float) -> RunnerUp:
    """A prediction without one token, normalised to one."""
    rest = [
        (t, p)
        for t, p in zip(prediction.ids, prediction.probs, strict=True)
        if t != token and p > 0
    ]
    total = sum(p for _, p in rest)
    if total <= 0:
        return RunnerUp()
    return RunnerUp(tuple(t for t, _ in rest), tuple(p / total for _, p in rest), share)
