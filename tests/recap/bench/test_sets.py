"""Prompts: the built-in set, files, and their order."""

from __future__ import annotations

import json
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recap.bench.sets import Item, digest, interleave, load_set, read_jsonl
from recap.demo.facts import KINDS
from recap.errors import RecapError
from tests.recap.reference import picture


def write_lines(path, *rows):
    path.write_text("".join((r if isinstance(r, str) else json.dumps(r)) + "\n" for r in rows))
    return path


def test_the_demo_set():
    """48 requests, a third of each kind, the same every time."""
    items = load_set("demo")
    assert len(items) == len({item.id for item in items}) == 48
    assert Counter(item.category for item in items) == dict.fromkeys(KINDS, 16)
    assert digest(items) == digest(load_set("demo"))


@pytest.mark.parametrize("kind", KINDS)
def test_the_demo_set_repeats_prompts_and_pictures(kind):
    """One prompt over several pictures, and one picture under several prompts."""
    items = [item for item in load_set("demo") if item.category == kind]
    prompts = Counter(item.prompt for item in items)
    pictures = Counter(item.image for item in items)
    assert prompts.most_common(1)[0][1] >= 3
    assert pictures.most_common(1)[0][1] >= 6
    assert len(prompts) >= 8
    assert len(pictures) >= 8


def test_the_demo_set_lies_outside_training():
    """Its pictures come from seeds that training and evaluation never use."""
    for item in load_set("demo"):
        assert item.image.startswith("bench/")
    one, two = load_set("demo", limit=2)
    assert one.open_picture().tobytes() == load_set("demo", limit=1)[0].open_picture().tobytes()
    assert one.open_picture().tobytes() != two.open_picture().tobytes()


def test_limit_takes_all_categories():
    """The first three of the built-in set are of three kinds."""
    assert {item.category for item in load_set("demo", limit=3)} == set(KINDS)


@given(st.lists(st.sampled_from("abcd"), max_size=30))
def test_interleaving(categories):
    """A permutation that keeps each category's order, and whose beginnings are balanced."""
    items = [Item(str(n), "p", category) for n, category in enumerate(categories)]
    mixed = interleave(items)
    assert sorted(mixed, key=lambda item: int(item.id)) == items
    for category in set(categories):
        ids = [int(item.id) for item in mixed if item.category == category]
        assert ids == sorted(ids)
    left = Counter(categories)
    seen: Counter = Counter()
    for item in mixed:
        seen[item.category] += 1
        left[item.category] -= 1
        # Nobody is served again while somebody who still waits was served less often.
        assert all(seen[item.category] <= seen[c] + 1 for c, more in left.items() if more)


def test_a_file(tmp_path):
    """Ids, prompts, categories; pictures beside the file; empty lines do not count."""
    picture(1).save(tmp_path / "one.png")
    path = write_lines(
        tmp_path / "set.jsonl",
        {"id": "a", "prompt": "What?", "image": "one.png", "category": "x"},
        "",
        {"id": 2, "prompt": "Why?", "more": "is ignored"},
    )
    first, second = load_set(str(path))
    assert first.open_picture().size == (90, 60)
    assert (first.category, second.category) == ("x", "all")
    assert (second.id, second.open_picture()) == ("2", None)


@pytest.mark.parametrize(
    ("row", "words"),
    [
        ("{", "line 2 is not JSON"),
        ("[1]", "line 2 is not a JSON object"),
        ({"prompt": "p"}, "line 2: id must be text"),
        ({"id": "b"}, "line 2: prompt must be text"),
        ({"id": "b", "prompt": ""}, "prompt must be text"),
        ({"id": "b", "prompt": "p", "category": 3}, "category must be text"),
        ({"id": "b", "prompt": "p", "image": "no.png"}, "no image 'no.png'"),
        ({"id": "a", "prompt": "p"}, "'a' twice"),
    ],
)
def test_mistakes_in_a_file_are_named(tmp_path, row, words):
    """With the line, before anything is loaded."""
    path = write_lines(tmp_path / "set.jsonl", {"id": "a", "prompt": "p"}, row)
    with pytest.raises(RecapError, match=words):
        read_jsonl(path)


def test_several_sets_are_categories(tmp_path):
    """Each gives up to the limit, under its own name; equal ids stay apart."""
    one = write_lines(tmp_path / "one.jsonl", *({"id": str(n), "prompt": "p"} for n in range(4)))
    two = write_lines(tmp_path / "two.jsonl", *({"id": str(n), "prompt": "q"} for n in range(2)))
    items = load_set(f"{one},{two}", limit=3)
    assert [item.category for item in items] == [str(s) for s in (one, two, one, two, one)]
    assert len({item.id for item in items}) == 5


def test_commas_and_spaces(tmp_path):
    """A file may have a comma in its name; spaces around a name are none of it."""
    row = {"id": "a", "prompt": "p"}
    path = write_lines(tmp_path / "one,two.jsonl", row)
    assert [item.id for item in load_set(str(path))] == ["a"]
    other = write_lines(tmp_path / "three.jsonl", row)
    assert {item.category for item in load_set(f" {other}, demo", limit=1)} == {str(other), "demo"}


def test_what_is_no_set(tmp_path):
    """Nor a file, nor a name; nor one without prompts; nor a limit of none."""
    with pytest.raises(RecapError, match="textvqa"):
        load_set("nowhere.jsonl")
    with pytest.raises(RecapError, match="no prompts"):
        load_set(str(write_lines(tmp_path / "empty.jsonl")))
    with pytest.raises(RecapError, match="--limit"):
        load_set("demo", limit=0)
