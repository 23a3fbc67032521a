"""Every setting has a documented range, and a value out of it names its field."""

from __future__ import annotations

import json
import pickle
from dataclasses import FrozenInstanceError, fields

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recap.drafters import METHODS, get_method
from recap.errors import SettingsError
from recap.settings import Settings

NUMERIC = [spec for spec in fields(Settings) if "range" in spec.metadata]


@pytest.mark.parametrize("name", [spec.name for spec in fields(Settings)])
def test_every_setting_says_what_it_does(name):
    """One line of help each; the app shows it."""
    spec = next(spec for spec in fields(Settings) if spec.name == name)
    assert spec.metadata["help"].endswith(".")


@pytest.mark.parametrize(
    "spec", [s for s in NUMERIC if s.name != "specificity"], ids=lambda s: s.name
)
def test_ranges_are_enforced_and_name_the_field(spec):
    """Both ends are allowed, nothing beyond them, and no other type."""
    low, high = spec.metadata["range"]
    kind = int if "word" in spec.metadata else type(spec.default)
    for value in (low, high):
        options = {spec.name: kind(value)}
        if spec.name == "suffix_max_match":
            options["suffix_min_match"] = 1
        assert getattr(Settings(**options), spec.name) == value
    for value in (low - 1, high + 1, float("nan"), float("inf"), "8", None, True):
        with pytest.raises(SettingsError, match=spec.name) as caught:
            Settings(**{spec.name: value})
        assert caught.value.field == spec.name


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("orders", ()),
        ("orders", (0, 1)),
        ("orders", (1, 4)),
        ("orders", 3),
        ("specificity", (1, 2)),
        ("specificity", (1, 2, 2)),
        ("specificity", (1, 2, float("nan"))),
        ("fusion", "average"),
        ("suffix_occurrence", "random"),
        ("suffix", 1),
        ("suffix_min_match", 8),
    ],
)
def test_other_values_are_checked_too(name, value):
    """Choices, tuples and flags."""
    with pytest.raises(SettingsError, match=name):
        Settings(**{name: value}, **({"suffix_max_match": 4} if name == "suffix_min_match" else {}))


def test_settings_are_frozen():
    """A run's settings cannot change under it."""
    with pytest.raises(FrozenInstanceError):
        Settings().budget = 3  # type: ignore[misc]


@given(
    st.builds(
        Settings,
        budget=st.one_of(st.integers(0, 256), st.just("adaptive")),
        orders=st.lists(st.integers(1, 3), min_size=1, max_size=5).map(tuple),
        alpha=st.floats(0, 8),
        suffix=st.booleans(),
    )
)
def test_json_round_trip(settings):
    """Through real JSON text, and back to an equal object."""
    assert Settings.from_json(json.loads(json.dumps(settings.to_json()))) == settings


def test_unknown_settings_are_named():
    """A typing error must not be ignored."""
    with pytest.raises(SettingsError, match="budgett"):
        Settings.from_json({"budgett": 3})


def test_methods_differ_in_defaults_and_can_be_changed():
    """RECAP+ is RECAP with deeper trees, longer suffix paths and three settings on."""
    plus = METHODS["recap-plus"].settings()
    assert (plus.blend, plus.carry, plus.runner_up) == (0.3, 0.5, 0.1)
    plain = {"blend": 0.0, "carry": 0.0, "runner_up": 0.0, "depth_factor": 0.6, "max_depth": 10}
    plain |= {"suffix_length": 4}
    assert METHODS["recap-plus"].settings(**plain) == Settings()
    assert METHODS["recap"].settings() == Settings()
    with pytest.raises(SettingsError, match="token-recycling"):
        get_method("medusa")


def test_a_budget_is_a_number_or_adaptive():
    """Adaptive is the default of whatever drafts."""
    for name in ("recap", "recap-plus", "token-recycling"):
        assert METHODS[name].settings().budget == "adaptive"
    assert METHODS["autoregressive"].settings().most_nodes == 0
    assert Settings(budget=7).most_nodes == 7
    assert Settings().most_nodes > 64
    for value in ("Adaptive", "", "8", 8.0):
        with pytest.raises(SettingsError, match="budget"):
            Settings(budget=value)


def test_the_error_reaches_other_processes():
    """It is sent as bytes, and still names its field there."""
    error = SettingsError("width", "must be a number")
    again = pickle.loads(pickle.dumps(error))
    assert (str(again), again.field) == (str(error), "width")
