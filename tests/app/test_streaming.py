"""From what was asked to the page's values."""

import copy
import json
import threading
from dataclasses import replace

from PIL import Image

from app.events import Events
from app.hosting import Host
from app.jobs import Asked
from app.models import ModelShelf
from app.racing import stream_race
from app.state import SessionState, Shown
from app.streaming import stream
from recap.decoding import Run
from recap.drafters import METHODS
from recap.errors import ModelError


def test_the_last_value_is_whole(target, shelf, turnstile, ask):
    """It has every step with its details, the end, and the engine's tokens."""
    state = SessionState()
    *_, last = stream(state, ask(), "any", shelf, turnstile)
    expected = Run(target, target.prepare("Say something."), max_new_tokens=40).finish_all()
    assert state.trace.token_ids == expected.token_ids
    assert state.trace.text == expected.text
    assert len(last["steps"]) == len(last["details"]) == len(state.trace.steps)
    assert json.loads(last["end"])["finish"] == "length"
    emitted = [e[0] for text in last["steps"] for e in json.loads(text)["e"]]
    assert emitted == expected.token_ids[1:]


def test_every_shown_token_has_its_words(shelf, turnstile, ask):
    """No token is ever shown by its number: words come no later than what needs them."""
    state = SessionState()
    for value in stream(state, ask(), "any", shelf, turnstile):
        known = {word[0] for text in value["vocabulary"] for word in json.loads(text)}
        if value["first"]:
            assert json.loads(value["first"])["token"] in known
        for text in value["steps"]:
            step = json.loads(text)
            assert {step["r"], *step["n"]["t"], *step["n"]["y"]} <= known


def test_memory_stays_between_runs_and_can_be_cleared(shelf, turnstile, ask):
    """The second run starts with what the first learnt; Clear empties it."""
    state = SessionState()
    list(stream(state, ask(), "any", shelf, turnstile))
    assert state.trace.memory["start"]["entries"]["1"] == 0
    list(stream(state, ask(), "any", shelf, turnstile))
    assert state.trace.memory["start"]["entries"]["1"] > 0
    assert state.size()[0] > 0
    state.clear()
    assert state.size() == (0, 0)
    list(stream(state, ask(), "any", shelf, turnstile, remember=False))
    assert state.size() == (0, 0)


def test_clear_during_a_run_is_not_undone(shelf, turnstile, ask):
    """What the run that goes on hands back afterwards is not kept."""
    state = SessionState()
    values = stream(state, ask(tokens=200), "any", shelf, turnstile)
    for value in values:
        if value["steps"]:
            break
    state.clear()
    list(values)
    assert state.size() == (0, 0)


def test_clear_waits_while_the_memories_are_bounded(target, monkeypatch):
    """A run's thread bounds them, and Clear comes from the page's."""
    state = SessionState()
    clear = threading.Thread(target=state.clear)

    def settle():
        if clear.ident is None:
            clear.start()
            clear.join(0.2)  # as far as it comes

    monkeypatch.setattr(state.memory(target, "recap"), "settle", settle)
    state.memory(target, "recap-plus")
    state.bound(0)
    clear.join(10)
    assert state.memories(target.name) == {}


def test_closing_the_stream_stops_the_run(shelf, turnstile, ask):
    """A tab that is closed ends its run; the trace so far stays."""
    state = SessionState()
    values = stream(state, ask("autoregressive", 4000), "any", shelf, turnstile)
    for value in values:
        if value["steps"]:
            break
    values.close()
    state.worker.join(10)
    assert not state.worker.alive
    assert 0 < len(state.trace.steps) < 4000


def test_a_new_run_ends_the_one_before(shelf, turnstile, ask):
    """And its values have a higher number, so that late ones of the old run are dropped."""
    state = SessionState()
    old = stream(state, ask("autoregressive", 4000), "any", shelf, turnstile)
    first = next(old)
    *_, last = stream(state, ask(), "any", shelf, turnstile)
    assert last["serial"] > first["serial"]
    *_, ended = old
    assert json.loads(ended["end"])["finish"] in ("cancelled", "error")


