"""Settings, links and exports."""

import csv
import io
import json
import re
from dataclasses import fields

import gradio as gr
import pytest
from gradio.helpers import special_args

from app import assets, exports, links
from app.events import Events
from app.settings_form import SettingsForm
from app.state import SessionState
from recap.drafters import METHODS
from recap.errors import SettingsError
from recap.settings import Settings
from recap.trace import Trace


@pytest.fixture(scope="module")
def form():
    with gr.Blocks(analytics_enabled=False):
        return SettingsForm()


def test_every_setting_has_a_component_with_a_line_of_help(form):
    assert set(form.names) == {spec.name for spec in fields(Settings)}
    assert all(component.info for component in form.components)


@pytest.mark.parametrize("method", METHODS)
def test_what_the_form_shows_reads_back(form, method):
    assert form.read(form.defaults(method)) == METHODS[method].settings()


def test_an_impossible_setting_is_named(form):
    values = form.defaults("recap")
    values[form.names.index("specificity")] = "4, 2, 1"
    with pytest.raises(SettingsError, match="specificity"):
        form.read(values)
    values[form.names.index("specificity")] = "one"
    with pytest.raises(SettingsError, match="specificity"):
        form.read(values)


@pytest.mark.parametrize("event", ["run", "race"])
def test_every_run_knows_its_visitor(form, shelf, turnstile, event):
    """The line is fair by visitor, also for who has never opened the page: Gradio says who asks."""
    state = SessionState()
    events = Events(form, shelf, turnstile)
    do = getattr(events, event)
    settled = {"run": events.settled, "race": events.race_settled}[event]
    asked = [None, "", "recap", 4, "any", *form.defaults("recap")]
    given, *_ = special_args(do, [state, *asked], gr.Request(username="ada"))
    assert len([*do(*given)]) == 1
    notice, _ = settled(state)
    assert "prompt" in notice["text"]
    assert state.visitor == "ada"


def test_a_refusal_stays_until_something_begins(form, shelf, turnstile):
    """Also where a run that was going on ends behind it: its end has nothing to say."""
    events, who, state = Events(form, shelf, turnstile), gr.Request(username="ada"), SessionState()
    rest = ["autoregressive", 8, "any", *form.defaults("recap")]
    going_on = events.run(state, who, None, "Say something.", *rest)
    next(going_on)
    assert events.settled(state)[0]["text"] == ""
    for _ in events.run(state, who, None, "", *rest):
        pass
    for _ in going_on:
        pass
    assert "prompt" in events.settled(state)[0]["text"]
    assert state.trace.finish == "length"
    for _ in events.run(state, who, None, "Say more.", *rest):
        pass
    assert events.settled(state)[0]["text"] == ""


def test_a_finished_race_draws_its_chart_once(form, shelf, turnstile):
    """A refused one behind it has nothing new to draw."""
    events, who, state = Events(form, shelf, turnstile), gr.Request(username="ada"), SessionState()
    asked = [None, "Say something.", "recap", 8, "any", *form.defaults("recap")]

    def race(methods):
        for _ in events.race(state, who, *asked, methods, True):
            pass
        return events.race_settled(state)

    _, chart = race(["recap", "autoregressive"])
    assert chart.visible
    notice, chart = race(["recap"])
    assert "two" in notice["text"]
    assert not isinstance(chart, gr.Plot)


def test_the_budget_is_adaptive_or_a_number(form):
    """Chosen or typed; anything else is named."""
    values = form.defaults("recap")
    place = form.names.index("budget")
    assert values[place] == "adaptive"
    for shown, meant in (("adaptive", "adaptive"), ("63", 63), (" 12 ", 12), (7, 7)):
        values[place] = shown
        assert form.read(values).budget == meant
    assert form.show(Settings(budget=24))[place] == "24"
    for shown in ("-3", "many", "1.5", "", None, "300"):
        values[place] = shown
        with pytest.raises(SettingsError, match="budget"):
            form.read(values)


def test_changing_the_method_changes_only_what_methods_differ_in(form):
    """Every method's preset makes its own settings out of any other's."""
    names = [form.names[form.components.index(component)] for component in form.differing]
    assert "alpha" not in names
    for start in METHODS:
        for method, preset in form.presets.items():
            values = dict(zip(form.names, form.defaults(start), strict=True))
            values.update(zip(names, preset, strict=True))
            assert form.read(list(values.values())) == METHODS[method].settings()


def test_a_link_reads_back():
    link = links.Link("Was ist das? <b>&", "recap-plus", None, 32, None, 4, {"budget": 12})
    query = dict(re.findall(r"([^&=]+)=([^&]*)", links.write(link)))
    from urllib.parse import unquote_plus

    assert links.read({name: unquote_plus(value) for name, value in query.items()}) == link


@pytest.mark.parametrize(
    "query",
    [
        {},
        {"prompt": "x", "method": "no"},
        {"prompt": "x", "settings": "{"},
        {"prompt": "x", "settings": '{"budget": 1e9}'},
        {"prompt": "x", "step": "soon"},
    ],
)
def test_links_that_make_no_sense_are_left_aside(query):
    assert links.read(query) is None


def test_the_trace_export_loads(trace):
    assert Trace.loads(exports.trace_json(trace)) == trace


def test_the_table_has_a_line_a_step_and_says_where_it_came_from(trace):
    text = exports.steps_csv(trace)
    about = [line for line in text.splitlines() if line.startswith("#")]
    assert trace.model in about[0]
    assert trace.versions["torch"] in "".join(about)
    lines = "\n".join(line for line in text.split("\n") if not line.startswith("# "))
    rows = list(csv.DictReader(io.StringIO(lines)))
    assert [int(row["accepted_length"]) for row in rows] == [
        step.accepted_length for step in trace.steps
    ]


def test_a_spreadsheet_takes_no_text_for_a_formula():
    assert exports._inert("=1+1") == "'=1+1"
    assert exports._inert("plain") == "plain"


def test_the_replay_needs_nothing_and_its_data_cannot_break_out(trace):
    trace = Trace.loads(trace.dumps())
    first = next(iter(trace.vocabulary.values()))
    first["text"] = "</script><script>alert(1)</script>"
    trace.prompt = "<img src=x onerror=alert(1)>"
    page = exports.replay_html(trace)
    assert not re.search(r"""(src|href)=["']?(https?:)?//""", page)
    assert "<script>alert" not in page
    assert "<img" not in page
    data = re.search(r'<script type="application/json" id="data">(.*?)</script>', page, re.S)
    assert json.loads(data[1])["steps"]


def test_a_key_is_looked_up_in_the_sessions_memory(target):
    """What an earlier request left can be seen with its words, and nonsense finds nothing."""
    from app.events import found_in
    from recap.decoding import Run, new_memory

    memory = new_memory(target)
    trace = Run(target, target.prepare("Say."), memory=memory, max_new_tokens=8).finish_all()
    token = trace.token_ids[0]
    (found,) = found_in(memory, target, [token])
    assert (found["request"], found["key"]) == (1, [token])
    assert memory.requests == 1
    assert not list(found_in(memory, target, ["x"]))
    assert not list(found_in(memory, target, [-5]))
    assert {word[0] for word in found["words"]} == set(found["ids"])


def test_a_picture_that_is_gone_belongs_to_no_example(tmp_path):
    """A link can still be copied when its upload was tidied away."""
    assert links.example_of(str(tmp_path / "gone.png")) is None
    picture = assets.examples()[0].image
    assert links.example_of(str(picture)) == 0
