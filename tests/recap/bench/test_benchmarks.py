"""The paper's benchmarks, on rows of the layout that each card gives; nothing is fetched."""

from __future__ import annotations

import base64
import importlib.util
import io

import pytest
from PIL import Image

from recap.bench import benchmarks
from recap.bench.benchmarks import BENCHMARKS, item_of, load_benchmark, open_picture, sample_rows
from recap.errors import ImageError, RecapError
from tests.recap.reference import picture

NAMES = ("mmt-bench", "seed-bench", "scienceqa", "ocrbench", "chartqa", "mathvista", "textvqa")


def row_of(name: str, image):
    """A row with all columns of the card. `image` is what stands in the picture's column."""
    return {
        "mmt-bench": {
            "index": 1, "question": "Which is it?", "answer": "B", "A": "a cat", "B": "a dog",
            "C": "", "D": None, "E": None, "F": None, "G": None, "H": None, "I": None,
            "image": [image], "category": "animals_recognition",
            "l2-category": "visual_recognition", "split": "VAL",
        },
        "seed-bench": {
            "answer": "A", "choice_a": "One", "choice_b": "Two", "choice_c": "Three",
            "choice_d": "Four", "data_id": ["1"], "data_type": "image", "question": "How many?",
            "question_id": "5", "question_type_id": 4, "image": [image], "segment": None,
        },
        "scienceqa": {
            "image": image, "question": "Which is farthest north?", "choices": ["Maine", "Ohio"],
            "answer": 0, "hint": "Look at the map.", "task": "closed choice", "grade": "grade2",
            "subject": "social science", "topic": "geography", "category": "Geography",
            "skill": "Read a map", "lecture": "Maps have four cardinal directions.",
            "solution": "See the map.",
        },
        "ocrbench": {
            "dataset": "IIIT5K", "question": "what is written in the image?",
            "question_type": "Regular Text Recognition", "answer": ["CENTRE"], "image": image,
        },
        "chartqa": {
            "image": image, "query": "How many bars are there?", "label": ["4"],
            "human_or_machine": 1,
        },
        "mathvista": {
            "pid": "1", "question": "What is the angle?", "image": "images/1.jpg",
            "decoded_image": image, "choices": ["30", "60"], "unit": None, "precision": 1.0,
            "answer": "30", "question_type": "multi_choice", "answer_type": "text",
            "metadata": {"category": "math-targeted-vqa", "language": "english"},
            "query": "Hint: … Question: What is the angle? Choices: …",
        },
        "textvqa": {
            "image_id": "0054c91397f2fe05", "question_id": 0,
            "question": "what is the brand of phone?", "question_tokens": ["what", "is"],
            "image": image, "image_width": 1024, "image_height": 730, "flickr_original_url": "",
            "flickr_300k_url": "", "answers": ["nokia"], "image_classes": ["Belt"],
            "set_name": "train", "ocr_tokens": ["NOKIA"],
        },
    }[name]  # fmt: skip


def encoded(image, form="PNG") -> bytes:
    file = io.BytesIO()
    image.save(file, form)
    return file.getvalue()


def test_all_seven_are_there():
    """By the names that the command line takes."""
    assert tuple(BENCHMARKS) == NAMES


@pytest.mark.parametrize(
    ("name", "prompt", "category"),
    [
        ("mmt-bench", "Which is it?\nA. a cat\nB. a dog", "visual_recognition"),
        ("seed-bench", "How many?\nA. One\nB. Two\nC. Three\nD. Four", "4"),
        (
            "scienceqa",
            "Look at the map.\nWhich is farthest north?\nA. Maine\nB. Ohio",
            "social science",
        ),
        ("ocrbench", "what is written in the image?", "Regular Text Recognition"),
        ("chartqa", "How many bars are there?", "1"),
        ("mathvista", "What is the angle?\nA. 30\nB. 60", "multi_choice"),
        ("textvqa", "what is the brand of phone?", "textvqa"),
    ],
)
def test_a_row_becomes_a_prompt(name, prompt, category):
    """The question with its options lettered, the picture, the category."""
    image = picture(1)
    item = item_of(BENCHMARKS[name], row_of(name, image), "row-0")
    assert (item.id, item.prompt, item.category) == ("row-0", prompt, category)
    assert item.open_picture().tobytes() == image.tobytes()


