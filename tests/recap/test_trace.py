"""Traces: exact round trips, polite refusals, numbers that agree with each other."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from recap.cost import CostCurve
from recap.decoding import Run, new_memory
from recap.drafters import METHODS
from recap.errors import TraceError
from recap.inspection import render_trace
from recap.schema import EMITTED_SOURCES, REASONS, SCHEMA, SOURCES, STATES, STEP
from recap.trace import Step, Trace
from tests.recap.reference import METHOD_NAMES, picture, tiny_target


@pytest.fixture(scope="module")
def traces():
    """One real trace a method, warm, with a picture."""
    target = tiny_target("qwen2_5_vl", 3)
    made = {}
    for method in METHOD_NAMES:
        memory = new_memory(target)
        for _ in range(2):
            request = target.prepare("say something", picture(4))
            budget = METHODS[method].defaults.get("budget", 63)
            settings = METHODS[method].settings(budget=budget)
            made[method] = Run(
                target, request, method, settings=settings, memory=memory, max_new_tokens=40
            ).finish_all()
    return made


@pytest.mark.parametrize("method", METHOD_NAMES[:-1])
@pytest.mark.parametrize("row", [0.0, 10.0])
def test_an_adaptive_budget_says_what_it_decided(method, row):
    """Nodes, tokens and seconds in every step; where rows are dear, that it does not pay."""
    target = tiny_target("qwen2_5_vl", 3)
    cost = CostCurve(((1, 1.0), (129, 1.0 + 128 * row)))
    memory = new_memory(target)
    for _ in range(2):
        request = target.prepare("say something", picture(4))
        run = Run(target, request, method, memory=memory, max_new_tokens=40, cost=cost)
        trace = run.finish_all()
    assert Trace.loads(trace.dumps()) == trace
    for step in trace.steps:
        assert step.budget["k"] == len(step.nodes)
        assert step.budget["expected_tokens"] == pytest.approx(1 + sum(step.nodes.path), abs=1e-3)
        assert step.budget["expected_seconds"] > 0
        assert bool(len(step.nodes)) or step.budget["reason"] in REASONS
    if row:
        assert "does-not-pay" in {step.budget["reason"] for step in trace.steps}
    assert any(len(step.nodes) for step in trace.steps) == (not row)


@pytest.mark.parametrize("method", METHOD_NAMES)
def test_round_trip_is_exact(traces, method, tmp_path):
    """Through a file and back to an equal object, and again to the same text."""
    trace = traces[method]
    trace.save(tmp_path / "t.json")
    loaded = Trace.load(tmp_path / "t.json")
    assert loaded == trace
    assert loaded.dumps() == trace.dumps()


@pytest.mark.parametrize("method", METHOD_NAMES)
def test_the_numbers_agree(traces, method):
    """Lengths, states, sources and shares are what the definitions say."""
    trace = traces[method]
    assert len(trace.token_ids) == 1 + sum(step.accepted_length for step in trace.steps)
    assert [e.token for e in trace.emitted] == trace.token_ids
    assert trace.mat == (len(trace.token_ids) - 1) / trace.passes
    writers = {writer for step in trace.steps for writer in step.entries.request}
    assert trace.request == max(writers, default=0) == (2 if writers else 0)
    assert {str(token) for token in trace.prefill["rows"]["ids"]} <= set(trace.vocabulary)
    position = 1
    for index, step in enumerate(trace.steps):
        nodes = step.nodes
        assert (step.index, step.position, step.root) == (
            index, position, trace.token_ids[position - 1],
        )  # fmt: skip
        position += step.accepted_length
        assert step.budget["k"] == len(nodes)
        assert step.budget["expected_tokens"] == pytest.approx(1 + sum(nodes.path), abs=1e-3)
        assert step.budget["reason"] in (None, *REASONS)
        assert bool(len(nodes)) or step.budget["reason"]
        accepted = [i for i, state in enumerate(nodes.state) if state == "accepted"]
        assert [nodes.token[i] for i in accepted] == [
            e.token for e in step.emitted if e.source != "bonus"
        ]
        for node, (parent, state) in enumerate(zip(nodes.parent, nodes.state, strict=True)):
            above = parent == -1 or nodes.state[parent] == "accepted"
            assert state in STATES
            assert (state == "unreached") == (not above)
            assert nodes.depth[node] == (1 if parent == -1 else nodes.depth[parent] + 1)
            assert nodes.source[node] in SOURCES
            assert sum(nodes.weights[node]) <= nodes.fused[node] + 1e-6
            assert bool(nodes.orders[node]) == bool(nodes.primary[node]) == bool(nodes.key[node])
            if nodes.source[node] in ("memory", "template", "carried"):
                assert sum(nodes.weights[node]) == pytest.approx(nodes.fused[node], abs=1e-6)
        assert {e.source for e in step.emitted} <= set(EMITTED_SOURCES)
        by_row: dict[int, float] = {}
        for row, weight in zip(step.lookups.row, step.lookups.weight, strict=True):
            by_row[row] = by_row.get(row, 0.0) + weight
        assert all(total == pytest.approx(1.0, abs=1e-6) for total in by_row.values())
        assert set(by_row) <= set(step.expanded)
        shown = {step.root, *nodes.token, *step.rows["choice"]}
        shown.update(*step.rows["ids"], *step.entries.ids, *step.nodes.key)
        shown.update(step.runner_up["ids"] if step.runner_up else [])
        assert all(str(token) in trace.vocabulary for token in shown)


def test_every_field_is_documented(traces):
    """The schema in words covers Step and its nodes."""
    step = traces["recap"].to_json()["steps"][0]
    named = {f"step.{name}" for name in step} | {f"step.nodes.{name}" for name in step["nodes"]}
    assert named == set(SCHEMA)
    assert step.keys() == STEP.keys()


def test_inspection_needs_no_model(traces):
    """Every step's tree as text."""
    text = render_trace(traces["recap-plus"])
    assert "● accepted" in text
    assert text.count("Step ") == traces["recap-plus"].passes
    assert render_trace(traces["recap"], 2).count("Step ") == 1