def test_a_run_that_was_replaced_leaves_the_shown_trace_alone(shelf, turnstile, ask, tmp_path):
    """Also where its last events come after a loaded trace, or a newer run, has taken its place."""
    state = SessionState()
    old = stream(state, ask("autoregressive", 4000), "any", shelf, turnstile)
    next(value for value in old if value["steps"])
    path = tmp_path / "trace.json"
    replace(state.trace, id="loaded", finish="cancelled").save(path)
    view, _ = Events(None, shelf, turnstile).load_trace(state, str(path))
    assert view["serial"] == state.shown
    list(old)
    assert state.trace.id == "loaded"
    old = stream(state, ask("autoregressive", 4000), "any", shelf, turnstile)
    next(value for value in old if value["steps"])
    list(stream(state, ask(), "any", shelf, turnstile))
    newer = state.trace
    list(old)
    assert state.trace is newer


def test_a_race_leaves_the_trace_to_the_run_that_it_ended(shelf, turnstile, ask):
    """What is shown above a race is still the run."""
    state = SessionState()
    run = stream(state, ask("autoregressive", 4000), "any", shelf, turnstile)
    next(value for value in run if value["steps"])
    methods = ["recap", "autoregressive"]
    list(stream_race(state, ask(), methods, "any", shelf, turnstile, cold=True))
    *_, last = run
    assert state.trace.finish == "cancelled"
    assert len(state.trace.steps) == len(last["steps"])


def test_a_model_that_cannot_be_loaded_says_why(turnstile, ask):
    """The message is the engine's, and the model before stays."""

    def load(name):
        raise ModelError("no/such is not there. Check its name.")

    *_, last = stream(SessionState(), ask(), "no/such", ModelShelf(load), turnstile)
    assert "Check its name" in json.loads(last["end"])["message"]


def test_sessions_share_nothing():
    """Gradio deep-copies the initial state: each session gets an empty one of its own."""
    state = SessionState()
    state.serial = 7
    other = copy.deepcopy(state)
    assert other.serial == 0
    assert other is not state


def test_the_runs_of_all_sessions_are_bounded_together(target, turnstile, ask):
    """What was shown longest ago goes, but never the latest; a new run shows again."""
    shelf = ModelShelf(lambda name: target, Host(traces_mb=1))
    first, second = SessionState(), SessionState()
    for state, other in ((first, second), (second, first), (first, second)):
        list(stream(state, ask(tokens=120), "any", shelf, turnstile))
        assert state.trace is not None
        assert other.trace is None
    assert second.gone


def test_who_shows_something_anew_is_the_latest():
    """As many go as must, by when they were shown."""
    shown, states = Shown(), [SessionState() for _ in range(4)]
    for state in states:
        state.trace = "a trace"
    for number in (0, 1, 2, 0, 3):
        shown.keep(states[number], 10, 3 * 60)
    assert [state.trace is None for state in states] == [False, True, False, False]
    shown.keep(states[2], 30, 3 * 60)
    assert [state.gone for state in states] == [True, True, False, True]


def test_a_picture_is_decoded_when_its_turn_comes(target, shelf, turnstile, tmp_path):
    """From the path, as an uploaded one; one that went meanwhile is told."""
    path = tmp_path / "picture.png"
    Image.effect_noise((60, 60), 90).save(path)
    state = SessionState()
    settings = METHODS["autoregressive"].settings()
    asked = Asked("What is this?", path, "autoregressive", settings, 4)
    list(stream(state, asked, "any", shelf, turnstile))
    assert state.trace.image["width"] == 60
    path.unlink()
    *_, last = stream(state, asked, "any", shelf, turnstile)
    assert "does not exist" in json.loads(last["end"])["message"]
