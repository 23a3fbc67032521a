"""A GPU lent for one call: the same code in a forked process, with everything pickled."""

import json

import pytest

from app.hosting import Host
from app.models import ModelShelf
from app.racing import stream_race
from app.state import SessionState
from app.streaming import stream
from tests.app.forked import Platform


@pytest.fixture
def platform():
    return Platform()


@pytest.fixture
def lent(target, platform):
    """A shelf whose jobs run in forked processes."""
    return ModelShelf(load=lambda name: target, gpu=platform.gpu)


@pytest.mark.parametrize("method", ["recap", "recap-plus", "token-recycling", "autoregressive"])
def test_texts_are_those_of_the_same_process(lent, shelf, turnstile, ask, method):
    """Two requests each way: equal tokens, equal trees, equal memories behind them."""
    here, there = SessionState(), SessionState()
    for _ in range(2):
        list(stream(here, ask(method), "any", shelf, turnstile))
        *_, last = stream(there, ask(method), "any", lent, turnstile)
        assert there.trace.token_ids == here.trace.token_ids
        assert there.trace.text == here.trace.text
        assert [s.nodes.token for s in there.trace.steps] == [
            s.nodes.token for s in here.trace.steps
        ]
        assert there.size() == here.size()
        assert json.loads(last["end"])["finish"] == "length"


def test_the_memory_comes_back_and_helps_the_next_request(lent, turnstile, ask):
    """Nothing survives in the forked process, so a higher MAT can only come from what came back."""
    state = SessionState()
    list(stream(state, ask(), "any", lent, turnstile))
    first = state.trace
    assert first.memory["start"]["entries"]["1"] == 0
    list(stream(state, ask(), "any", lent, turnstile))
    assert state.trace.memory["start"]["entries"]["1"] > 0
    assert state.trace.text == first.text
    assert state.trace.mat > first.mat


def test_stop_reaches_the_process_and_keeps_what_it_learnt(lent, turnstile, ask):
    """The run ends itself between two passes: it is not killed, so its memory comes back."""
    state = SessionState()
    for value in stream(state, ask("recap", 1000), "any", lent, turnstile):
        if value["steps"]:
            state.stop()
    assert state.trace.finish == "cancelled"
    assert 0 < len(state.trace.token_ids) < 1000
    assert state.size()[0] > 0


def test_a_process_that_dies_is_told_and_harms_nobody(lent, platform, turnstile, ask):
    """The run fails in words, the memories of before are there, and the next run works."""
    state, other = SessionState(), SessionState()
    for session in (state, other):
        list(stream(session, ask(), "any", lent, turnstile))
    text, sizes = state.trace.text, (state.size(), other.size())
    for value in stream(state, ask("recap", 1000), "any", lent, turnstile):
        if value["steps"] and value["end"] is None:
            platform.process.kill()
    assert "GPU task aborted" in json.loads(value["end"])["message"]
    assert (state.size(), other.size()) == sizes
    list(stream(state, ask(), "any", lent, turnstile))
    assert state.trace.text == text


def test_a_device_lost_there_leaves_the_weights_here(lent, target, turnstile, ask, monkeypatch):
    """The forked process had a GPU of its own, and the next run gets another one."""
    state = SessionState()
    list(stream(state, ask(), "any", lent, turnstile))

    def fail(request, **options):
        raise RuntimeError("CUDA error: unspecified launch failure")

    with monkeypatch.context() as broken:
        broken.setattr(target, "prefill", fail)
        *_, last = stream(state, ask(), "any", lent, turnstile)
    assert "a fresh GPU is lent" in json.loads(last["end"])["message"]
    assert lent.current is target
    *_, last = stream(state, ask(), "any", lent, turnstile)
    assert json.loads(last["end"])["finish"] == "length"


def test_errors_keep_their_words_on_the_way(lent, turnstile, ask):
    """What the engine says of a bad request is what the visitor reads."""
    *_, last = stream(SessionState(), ask(prompt=""), "any", lent, turnstile)
    assert json.loads(last["end"])["message"].startswith("The prompt is empty")


def test_the_seconds_asked_for_follow_the_tokens(target, platform, turnstile, ask):
    """Little for little, and never more than the host says: a quota is checked against it."""
    shelf = ModelShelf(lambda name: target, Host(gpu_seconds=40), platform.gpu)
    for tokens in (8, 300, 1000):
        state = SessionState()
        for value in stream(state, ask("recap", tokens), "any", shelf, turnstile):
            if value["steps"]:
                state.stop()
    short, middle, long = platform.durations
    assert short < middle < long == 40


def test_a_race_there_has_the_verdict_of_a_race_here(lent, shelf, turnstile, ask):
    methods = ["recap", "token-recycling", "autoregressive"]
    ends = []
    for where in (shelf, lent):
        *_, race = stream_race(SessionState(), ask(), methods, "any", where, turnstile, cold=False)
        value = race.value()
        end = json.loads(value["end"])
        assert end["finished"]
        texts = [[json.loads(step)["e"] for step in lane["steps"]] for lane in value["lanes"]]
        tokens = [[e[0] for step in steps for e in step] for steps in texts]
        assert tokens[0] == tokens[1] == tokens[2]
        # Token Recycling's budget is adaptive and follows the clock.
        mats = {n: end["comparison"][n]["mat"] for n in ("recap", "autoregressive")}
        ends.append((tokens, mats, end["finish"]))
    assert ends[0] == ends[1]