def test_other_versions_are_refused_politely(traces):
    """The message names both versions."""
    data = traces["recap"].to_json() | {"version": 99}
    with pytest.raises(TraceError, match=r"version 99.*version 1"):
        Trace.from_json(data)


@pytest.mark.parametrize("text", ["", "{", "[]", "null", '{"a": 1}', '{"version": 1}', "[" * 9999])
def test_what_is_no_trace_is_refused(text):
    """Never another error than `TraceError`."""
    with pytest.raises(TraceError):
        Trace.loads(text)


@pytest.fixture(scope="module")
def two_steps(traces):
    """The beginning of a trace as text."""
    whole = traces["recap"].to_json()
    return json.dumps({**whole, "steps": whole["steps"][:2]})


@settings(deadline=None, max_examples=150)
@given(data=st.data())
def test_damaged_traces_are_refused_or_load(two_steps, data):
    """Replace any one value by anything: a clean error, or a trace that can be shown."""
    damaged = json.loads(two_steps)
    here: object = damaged
    while isinstance(here, dict | list) and here:
        keys = list(here) if isinstance(here, dict) else list(range(len(here)))
        key = data.draw(st.sampled_from(keys))
        if not isinstance(here[key], dict | list) or data.draw(st.integers(0, 3)) == 0:
            here[key] = data.draw(
                st.sampled_from([None, -7, 10**30, "x", [], {}, [[1]], True, 1.5, {"a": []}])
            )
            break
        here = here[key]
    text = json.dumps(damaged)
    try:
        trace = Trace.loads(text)
    except TraceError:
        return
    assert json.loads(trace.dumps()) == json.loads(text)
    assert render_trace(trace)
    assert trace.seconds["total"] >= 0 or trace.seconds["total"] < 0  # it can be added up
    assert [emitted.token for emitted in trace.emitted] == trace.token_ids


@pytest.mark.parametrize(
    "change",
    [
        {"version": True},
        {"version": 1.0},
        {"token_ids": []},
        {"finish": "done"},
        {"prefill": []},
        {"vocabulary": {"3": 3}},
        {"steps": None},
        {"text": None},
        {"prompt_tokens": 10**30},
    ],
)
def test_a_trace_with_a_wrong_field_is_refused(traces, change):
    """Each of these would break a reader further on."""
    with pytest.raises(TraceError):
        Trace.from_json({**traces["recap"].to_json(), **change})


@pytest.mark.parametrize(
    "change",
    [
        {"budget": {}},
        {"seconds": {}},
        {"memory": {"1": "many"}},
        {"runner_up": 3},
        {"expanded": [999]},
        {"accepted_length": 77},
        {"suffix": [{"row": 0}]},
    ],
)
def test_a_step_with_a_wrong_field_is_refused(traces, change):
    """The message says which."""
    step = traces["recap"].to_json()["steps"][1]
    with pytest.raises(TraceError):
        Step.from_json({**step, **change})


def test_infinity_is_refused(traces):
    """JSON has none, but 1e999 reads as one."""
    text = traces["recap"].dumps().replace('"seconds":', '"seconds":1e999,"x":', 1)
    with pytest.raises(TraceError):
        Trace.loads(text)


def test_a_node_before_its_parent_is_refused(traces):
    """A cycle cannot be drawn."""
    data = traces["recap"].to_json()
    step = next(s for s in data["steps"] if len(s["nodes"]["parent"]) > 3)
    step["nodes"]["parent"][1] = 2
    with pytest.raises(TraceError, match="parent"):
        Step.from_json(step)
