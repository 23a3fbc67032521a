"""What a person types after --methods."""

from __future__ import annotations

from dataclasses import fields

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recap.bench.spec import BASELINES, PRESETS, parse_spec, parse_specs
from recap.drafters import METHODS, get_method
from recap.errors import RecapError, SettingsError
from recap.settings import Settings


def test_a_method_alone_has_its_own_defaults():
    """So that a bare name means what it means everywhere else."""
    for name in METHODS:
        spec = parse_spec(name)
        assert (spec.label, spec.method, spec.options) == (name, name, None)
        assert spec.settings == get_method(name).settings()


def test_budget_and_settings():
    """Budget behind @, any other field behind colons: switches, numbers, tuples, choices."""
    spec = parse_spec("recap-plus@32:suffix=off:orders=1+2:alpha=0:fusion=back-off:top_k=4")
    assert spec.settings == get_method("recap-plus").settings(
        budget=32, suffix=False, orders=(1, 2), alpha=0, fusion="back-off", top_k=4
    )
    assert parse_spec("recap:specificity=1+2.5+4").settings.specificity == (1.0, 2.5, 4.0)
    assert parse_spec("recap:orders=1").settings.orders == (1,)


def test_what_is_not_known_here_is_left_to_the_settings():
    """A word is handed on as a word, and Settings says what it thinks of it."""
    with pytest.raises(SettingsError, match=r"budget.*'many'"):
        parse_spec("recap@many")


def test_autoregressive_always_takes_part():
    """It is what answers are compared with."""
    labels = [spec.label for spec in parse_specs("recap@8, token-recycling")]
    assert labels == ["autoregressive", "recap@8", "token-recycling"]
    assert [s.label for s in parse_specs("recap,autoregressive")] == ["recap", "autoregressive"]


def test_a_spec_that_is_named_twice_takes_part_once():
    """Also where a preset names it again."""
    labels = [spec.label for spec in parse_specs("recap@63,default,recap@63")]
    assert len(labels) == len(set(labels))
    assert labels[0] == "recap@63"


def test_baselines():
    """Options of generate; a budget is how many tokens prompt lookup drafts."""
    assert parse_spec("transformers-greedy").options == {}
    spec = parse_spec("transformers-prompt-lookup@5")
    assert (spec.options, spec.settings) == ({"prompt_lookup_num_tokens": 5}, None)
    assert BASELINES["transformers-prompt-lookup"] == {"prompt_lookup_num_tokens": 10}


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "at least one"),
        (" , ", "at least one"),
        ("medusa", "token-recycling"),
        ("medusa", "ablation"),
        ("recap@", "budget"),
        ("recap@-1", "between 0"),
        ("recap@1.5", "whole number"),
        ("recap:suffix", "SETTING=VALUE"),
        ("recap:=1", "SETTING=VALUE"),
        ("recap:suffix=", "SETTING=VALUE"),
        ("recap:suffix=maybe", "true or false"),
        ("recap:orders=1+4", "1, 2 and 3"),
        ("recap:colour=red", "colour: is not a setting"),
        ("recap@8:budget=9", "twice"),
        ("recap:top_k=1:top_k=2", "twice"),
        ("transformers-greedy@8", "no settings"),
        ("transformers-prompt-lookup:suffix=off", "no settings"),
        ("transformers-prompt-lookup@0", "number of tokens"),
    ],
)
def test_mistakes_are_named(text, words):
    """One sentence that names what is wrong or what there is."""
    with pytest.raises(RecapError, match=words.replace("+", r"\+")):
        parse_specs(text)


def test_presets_hold_valid_and_different_specs():
    """Every preset can be run as it stands."""
    for name in PRESETS:
        specs = parse_specs(name)
        settings = [spec.settings for spec in specs if spec.method == "recap"]
        assert len(set(settings)) == len(settings)


def test_the_ablation_covers_every_part():
    """Orders, additions alone, in pairs and together, and every other part switched off."""
    settings = [spec.settings for spec in parse_specs("ablation,ablation-plus") if spec.settings]
    plus = get_method("recap-plus").settings(budget=63)
    base = get_method("recap").settings(budget=63)
    added = {
        tuple(bool(getattr(s, name)) for name in ("blend", "carry", "runner_up"))
        for s in settings
        if s.orders == (1, 2, 3)
    }
    assert len(added) == 8
    for whole in (base, plus):
        for change in (
            {"orders": (1,)}, {"orders": (1, 2)}, {"suffix": False}, {"persist": False},
            {"seed_prompt": False}, {"alpha": 0, "beta": 0}, {"fusion": "back-off"},
        ):  # fmt: skip
            assert any(_differs_only(s, whole, change) for s in settings), (whole, change)


def _differs_only(settings: Settings, whole: Settings, change: dict) -> bool:
    return all(
        getattr(settings, f.name) == change.get(f.name, getattr(whole, f.name))
        for f in fields(Settings)
    )


_NUMBERS = [
    spec
    for spec in fields(Settings)
    if "range" in spec.metadata and type(spec.default) in (int, float)
]


@given(st.sampled_from(_NUMBERS), st.data())
def test_any_number_in_range_arrives(field, data):
    """Whatever a setting may be can be typed."""
    low, high = field.metadata["range"]
    whole = type(field.default) is int
    draw = st.integers(int(low), int(high)) if whole else st.floats(low, high)
    value = data.draw(draw)
    try:
        wanted = get_method("recap").settings(**{field.name: value})
    except SettingsError:  # a pair of settings that exclude each other
        return
    assert parse_spec(f"recap:{field.name}={value!r}").settings == wanted
