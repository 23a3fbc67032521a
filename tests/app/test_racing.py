"""The race as the page gets it."""

import json

from app.charts import tokens_over_time
from app.racing import stream_race
from app.state import SessionState
from app.streaming import stream

METHODS = ["recap", "token-recycling", "autoregressive"]


def test_lanes_end_with_a_verdict(shelf, turnstile, ask):
    """Every lane arrives whole, all agree, and each point of its curve has its own clock."""
    *_, race = stream_race(SessionState(), ask(), METHODS, "any", shelf, turnstile, cold=False)
    value = race.value()
    end = json.loads(value["end"])
    assert [lane["name"] for lane in value["lanes"]] == METHODS
    assert end["finished"]
    for lane in value["lanes"]:
        assert end["comparison"][lane["name"]]["identical"]["first_difference"] is None
        emitted = 1 + sum(len(json.loads(text)["e"]) for text in lane["steps"])
        clocks, tokens = zip(*race.curves[lane["name"]], strict=True)
        assert tokens[-1] == emitted
        assert list(clocks) == sorted(clocks)
        known = {word[0] for text in lane["vocabulary"] for word in json.loads(text)}
        assert json.loads(lane["first"])["token"] in known
    assert len(tokens_over_time(race.curves).data) == 3


def test_a_race_leaves_the_sessions_memory_as_it_was(shelf, turnstile, ask):
    """Lanes work on copies; unequal histories are flagged, and none are with a cold start."""
    state = SessionState()
    list(stream(state, ask(), "any", shelf, turnstile))
    before = state.size()
    *_, race = stream_race(state, ask(), METHODS, "any", shelf, turnstile, cold=False)
    assert state.size() == before
    assert race.value()["unequal"]
    *_, race = stream_race(state, ask(), METHODS, "any", shelf, turnstile, cold=True)
    assert not race.value()["unequal"]


def test_closing_a_race_stops_it(shelf, turnstile, ask):
    state = SessionState()
    values = stream_race(state, ask(tokens=4000), METHODS, "any", shelf, turnstile, cold=False)
    for race in values:
        if any(race.curves.values()):
            break
    values.close()
    state.worker.join(20)
    assert not state.worker.alive
