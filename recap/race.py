"""Several methods on the same request, each advanced by its own compute time.

A *lane* is one method with its own cache, its own copy of the memories and its own clock. The clock
charges prefill, draft, verify, commit and observe; not recording, not the screen. The lane with the
smallest clock steps next, so at any moment the lanes show what each would show if it had the device
alone. Ties go to the order of the registry; a finished lane leaves.

    race = Race(target, request, ["recap", "autoregressive"], max_new_tokens=200)
    for lane, step in race.steps():
        print(lane.name, lane.clock, lane.run.trace.text)
    print(race.comparison())
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from recap.decoding import Run, new_memory
from recap.drafters import METHODS, get_method
from recap.errors import SettingsError
from recap.memory import PersistentMemory
from recap.settings import ADAPTIVE, Settings
from recap.targets.base import Request, Target
from recap.trace import Step, Trace

#: The lane that others are compared with, where it takes part.
REFERENCE = "autoregressive"


@dataclass
class Lane:
    """One method in a race."""

    name: str
    run: Run

    @property
    def clock(self) -> float:
        """Seconds of compute time so far, prefill included."""
        return self.run.trace.seconds["total"]

    @property
    def finished(self) -> bool:
        return self.run.trace.finish is not None


class Race:
    """Lanes of a race over one request that has not been prefilled.

    `memories` are the session's, by method; each lane works on a copy that is dropped afterwards.
    `cold` starts every lane with an empty memory instead. `settings` are by method, where its own
    defaults are not wanted.

    Raises `SettingsError` for an unknown, a repeated or no method.
    """

    def __init__(
        self,
        target: Target,
        request: Request,
        methods: Sequence[str],
        *,
        memories: Mapping[str, PersistentMemory] | None = None,
        settings: Mapping[str, Settings] | None = None,
        max_new_tokens: int = 200,
        stop: Sequence[str] = (),
        cold: bool = False,
    ) -> None:
        if not methods:
            raise SettingsError("methods", "must name at least one method")
        for name in methods:
            get_method(name)
        if len(set(methods)) != len(methods):
            raise SettingsError("methods", "must not repeat a method")
        chosen = settings or {}
        forgetting = {name for name, own in chosen.items() if not own.persist}
        held = {} if cold else {n: m for n, m in (memories or {}).items() if n not in forgetting}
        self.target = target
        self.lanes = []
        for name in sorted(methods, key=list(METHODS).index):
            memory = held[name].copy() if name in held else new_memory(target)
            run = Run(
                target,
                request.twin(),
                name,
                settings=chosen.get(name),
                memory=memory,
                max_new_tokens=max_new_tokens,
                stop=stop,
            )
            self.lanes.append(Lane(name, run))
        #: Earlier requests in each lane's memory. Unequal numbers make an unequal race.
        self.histories = {lane.name: held[lane.name].requests if lane.name in held else 0
                          for lane in self.lanes}  # fmt: skip
        self._request = request

    @property
    def unequal_histories(self) -> bool:
        """Whether some lane's memory has seen more requests than another's."""
        drafting = [n for name, n in self.histories.items() if METHODS[name].remembers]
        return len(set(drafting)) > 1

    def warm_up(self) -> None:
        """Run passes of all sizes up to the largest, so that no lane pays for being the first.

        Sizes go up by factors of two; a fixed budget's own size is among them. What passes cost is
        measured here, too, where a lane's budget asks.
        """
        request = self._request.twin()
        settings = [lane.run.settings for lane in self.lanes]
        top_k = max(s.top_k for s in settings)
        self.target.prefill(request, top_k=top_k, seed_rows=max(s.seed_rows for s in settings))
        self.measure_cost(again=False)
        budgets = {s.most_nodes + 1 for s in settings}
        ladder = {2**n for n in range(9) if 2**n < max(budgets)}
        self.target.warm_up(request, sorted(ladder | budgets), top_k=top_k)

    def measure_cost(self, again: bool = True) -> None:
        """Measure what passes cost, for every lane whose budget asks; `again`: even if known.

        It is one target and one prompt, so that once is enough for all lanes.
        """
        for lane in self.lanes:
            if lane.run.settings.budget == ADAPTIVE:
                lane.run.ready_budget(remeasure=again)
                again = False

    def steps(self) -> Iterator[tuple[Lane, Step | None]]:
        """Advance lanes to the end. The first yield of each lane is its prefill, without a step."""
        self.warm_up()
        passes = {}
        try:
            for lane in self.lanes:
                lane.run.prefill()
                passes[lane.name] = lane.run.steps()
                yield lane, None
            while running := [lane for lane in self.lanes if not lane.finished]:
                lane = min(running, key=lambda lane: lane.clock)  # the first among equals
                yield lane, next(passes[lane.name])
        finally:
            for lane in self.lanes:
                lane.run.cancel()
        for lane in self.lanes:
            lane.run.trace.identical = compare(self._reference(lane), lane.run.trace)

    def comparison(self) -> dict[str, dict[str, Any]]:
        """By lane: clock, speed-up over the reference by total time, MAT, identical."""
        reference = next((lane for lane in self.lanes if lane.name == REFERENCE), None)
        return {
            lane.name: {
                "seconds": lane.clock,
                "speedup": reference.clock / lane.clock if reference and lane.clock else None,
                "passes": lane.run.trace.passes,
                "mat": lane.run.trace.mat,
                "tokens_per_second": lane.run.trace.tokens_per_second,
                "identical": lane.run.trace.identical,
                "history": self.histories[lane.name],
            }
            for lane in self.lanes
        }

    def _reference(self, lane: Lane) -> Trace:
        """What a lane is compared with: autoregressive decoding, else the first other lane."""
        others = [other for other in self.lanes if other is not lane] or [lane]
        named = [other for other in others if other.name == REFERENCE]
        return (named or others)[0].run.trace


def compare(reference: Trace, other: Trace) -> dict[str, Any]:
    """Where two runs of one request first differ, with both log-probabilities there.

    `compared` counts the tokens that both have; `first_difference` is None where all of them, and
    the lengths of two finished runs, are equal.
    """
    compared = min(len(reference.token_ids), len(other.token_ids))
    difference = None
    for position in range(compared):
        if reference.token_ids[position] != other.token_ids[position]:
            difference = position
            break
    else:
        both_ended = {reference.finish, other.finish}.isdisjoint({None, "cancelled", "error"})
        if both_ended and len(reference.token_ids) != len(other.token_ids):
            difference = compared
    if difference is None:
        return {"compared": compared, "with": reference.method, "first_difference": None}
    sides = {}
    for name, trace in (("reference", reference), ("this", other)):
        emitted = trace.emitted
        here = emitted[difference] if difference < len(emitted) else None
        sides[name] = {
            "token": here.token if here else None,
            "top2": here.top2 if here else None,
        }
    return {
        "compared": compared,
        "with": reference.method,
        "first_difference": {"position": difference, **sides},
    }