def test_rows_that_are_not_asked():
    """Videos, several pictures, no picture, no question."""
    image = picture(1)
    seed, mmt = row_of("seed-bench", image), row_of("mmt-bench", image)
    for name, row in (
        ("seed-bench", {**seed, "data_type": "video"}),
        ("seed-bench", {**seed, "image": [image] * 8}),
        ("mmt-bench", {**mmt, "image": []}),
        ("scienceqa", {**row_of("scienceqa", None)}),
        ("textvqa", {**row_of("textvqa", image), "question": " "}),
    ):
        assert item_of(BENCHMARKS[name], row, "x") is None


def test_a_free_question_has_no_options():
    """MathVista has both kinds; an empty hint leaves no line."""
    row = {**row_of("mathvista", picture(1)), "choices": None, "question_type": "free_form"}
    assert item_of(BENCHMARKS["mathvista"], row, "x").prompt == "What is the angle?"
    row = {**row_of("scienceqa", picture(1)), "hint": ""}
    assert item_of(BENCHMARKS["scienceqa"], row, "x").prompt.startswith("Which")


def test_a_category_that_is_stored_as_a_number_is_spelled():
    """ChartQA's class label."""
    row = row_of("chartqa", picture(1))
    item = item_of(BENCHMARKS["chartqa"], row, "x", ["human", "machine"])
    assert item.category == "machine"


def test_a_changed_layout_is_named():
    """Instead of a KeyError after an hour."""
    row = row_of("chartqa", picture(1))
    del row["query"]
    with pytest.raises(RecapError, match=r"no column 'query'.*human_or_machine"):
        item_of(BENCHMARKS["chartqa"], row, "x")


def test_pictures_in_every_form():
    """Decoded, as bytes, as parquet stores them, as base64."""
    image = picture(2)
    raw = encoded(image)
    for source in (image, raw, {"bytes": raw, "path": None}, base64.b64encode(raw).decode()):
        assert open_picture(source).tobytes() == image.tobytes()
    for source in ("not base64!", {"bytes": None, "path": None}):
        with pytest.raises(ImageError):
            open_picture(source)


def test_the_package_is_asked_for(monkeypatch):
    """Where it is missing, one sentence says what to install."""
    monkeypatch.setattr(benchmarks.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(RecapError, match="pip install datasets"):
        load_benchmark(BENCHMARKS["textvqa"], 4, 0)


def feature_of(value):
    """The feature of a column that holds such a value."""
    import datasets

    if isinstance(value, list):
        return datasets.List(feature_of(value[0]))
    if isinstance(value, dict):
        if set(value) == {"bytes", "path"}:
            return datasets.Image()
        return {key: feature_of(inner) for key, inner in value.items()}
    kinds = {int: "int64", float: "float64"}
    return datasets.Value(kinds.get(type(value), "string"))


needs_datasets = pytest.mark.skipif(
    importlib.util.find_spec("datasets") is None, reason="needs the optional package datasets"
)


@needs_datasets
@pytest.mark.parametrize("name", NAMES)
def test_streamed_from_parquet(name, tmp_path):
    """A few rows in a file of the card's layout, streamed as from the hub."""
    import datasets
    import pyarrow.parquet

    images = [picture(seed) for seed in range(6)]
    rows = [row_of(name, {"bytes": encoded(image), "path": None}) for image in images]
    features = datasets.Features({key: feature_of(value) for key, value in rows[0].items()})
    if name == "chartqa":
        features["human_or_machine"] = datasets.ClassLabel(names=["human", "machine"])
    table = pyarrow.Table.from_pylist(rows, schema=features.arrow_schema)
    pyarrow.parquet.write_table(table, tmp_path / "rows.parquet")

    stream = datasets.load_dataset(
        "parquet", data_files=str(tmp_path / "rows.parquet"), split="train", streaming=True
    )
    items = sample_rows(BENCHMARKS[name], stream, 4, seed=1)
    assert len({item.id for item in items}) == 4
    opened = [item.open_picture() for item in items]
    known = {image.tobytes() for image in images}
    assert len({image.tobytes() for image in opened} & known) == 4
    if name == "chartqa":
        assert items[0].category == "machine"
    assert all(isinstance(image, Image.Image) for image in opened)


@needs_datasets
def test_no_network_is_one_sentence(monkeypatch):
    """Whatever the hub client raises."""
    import datasets

    def unreachable(*arguments, **options):
        raise ConnectionError("Couldn't reach the hub\nlong story")

    monkeypatch.setattr(datasets, "load_dataset", unreachable)
    with pytest.raises(RecapError, match=r"textvqa cannot be read: Couldn't reach the hub$"):
        load_benchmark(BENCHMARKS["textvqa"], 4, 0)
