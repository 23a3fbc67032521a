"""The paper's seven single-turn benchmarks, as one table of data.

A row says where a benchmark lies on the hub, which split is asked, and which columns hold the
picture, the question, the options and the category. Columns are those of the dataset's own card.
Multiple-choice questions are laid out as lettered options; nothing asks for a short answer, since
what is measured is the decoding of it.
"""

from __future__ import annotations

import base64
import binascii
import importlib.util
from collections.abc import Mapping
from dataclasses import dataclass
from string import ascii_uppercase
from typing import Any

from PIL import Image

from recap.bench.sets import Item
from recap.errors import ImageError, RecapError
from recap.targets.images import load_image

#: Rows that a stream is shuffled within: pictures are encoded still, so they stay small.
_BUFFER = 1000


@dataclass(frozen=True)
class Benchmark:
    """A benchmark on the hub. `options` is a column with a list, or several with a text each.

    `context` is a column with a text that stands before the question. Only rows whose columns have
    the values of `only` are asked, and only those with exactly one picture.
    """

    name: str
    hub: str
    configuration: str | None
    split: str
    image: str
    question: str
    options: tuple[str, ...] = ()
    context: str | None = None
    category: str | None = None
    only: tuple[tuple[str, Any], ...] = ()


#: By the name that `--prompts` takes.
BENCHMARKS: dict[str, Benchmark] = {
    benchmark.name: benchmark
    for benchmark in (
        Benchmark(
            "mmt-bench", "lmms-lab/MMT-Benchmark", None, "val", "image", "question",
            options=tuple("ABCDEFGHI"), category="l2-category",
        ),
        Benchmark(
            "seed-bench", "lmms-lab/SEED-Bench", None, "test", "image", "question",
            options=("choice_a", "choice_b", "choice_c", "choice_d"), category="question_type_id",
            only=(("data_type", "image"),),
        ),
        Benchmark(
            "scienceqa", "lmms-lab/ScienceQA", "ScienceQA-IMG", "test", "image", "question",
            options=("choices",), context="hint", category="subject",
        ),
        Benchmark(
            "ocrbench", "echo840/OCRBench", None, "test", "image", "question",
            category="question_type",
        ),
        Benchmark(
            "chartqa", "HuggingFaceM4/ChartQA", None, "test", "image", "query",
            category="human_or_machine",
        ),
        Benchmark(
            "mathvista", "AI4Math/MathVista", None, "testmini", "decoded_image", "question",
            options=("choices",), category="question_type",
        ),
        Benchmark("textvqa", "lmms-lab/textvqa", None, "validation", "image", "question"),
    )
}  # fmt: skip


def load_benchmark(benchmark: Benchmark, count: int, seed: int) -> list[Item]:
    """A sample of `count` rows, streamed: only the parts of the dataset that hold them are fetched.

    Raises `RecapError` where the package datasets is missing or the hub does not answer.
    """
    if importlib.util.find_spec("datasets") is None:
        raise RecapError(
            f"--prompts {benchmark.name} needs the optional package datasets: pip install datasets"
        )
    import datasets

    try:
        rows = datasets.load_dataset(
            benchmark.hub, benchmark.configuration, split=benchmark.split, streaming=True
        )
        return sample_rows(benchmark, rows, count, seed)
    except RecapError:
        raise
    except Exception as error:  # the hub client, pyarrow and fsspec raise many kinds
        reason = (str(error).strip().splitlines() or [type(error).__name__])[0]
        raise RecapError(f"{benchmark.hub} cannot be read: {reason}") from None


def sample_rows(benchmark: Benchmark, rows: Any, count: int, seed: int) -> list[Item]:
    """`count` items of a streamed dataset, drawn by `seed`. Raises `RecapError` without any."""
    label_names = getattr((rows.features or {}).get(benchmark.category), "names", None)
    items: list[Item] = []
    for number, row in enumerate(rows.shuffle(seed=seed, buffer_size=_BUFFER)):
        item = item_of(benchmark, row, f"{benchmark.name}-{seed}-{number}", label_names)
        if item is not None:
            items.append(item)
        if len(items) == count:
            break
    if not items:
        raise RecapError(f"{benchmark.hub} has no row that {benchmark.name} can ask.")
    return items


def item_of(
    benchmark: Benchmark,
    row: Mapping[str, Any],
    identity: str,
    names: list[str] | None = None,
) -> Item | None:
    """The prompt of a row; None for a row that is not asked.

    `names` spells a category that is stored as a number. Raises `RecapError` that names a
    column which is not there.
    """
    columns = [benchmark.image, benchmark.question, *benchmark.options, *dict(benchmark.only)]
    columns += [column for column in (benchmark.context, benchmark.category) if column]
    if missing := [column for column in columns if column not in row]:
        raise RecapError(
            f"{benchmark.hub} has no column {missing[0]!r}: its layout has changed. "
            f"Columns: {', '.join(row)}."
        )
    if any(row[column] != value for column, value in benchmark.only):
        return None
    image = _one(row[benchmark.image])
    question = _text(row[benchmark.question])
    if image is None or not question:
        return None
    context = _text(row[benchmark.context]) if benchmark.context else ""
    parts = [context, question, *lettered(_options(benchmark, row))]
    category = row[benchmark.category] if benchmark.category else benchmark.name
    if names is not None:
        category = names[int(category)]
    return Item(
        identity,
        "\n".join(part for part in parts if part),
        _text(category) or benchmark.name,
        identity,
        lambda: open_picture(image),
    )


def lettered(options: list[str]) -> list[str]:
    """'A. …', 'B. …': a line an option."""
    return [f"{letter}. {text}" for letter, text in zip(ascii_uppercase, options, strict=False)]


def open_picture(source: Any) -> Image.Image:
    """A picture as datasets hand it over: decoded, as bytes, or as base64 text.

    Raises `ImageError`.
    """
    if isinstance(source, Mapping):
        source = source.get("bytes") or source.get("path") or b""
    elif isinstance(source, str):
        try:
            source = base64.b64decode(source, validate=True)
        except binascii.Error:
            raise ImageError("The dataset's picture is not base64.") from None
    return load_image(source)


def _options(benchmark: Benchmark, row: Mapping[str, Any]) -> list[str]:
    values: list[Any] = []
    for column in benchmark.options:
        value = row[column]
        values += value if isinstance(value, list | tuple) else [value]
    return [text for text in map(_text, values) if text]


def _one(pictures: Any) -> Any:
    """The picture of a row; None where there is none, or several."""
    if isinstance(pictures, list | tuple):
        return pictures[0] if len(pictures) == 1 else None
    return pictures


def _text(value: Any) -> str:
    """A cell as text; nothing where it is empty, which tables also write as NaN."""
    return "" if value is None or value != value else str(value).strip()
