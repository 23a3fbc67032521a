"""What goes to the browser: small, append-only, complete."""

import dataclasses
import json

import pytest

from app.encoding import DetailEncoder, encode_step
from app.payload import RunPayload, of_trace
from recap.drafters import METHODS

MOST_BYTES = 8_000


@pytest.mark.parametrize("method", METHODS)
def test_a_step_is_small(traces, method):
    """The compact part of a step stays under 8 KB, words included."""
    value = of_trace(traces[method], 1)
    words = sum(len(text.encode()) for text in value["vocabulary"])
    for text in value["steps"]:
        assert len(text.encode()) + words / len(value["steps"]) <= MOST_BYTES


@pytest.mark.parametrize("method", METHODS)
def test_suppliers_agree_with_the_engine(traces, method):
    """An accepted node's supplier is the source that the engine noted for its token."""
    names = {"b": "carried-2", "c": "carried-3", "s": "suffix", "r": "runner-up"}
    for step in traces[method].steps:
        suppliers = encode_step(step)["n"]["s"]
        accepted = [n for n, state in enumerate(step.nodes.state) if state == "accepted"]
        for node, emitted in zip(accepted, step.emitted, strict=False):
            assert names.get(suppliers[node], suppliers[node]) == emitted.source


def test_values_only_grow(trace):
    """A later value begins with the earlier one, and does not change it."""
    payload = RunPayload(1)
    payload.open(trace)
    payload.begin(trace)
    earlier = []
    for step in trace.steps:
        payload.add(trace, [step])
        payload.add_details(step, trace)
        value = payload.value()
        for name in ("steps", "details", "vocabulary"):
            for old in earlier:
                assert value[name][: len(old[name])] == old[name]
        earlier.append(value)
    assert len(earlier[0]["steps"]) == 1


def test_details_say_everything_once(trace):
    """Details rebuild rows and hits; a prediction that comes again is only referred to."""
    encoder = DetailEncoder()
    predictions, entries = [], []
    for step in trace.steps:
        detail = json.loads(json.dumps(encoder.encode(step, trace)))
        predictions += detail["p"]
        entries += detail["e"]
        assert [predictions[row][0] for row in detail["r"]] == step.rows["ids"]
        hits = [(row, *hit) for row, of_row, *_ in detail["l"] for hit in of_row]
        assert len(hits) == len(step.lookups)
        for (row, order, carried, entry, _, weight), n in zip(
            sorted(hits, key=lambda hit: hit[0]),
            sorted(range(len(hits)), key=lambda n: step.lookups.row[n]),
            strict=True,
        ):
            assert (row, order, bool(carried)) == (
                step.lookups.row[n],
                step.lookups.order[n],
                step.lookups.carried[n],
            )
            assert weight == pytest.approx(1e4 * step.lookups.weight[n], abs=1)
            found = step.lookups.entry[n]
            assert predictions[entries[entry][0]][0] == list(step.entries.ids[found])
            assert entries[entry][3:] == [step.entries.request[found], step.entries.step[found]]
    keys = [json.dumps(prediction) for prediction in predictions]
    assert len(keys) == len(set(keys))


def test_what_is_offered_is_spelled_though_no_prediction_holds_it(traces):
    """Runners-up may come from the prefill, and a suffix's token from the prompt."""
    trace = traces["recap-plus"]
    *runners, followed = map(int, trace.vocabulary)
    step = dataclasses.replace(
        trace.steps[0],
        runner_up={"ids": runners, "probs": [0.1] * len(runners), "share": 0.1},
        suffix=[{"row": 0, "token": followed, "match": 2, "share": 0.5}],
    )
    words = DetailEncoder().encode(step, trace)["v"]
    assert {str(word[0]) for word in words} == set(trace.vocabulary)


def test_a_run_that_never_began_still_has_an_end():
    """An error before the first step reaches the page as the run's end."""
    payload = RunPayload(1)
    payload.fail("No such model.")
    assert json.loads(payload.value()["end"]) == {"finish": "error", "message": "No such model."}
