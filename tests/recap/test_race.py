"""Lanes by their own clocks, on their own copies."""

from __future__ import annotations

import pytest
import torch

from recap.decoding import Run
from recap.errors import SettingsError
from recap.race import Race, compare
from recap.session import Session
from tests.recap.reference import METHOD_NAMES, generate, picture, rounding_race, tiny_target


def test_every_lane_gives_the_same_text():
    """Five methods, one request, one answer; the sessions' memories are untouched."""
    target = tiny_target("qwen2_5_vl", 3)
    session = Session(target)
    session.run("go", picture(1), "recap", max_new_tokens=20).finish_all()
    before = session.memory("recap").entries()
    race = session.race("go", picture(2), METHOD_NAMES, max_new_tokens=30)
    assert race.unequal_histories
    order = [lane.name for lane, _ in race.steps()]
    wanted = generate(target, target.prepare("go", picture(2)), 30)
    assert [lane.name for lane in race.lanes] == list(METHOD_NAMES)
    assert order[: len(METHOD_NAMES)] == list(METHOD_NAMES)  # the prefills
    for lane in race.lanes:
        assert lane.run.trace.token_ids == wanted
        assert lane.run.trace.identical["first_difference"] is None
        assert lane.run.trace.identical["compared"] == 30
    assert session.memory("recap").entries() == before
    rows = race.comparison()
    assert rows["autoregressive"]["speedup"] == 1.0
    assert rows["autoregressive"]["mat"] == 1.0
    assert all(row["seconds"] > 0 for row in rows.values())


def test_the_lane_with_the_smallest_clock_steps_next():
    """At every turn, whatever the clocks are."""
    race = Race(tiny_target("llama", 1), tiny_target("llama", 1).prepare("go"), METHOD_NAMES[:3])
    clocks = dict.fromkeys(METHOD_NAMES[:3], 0.0)
    finished: set[str] = set()
    started = 0
    for lane, step in race.steps():
        if step is not None:
            running = {name: c for name, c in clocks.items() if name not in finished}
            assert clocks[lane.name] == min(running.values())
        else:
            started += 1
        clocks[lane.name] = lane.clock
        if lane.finished:
            finished.add(lane.name)
    assert started == len(finished) == 3


def test_the_clock_is_the_sum_of_the_phases():
    """Prefill, draft, verify, commit, observe: nothing else is charged."""
    race = Race(tiny_target("llama", 1), tiny_target("llama", 1).prepare("go"), ["recap"])
    for _ in race.steps():
        pass
    lane = race.lanes[0]
    steps = sum(sum(step.seconds.values()) for step in lane.run.trace.steps)
    assert lane.clock == pytest.approx(lane.run.trace.prefill["seconds"] + steps)


def test_cold_lanes_have_no_history():
    """`cold` starts all lanes alike."""
    session = Session(tiny_target("llama", 1))
    session.run("go", None, "recap", max_new_tokens=20).finish_all()
    race = session.race("go", None, ["recap", "token-recycling"], cold=True)
    assert not race.unequal_histories
    assert set(race.histories.values()) == {0}


def test_a_race_can_be_stopped():
    """Every lane keeps what it has and says that it was stopped."""
    race = Session(tiny_target("llama", 1)).race("go", None, METHOD_NAMES, max_new_tokens=50)
    turns = race.steps()
    for _ in range(9):
        next(turns)
    turns.close()
    assert {lane.run.trace.finish for lane in race.lanes} <= {"cancelled", "length"}
    assert all(lane.run.trace.token_ids for lane in race.lanes)


@pytest.mark.parametrize("methods", [[], ["recap", "recap"], ["recap", "medusa"]])
def test_bad_lanes_are_refused(methods):
    """None, twice, unknown."""
    target = tiny_target("llama", 1)
    with pytest.raises(SettingsError, match="method"):
        Race(target, target.prepare("go"), methods)


def test_compare_finds_the_first_difference():
    """With the log-probabilities of both sides, and also where one answer is shorter."""
    one, other = tiny_target("llama", 1), tiny_target("llama", 2)
    a = Run(one, one.prepare("go"), "recap", max_new_tokens=20).finish_all()
    b = Run(other, other.prepare("go"), "recap", max_new_tokens=20).finish_all()
    place = next(i for i, (x, y) in enumerate(zip(a.token_ids, b.token_ids, strict=True)) if x != y)
    difference = compare(a, b)["first_difference"]
    assert difference["position"] == place
    assert difference["reference"] == {"token": a.token_ids[place], "top2": a.emitted[place].top2}
    assert difference["this"] == {"token": b.token_ids[place], "top2": b.emitted[place].top2}
    short = Run(one, one.prepare("go"), "recap", max_new_tokens=5).finish_all()
    assert compare(a, short)["first_difference"]["position"] == 5
    assert compare(a, short)["first_difference"]["this"]["token"] is None
    assert compare(a, a)["first_difference"] is None


def test_lanes_that_differ_by_rounding_say_where_and_by_how_much():
    """A real difference in bfloat16: the position, both tokens and both log-probabilities."""
    race = rounding_race()
    assert race.target.dtype == torch.bfloat16
    traces = {lane.name: lane.run.trace for lane in race.lanes}
    found = traces["recap"].identical
    assert found == race.comparison()["recap"]["identical"]
    assert found["with"] == "autoregressive"
    difference = found["first_difference"]
    place = difference["position"]
    assert traces["recap"].token_ids[:place] == traces["autoregressive"].token_ids[:place]
    assert difference["this"]["token"] != difference["reference"]["token"]
    for side, name in (("this", "recap"), ("reference", "autoregressive")):
        emitted = traces[name].emitted[place]
        assert difference[side] == {"token": emitted.token, "top2": emitted.top2}
        first, second = emitted.top2
        assert second <= first < 0.0
        # A near-tie: the two are no more than a few steps of bfloat16 apart.
        assert first - second < 0.1, name
    # The other way round it is the same difference, with the sides changed.
    mirrored = traces["autoregressive"].identical["first_difference"]
    assert mirrored == {
        "position": place, "this": difference["reference"], "reference": difference["this"],
    }  # fmt: skip
