"""The cost of passes: interpolation, measuring by a made-up clock, and what is kept on disk."""

from __future__ import annotations

import itertools
import json
import os

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from recap import cost
from recap.cost import CostCurve, band, cache_directory, cost_of, measure_by
from recap.decoding import Run
from tests.recap.reference import generate, tiny_target

CURVE = CostCurve(((1, 0.5), (2, 0.5)))


@pytest.fixture(autouse=True)
def _fresh(tmp_path, monkeypatch):
    """A cache of its own for every test, and nothing known in the process."""
    monkeypatch.setenv("RECAP_CACHE", str(tmp_path / "kept"))
    monkeypatch.setattr(cost, "_known", {})


@given(
    st.lists(st.tuples(st.integers(2, 100), st.floats(0.1, 9.0)), max_size=8),
    st.floats(0.1, 9.0),
    st.integers(1, 150),
)
def test_the_table_goes_through_every_point_and_straight_between(points, first, rows):
    """Against plain interpolation, one number at a time."""
    points = sorted({1: first, **dict(points)}.items())
    table = CostCurve(tuple(points)).table(rows)
    assert len(table) == rows
    for n, seconds in enumerate(table, start=1):
        if n in dict(points):
            assert seconds == pytest.approx(dict(points)[n])
        elif n < points[-1][0]:
            (a, low), (b, high) = next(
                (x, y) for x, y in itertools.pairwise(points) if x[0] < n < y[0]
            )
            assert seconds == pytest.approx(low + (high - low) * (n - a) / (b - a))
        else:  # behind the last it never gets cheaper
            assert seconds >= points[-1][1]
            assert seconds >= (table[n - 2] if n > points[-1][0] + 1 else 0)


@pytest.mark.parametrize(
    "points", [(), ((2, 1.0),), ((1, 1.0), (1, 2.0)), ((1, 0.0),), ((1, float("nan")),)]
)
def test_what_is_no_curve_is_refused(points):
    """No points, no single row, a row twice, no time."""
    with pytest.raises(ValueError, match=r"cost|seconds"):
        CostCurve(points)


class Device:
    """A made-up device and its clock: a pass of n rows takes `seconds(n)`, now and then longer."""

    def __init__(self, seconds, disturbed=()):
        self.now, self.passes = 0.0, []
        self._seconds, self._disturbed = seconds, disturbed

    def timed(self, rows):
        taken = self._seconds(rows) * (10 if len(self.passes) in self._disturbed else 1)
        self.passes.append(rows)
        self.now += taken
        return taken

    def measure(self, limit):
        return measure_by(self.timed, limit, lambda: self.now)


