"""RECAP: predictions under one-, two- and three-token keys, fused and composed best-first.

The method of arXiv 2611.05894. RECAP+ is this same class with three settings on, each of which can
be switched alone (`recap.settings`): *blend* keeps a share of the old prediction when a key
repeats; *carry* lets 2- and 3-token entries of earlier requests stand in, at a discount, where this
one has none; *runner-up* offers the root's runners-up once more, one token later.
"""

from __future__ import annotations

from collections.abc import Sequence

from recap.drafters.base import Learned, Outcome, give_reason
from recap.fusion import Fusion, Ranked, mix
from recap.memory import PersistentMemory, RequestMemory
from recap.prediction import SEED_STEP, Prediction, predictions_from_rows
from recap.settings import Settings
from recap.suffix import SuffixIndex
from recap.tree import CandidateTree, Lookup, best_first


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
        self._ends = ends
        self.memory = RequestMemory(persistent, settings)
        self.seed_rows = settings.seed_rows if settings.seed_prompt else 0
        self._fusion = Fusion(settings)
        self._index = SuffixIndex(settings.suffix_max_match, settings.suffix_occurrence)
        # Evidence of a match of n tokens: the chance that at least one of them tells something.
        longest = settings.suffix_max_match + settings.suffix_length
        self._suffix_shares = [1 - (1 - settings.suffix_trust) ** n for n in range(longest + 1)]
        self._runner_up: Ranked = []

    def propose(self, text: Sequence[int], limit: int) -> CandidateTree:
        """See `Drafter.propose`."""
        settings = self.settings
        tree = CandidateTree.at(text)
        if settings.suffix:
            self._index.extend(text[len(self._index.text) :])
            match, continuation = self._index.propose(
                settings.suffix_min_match, settings.suffix_length
            )
        else:
            match, continuation = 0, []
        # Rows along which the suffix path runs -> how many of its tokens led there.
        on_suffix = {0: 0} if continuation else {}
        lookup, fusion, shares = self.memory.lookup, self._fusion, self._suffix_shares
        ends = self._ends

        def expand(row: int) -> Ranked:
            if tree.token[row] in ends:
                return []
            hits = lookup(tree.token[row], tree.previous[row], tree.before[row])
            if hits:
                weights = fusion.weights(hits)
                ranked = fusion.fuse(hits, weights)
            else:
                weights, ranked = [], []
            found = Lookup(hits, weights)
            if row == 0 and self._runner_up:
                ranked = mix(ranked, self._runner_up, settings.runner_up)
                found = found._replace(
                    runner_up=self._runner_up, runner_up_share=settings.runner_up
                )
            if on_suffix:
                used = on_suffix.get(tree.parent[row])
                if used is not None and continuation[used : used + 1] == [tree.token[row]]:
                    on_suffix[row] = used + 1
                used = on_suffix.get(row)
                if used is not None and used < len(continuation):
                    token, share = continuation[used], shares[match + used]
                    ranked = mix(ranked, [(token, 1.0)], share)
                    found = found._replace(
                        suffix_token=token, suffix_match=match + used, suffix_share=share
                    )
            tree.lookups[row] = found
            return ranked

        best_first(
            tree,
            expand,
            budget=settings.budget,
            max_depth=min(settings.max_depth, limit),
            width=settings.width,
            depth_factor=settings.depth_factor,
        )
        return give_reason(tree, settings.budget, self.memory_entries())

    def observe(self, outcome: Outcome) -> Learned:
        """Write every row under its keys, rejected ones first, so that the accepted win."""
        rows = outcome.rows
        predictions = predictions_from_rows(rows.ids, rows.probs, self.memory.request, outcome.step)
        if self.settings.runner_up and outcome.emitted:
            self._runner_up = _without(predictions[outcome.chooser], outcome.emitted[-1])
        if outcome.step == SEED_STEP and not self.seed_rows:
            return Learned()
        accepted = set(outcome.path)
        order = [row for row in range(len(predictions)) if row not in accepted] + outcome.path
        writes = self.memory.write(
            outcome.own, outcome.previous, outcome.before, predictions, order
        )
        return Learned(writes)

    def memory_entries(self) -> dict[str, int]:
        """See `Drafter.memory_entries`."""
        return self.memory.entries()

    def memory_bytes(self) -> dict[str, int]:
        """See `Drafter.memory_bytes`."""
        return self.memory.nbytes()


def _without(prediction: Prediction, token: int) -> Ranked:
    """A prediction without one token, normalised to one."""
    rest = [
        (t, p)
        for t, p in zip(prediction.ids, prediction.probs, strict=True)
        if t != token and p > 0
    ]
    total = sum(p for _, p in rest)
    return [(t, p / total) for t, p in rest] if total > 0 else []
