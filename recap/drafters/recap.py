"""RECAP: predictions under one-, two- and three-token keys, fused and composed best-first.

The method of arXiv 2611.05894. RECAP+ is this same class with deeper trees, a larger depth factor
and three settings on, each of which can be switched alone (`recap.settings`): *blend* keeps a share
of the old prediction when a one-token key repeats, or a longer one in a later request; *carry* lets
2- and 3-token entries of earlier requests stand in, at a discount, where this one has none;
*runner-up* offers the root's runners-up once more, one token later.
"""

from __future__ import annotations

from collections.abc import Sequence

from recap.calibration import LEVELS, Calibration, level_of
from recap.drafters.base import Learned, Outcome, give_reason
from recap.fusion import Fusion, Ranked, mix
from recap.memory import PersistentMemory, RequestMemory
from recap.prediction import SEED_STEP, Prediction, predictions_from_rows
from recap.settings import ADAPTIVE, Settings
from recap.suffix import SuffixIndex
from recap.tree import CandidateTree, Floors, Lookup, best_first

#: Trust in a fused score by its level, before any data: about what the bundled model and a
#: language model of 135 M parameters show. Low scores deserve it; the middle is too sure of itself.
_PRIORS = (0.8, 0.8, 0.85, 0.9, 0.9, 0.9, 0.85, 0.75, 0.7, 0.7, 0.7, 0.75, 0.9)
#: Groups of families: the longest order that hit, or that the suffix takes part; at the root and
#: below it.
_SUFFIX_KIND = 4
_KINDS = 5


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
        self._calibration = Calibration(self.memory.counts, 2 * _KINDS, _PRIORS)
        self._flat = None if settings.budget == ADAPTIVE else [settings.depth_factor] * LEVELS
        # Of the last proposal: row -> (group, ranked candidates), of every row that was looked up.
        # A fixed budget asks for no trust, and learns none.
        self._families: dict[int, tuple[int, Ranked]] = {}

    def propose(self, text: Sequence[int], limit: int, floors: Floors) -> CandidateTree:
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
        families = self._families = {}
        flat = self._flat
        factors = [] if flat else self._calibration.factors()
        new_tuple, width = tuple.__new__, settings.width

        def expand(row: int) -> Ranked:
            if tree.token[row] in ends:
                return []
            hits = lookup(tree.token[row], tree.previous[row], tree.before[row])
            if hits:
                weights = fusion.weights(hits)
                ranked = fusion.fuse(hits, weights)
            else:
                weights, ranked = [], []
            kind = hits[0].order if hits else 0
            # Half the time of the named tuple's own constructor.
            found = new_tuple(Lookup, (hits, weights, -1, 0, 0.0, (), 0.0))
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
                    kind = _SUFFIX_KIND
                    found = found._replace(
                        suffix_token=token, suffix_match=match + used, suffix_share=share
                    )
            # Nobody asks for more of them, and now they are still in the cache.
            del ranked[width:]
            tree.lookups[row] = found
            if not flat:
                families[row] = (kind if row == 0 else kind + _KINDS, ranked)
            return ranked

        best_first(
            tree,
            expand,
            floors=floors,
            max_depth=min(settings.max_depth, limit),
            trust=(lambda row: flat) if flat else (lambda row: factors[families[row][0]]),
            width=width,
            ceiling=settings.depth_factor if self._flat else 1.0,
        )
        return give_reason(tree, floors, self.memory_entries())

    def observe(self, outcome: Outcome) -> Learned:
        """Write every row under its keys, rejected ones first, so that the accepted win."""
        rows = outcome.rows
        self._judge(outcome)
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

    def _judge(self, outcome: Outcome) -> None:
        """Learn what the candidates at the accepted rows were worth, verified or not.

        Those of the lowest level keep their prior: they are many, and hardly ever worth a row.
        """
        families, self._families = self._families, {}
        for row in outcome.path[: len(outcome.emitted)]:
            family = families.get(row)
            if family is not None:
                group, ranked = family
                choice, right = outcome.rows.choice[row], -1
                judged: list[tuple[int, float]] = []
                for token, score in ranked:
                    level = level_of(score)
                    if not level:
                        break
                    if token == choice:
                        right = len(judged)
                    judged.append((level, score))
                self._calibration.learn(group, judged, right)

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