def test_a_fast_device_is_measured_at_every_size_and_disturbances_are_left_out():
    """Each size several times, taking turns; the fastest pass counts."""
    device = Device(lambda n: 1e-3 * (1 + n // 8), disturbed=range(0, 60, 3))
    curve = device.measure(2.0)
    assert [n for n, _ in curve.points] == list(cost.SIZES)
    assert all(s == pytest.approx(1e-3 * (1 + n // 8)) for n, s in curve.points)
    assert device.now < 2.0
    assert min(map(device.passes.count, cost.SIZES)) >= 2


@given(st.floats(1e-4, 5.0), st.floats(0.0, 0.2))
def test_measuring_ends_in_time(single, growth):
    """Whatever the device: within the limit, or after one single-row pass."""
    device = Device(lambda n: single * (1 + growth * n))
    curve = device.measure(2.0)
    assert device.now <= 2.1 or device.passes == [1]
    assert curve.points[0][0] == 1
    assert curve.table(129)[-1] >= curve.points[0][1]


def test_sizes_that_do_not_fit_are_left_out():
    """No memory for many rows is no reason to fail."""

    def seconds(rows):
        if rows > 20:
            raise RuntimeError("out of memory")
        return 1e-3

    assert Device(seconds).measure(1.0).points[-1][0] == 20


def test_bands_are_coarse_and_inside_the_context():
    """Neighbouring lengths share a curve; none lies beyond what the model can hold."""
    assert band(200, 100_000) == band(300, 100_000)
    assert band(60, 100_000) < band(2000, 100_000) < band(20_000, 100_000)
    assert all(1 <= band(n, 512) <= 512 - max(cost.SIZES) for n in (0, 1, 100, 10_000))
    assert band(5, 10) == 1


def test_it_is_measured_once_and_kept(tmp_path, monkeypatch):
    """In the process, and on disk for the next one; again on request."""
    target = tiny_target("qwen2_5_vl", 1)
    calls = []
    monkeypatch.setattr(cost, "measure", lambda t, n: calls.append(n) or CURVE)
    assert cost_of(target, 100) == cost_of(target, 110) == CURVE
    assert len(calls) == 1
    cost._known.clear()
    assert cost_of(target, 100) == CURVE
    assert len(calls) == 1
    (file,) = (tmp_path / "kept").iterdir()
    assert json.loads(file.read_text())["about"]["versions"].keys() >= {"torch", "transformers"}
    cost_of(target, 100, remeasure=True)
    cost_of(target, 100_000)  # another band
    assert len(calls) == 3


def test_another_target_has_a_curve_of_its_own():
    """Another configuration, number of threads or dtype is another device, as far as time goes."""
    about = cost.describe(tiny_target("llama", 1), 64)
    assert about != cost.describe(tiny_target("qwen2", 1), 64)
    assert about == cost.describe(tiny_target("llama", 2), 64)  # weights take no other time
    other = tiny_target("llama", 1)
    other.model.double()
    assert about != cost.describe(other, 64)
    placed = [tiny_target("llama", 1) for _ in range(2)]
    for target, device in zip(placed, (torch.device("cpu"), 0), strict=True):
        target.model.hf_device_map = {"model": device, "lm_head": "cpu"}
    one, two = (cost.describe(target, 64) for target in placed)
    assert about != one != two
    assert json.loads(json.dumps(two)) == two


@pytest.mark.parametrize(
    "text", ["", "{", "[]", "null", '{"version": 1}', '{"version": 1, "points": [[1, -1]]}', "\0"]
)
def test_a_file_that_makes_no_sense_is_ignored(tmp_path, monkeypatch, text):
    """Measured anew, without a word."""
    target = tiny_target("llama", 1)
    curves = iter([CURVE, CostCurve(((1, 0.25), (2, 0.25)))])
    monkeypatch.setattr(cost, "measure", lambda t, n: next(curves))
    assert cost_of(target, 100).points == CURVE.points
    (file,) = (tmp_path / "kept").iterdir()
    whole = json.loads(file.read_text())
    if "points" in text:
        file.write_text(json.dumps({**whole, **json.loads(text)}))
    else:
        file.write_text(text)
    cost._known.clear()
    assert cost_of(target, 100).points == ((1, 0.25), (2, 0.25))
    assert json.loads(file.read_text())["points"] == [[1, 0.25], [2, 0.25]]


def test_a_place_that_cannot_be_written_is_no_failure(tmp_path, monkeypatch):
    """A file where the directory should be: kept in the process only."""
    (tmp_path / "kept").write_text("in the way")
    target = tiny_target("llama", 1)
    assert cost_of(target, 100) == cost_of(target, 100)
    assert (tmp_path / "kept").read_text() == "in the way"


def test_a_curve_without_a_shape_is_not_kept(tmp_path, monkeypatch):
    """One size alone serves this process; the next one measures again."""
    target = tiny_target("llama", 1)
    curves = iter([CostCurve(((1, 0.5),)), CURVE])
    monkeypatch.setattr(cost, "measure", lambda t, n: next(curves))
    assert cost_of(target, 100) == cost_of(target, 100) == CostCurve(((1, 0.5),))
    assert not (tmp_path / "kept").exists()
    cost._known.clear()
    assert cost_of(target, 100) == CURVE


def test_where_it_is_kept(monkeypatch):
    """`RECAP_CACHE`, else the user's cache directory."""
    assert str(cache_directory()) == os.environ["RECAP_CACHE"]
    monkeypatch.delenv("RECAP_CACHE")
    monkeypatch.setattr("sys.platform", "linux")
    monkeypatch.setenv("XDG_CACHE_HOME", "/somewhere")
    assert cache_directory().as_posix() == "/somewhere/recap"
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", "/home/somebody")
    assert cache_directory().as_posix() == "/home/somebody/.cache/recap"


@pytest.mark.parametrize("family", ["qwen2_5_vl", "llama", "llava_next"])
def test_measuring_in_the_middle_of_a_run_disturbs_nothing(family):
    """Its own cache: the answer is the same, and the run's cache and memory are untouched."""
    target = tiny_target(family, 3)
    wanted = generate(target, target.prepare("go"), 30)
    run = Run(target, target.prepare("go"), "recap", max_new_tokens=30)
    steps = run.steps()
    for _ in range(3):
        next(steps)
    length, entries = run.request.cache.length, run.memory.entries()
    curve = cost_of(target, 64, remeasure=True)
    assert (run.request.cache.length, run.memory.entries()) == (length, entries)
    assert curve.points[0][0] == 1
    for _ in steps:
        pass
    assert run.trace.token_ids == wanted


def test_the_clock_does_not_charge_measuring(monkeypatch):
    """However long it takes, it is before the prefill's clock starts."""
    target = tiny_target("llama", 1)
    now = [0.0]
    monkeypatch.setattr("recap.decoding.time.perf_counter", lambda: now[0])

    def slow(*_):
        now[0] += 1000.0
        return CostCurve(((1, 1e-3), (2, 1e-3)))

    monkeypatch.setattr(cost, "measure", slow)
    trace = Run(target, target.prepare("go"), "recap", max_new_tokens=10).finish_all()
    assert now[0] >= 1000.0
    assert trace.seconds["total"] < 1000.0
