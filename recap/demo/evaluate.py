"""Measures the exported model on held-out pictures: one line a figure, with its target.

Pictures come from the seeds `held-out/…`, which training (`train/…`) never uses. Everything is
greedy and goes through `load_target` and the engine's loop, so it measures what a person gets.
The work is shared out to one process a core.
"""

from __future__ import annotations

import json
import random
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from multiprocessing import get_context
from typing import Any

import numpy as np
import torch
from PIL import Image

from recap.bench.sets import load_set
from recap.demo import parse
from recap.demo.draw import draw, draw_smooth
from recap.demo.facts import KINDS, Card, Chart, Picture, Scene, sample
from recap.demo.grammar import REGISTRY, build_turn, turn_about
from recap.demo.score import Shares, attributes_right, best_alignment, same, words_right
from recap.drafters import get_method
from recap.session import Session
from recap.targets import Target, load_target
from recap.trace import Trace

MAX_NEW_TOKENS = 256
_CHUNK = 20  # pictures a task


@dataclass(frozen=True)
class Figure:
    """One measured figure; `low` and `high` are its targets, None where it is only reported."""

    name: str
    value: float
    unit: str = "%"
    low: float | None = None
    high: float | None = None

    @property
    def met(self) -> bool:
        return (self.low is None or self.value >= self.low) and (
            self.high is None or self.value <= self.high
        )

    def line(self) -> str:
        bounds = [f"at least {self.low:g}"] if self.low is not None else []
        bounds += [f"at most {self.high:g}"] if self.high is not None else []
        verdict = ("MISS", "ok  ")[self.met] if bounds else "    "
        target = f"  (target: {', '.join(bounds)} {self.unit})" if bounds else ""
        return f"{verdict} {self.name:<58} {self.value:8.2f} {self.unit}{target}"


# Share -> (words of its line, target in per cent).
_TARGETS: dict[str, tuple[str, float]] = {
    "scene_detail": ("scenes: attributes in detailed descriptions", 95),
    "scene_json": ("scenes: attributes in JSON", 95),
    "scene_count": ("scenes: number of shapes", 95),
    "chart_values": ("charts: bar values, exact", 90),
    "chart_labels": ("charts: bar labels", 95),
    "card_words": ("cards: words and numbers", 85),
    "json_parses": ("JSON answers that parse", 99),
    "ends": ("answers that end by themselves", 99),
    "swap_changes": ("answers that follow a swapped picture", 95),
}


class Asker:
    """Asks the target and keeps the count of answers that ended by themselves."""

    def __init__(self, target: Target, method: str, shares: Shares) -> None:
        self.session = Session(target)
        self.method, self.shares = method, shares

    def ask(self, prompt: str, image: Image.Image | None, method: str | None = None) -> Trace:
        method = method or self.method
        run = self.session.run(prompt, image, method, max_new_tokens=MAX_NEW_TOKENS)
        trace = run.finish_all()
        self.shares.add("ends", trace.finish == "eos")
        return trace


def held_out(kind: str, count: int) -> Iterator[Picture]:
    """The first `count` held-out pictures of a kind."""
    return (sample(kind, f"held-out/{kind}/{index}") for index in range(count))


def question(kind: str, name: str, style: int) -> str:
    """Phrasing `style` (of as many as there are, in turn) of a request without slots."""
    questions = REGISTRY[kind][name].questions
    return questions[style % len(questions)]


def _json_answer(asker: Asker, kind: str, index: int, image: Image.Image) -> str:
    text = asker.ask(question(kind, "json", index), image).text
    asker.shares.add("json_parses", parse.load_json(text) is not None)
    return text


def score_scene(asker: Asker, scene: Scene, index: int, image: Image.Image) -> None:
    """A detailed description and a JSON list of one scene."""
    detail = asker.ask(question("scene", "detail", index), image).text
    listed = parse.shapes_in_prose(detail)
    asker.shares.add("scene_detail", *attributes_right(listed, scene))
    told = parse.number_of_shapes(detail)
    asker.shares.add("scene_count", told == len(listed) == len(scene.objects))
    rows = parse.shapes_in_json(_json_answer(asker, "scene", index, image))
    asker.shares.add("scene_json", *attributes_right(rows, scene))
    asker.shares.add("scene_count", rows is not None and len(rows) == len(scene.objects))


def score_chart(asker: Asker, chart: Chart, index: int, image: Image.Image) -> None:
    """A detailed description and a JSON list of one chart."""
    detail = asker.ask(question("chart", "detail", index), image).text
    answers = [
        parse.bars_in_prose(detail),
        parse.bars_in_json(_json_answer(asker, "chart", index, image)) or [],
    ]
    labels, values = [b.label for b in chart.bars], [b.value for b in chart.bars]
    for bars in answers:
        asked = max(len(bars), len(labels))
        asker.shares.add(
            "chart_labels", best_alignment([label for label, _ in bars], labels, same), asked
        )
        asker.shares.add(
            "chart_values", best_alignment([value for _, value in bars], values, same), asked
        )


def score_card(asker: Asker, card: Card, index: int, image: Image.Image) -> None:
    """A transcription and a JSON list of one card."""
    # The phrasings of "read" that are answered line by line.
    text = asker.ask(question("card", "read", (0, 4, 5)[index % 3]), image).text
    asker.shares.add("card_words", *words_right(parse.printed_lines(text), card))
    data = parse.load_json(_json_answer(asker, "card", index, image))
    rows: Any = data.get("lines") if isinstance(data, dict) else data
    lines = []
    for row in rows if isinstance(rows, list) else []:
        words = f"{row.get('text', '')} {row.get('number', '')}" if isinstance(row, dict) else row
        lines.append(str(words).split())
    asker.shares.add("card_words", *words_right(lines, card))


_SCORERS: dict[str, Callable[..., None]] = {
    "scene": score_scene,
    "chart": score_chart,
    "card": score_card,
}


def score_pictures(asker: Asker, kind: str, start: int, stop: int) -> None:
    """Held-out pictures `start` to `stop` of a kind, each asked about twice."""
    for index in range(start, stop):
        picture = sample(kind, f"held-out/{kind}/{index}")
        # Half of them as the app shows them: larger, with smooth edges.
        image = draw_smooth(picture) if index % 2 else draw(picture)
        _SCORERS[kind](asker, picture, index, image)


def swapped_pictures(asker: Asker, kind: str, count: int) -> None:
    """Asks about a second picture what was asked about the first: the answers must differ."""
    pictures = list(held_out(kind, 2 * count))
    for index, (one, two) in enumerate(zip(pictures[:count], pictures[count:], strict=True)):
        prompt = question(kind, "detail", index)
        first, second = (asker.ask(prompt, draw(p)).text for p in (one, two))
        asker.shares.add("swap_changes", first != second)


@torch.inference_mode()
def image_sensitivity(asker: Asker, kind: str, count: int) -> None:
    """The share of answer tokens whose greedy choice changes with the picture.

    A state is image-sensitive when its greedy token changes if the picture is replaced by the
    mean picture of its kind or by another picture of its kind, the text so far being the same.
    """
    target = asker.session.target
    pictures = list(held_out(kind, count + 1))
    images = [draw(p) for p in pictures]
    pixels = np.mean([np.asarray(image, dtype=np.float32) for image in images], axis=0)
    mean = Image.fromarray(pixels.astype(np.uint8))
    rng = random.Random(f"held-out/sensitivity/{kind}")
    for index in range(count):
        turn = turn_about(pictures[index], rng)
        own = np.array(asker.ask(turn.question, images[index]).token_ids)
        changed = np.zeros(len(own), dtype=bool)
        for other in (mean, images[index + 1]):
            changed |= _greedy_choices(target, turn.question, other, own) != own
        asker.shares.add(f"sensitive_{kind}", int(changed.sum()), len(own))


def _greedy_choices(target: Target, prompt: str, image: Image.Image, tokens: np.ndarray):
    """The greedy choice at each place of `tokens` (forced) after `prompt` about `image`."""
    request = target.prepare(prompt, image)
    model = target.model
    ids = torch.tensor([[*request.ids, *tokens[:-1].tolist()]], device=target.device)
    inputs = {
        name: tensor.to(target.device)
        for name, tensor in request.inputs.items()
        if name in ("pixel_values", "image_grid_thw")
    }
    kinds = (ids == model.config.image_token_id).int()
    positions, _ = model.model.get_rope_index(
        ids.cpu(), kinds.cpu(), image_grid_thw=inputs["image_grid_thw"].cpu()
    )
    logits = model(
        input_ids=ids,
        mm_token_type_ids=kinds,
        position_ids=positions.to(target.device),
        use_cache=False,
        **inputs,
    ).logits[0, len(request.ids) - 1 :]
    return logits.argmax(-1).cpu().numpy()


def accepted_length(asker: Asker, count: int) -> None:
    """Tokens by passes of RECAP with 63 nodes on the benchmark's requests, memory kept."""
    session = Session(asker.session.target)
    settings = get_method("recap").settings(budget=63)
    for item in load_set("demo", count):
        run = session.run(
            item.prompt,
            item.open_picture(),
            "recap",
            settings=settings,
            max_new_tokens=MAX_NEW_TOKENS,
        )
        trace = run.finish_all()
        asker.shares.add("mat", sum(s.accepted_length for s in trace.steps), len(trace.steps))


def speed(name: str) -> list[Figure]:
    """Seconds to load and to the first token, and tokens a second without speculation."""
    start = time.perf_counter()
    target = load_target(name)
    load = time.perf_counter() - start
    picture = sample("scene", "held-out/speed/0")
    turn = build_turn("scene", "detail", picture, random.Random(0), 0)
    assert turn is not None
    first, rates = [], []
    for _ in range(3):
        start = time.perf_counter()
        run = Session(target).run(
            turn.question, draw(picture), "autoregressive", max_new_tokens=MAX_NEW_TOKENS
        )
        run.prefill()
        first.append(time.perf_counter() - start)
        start = time.perf_counter()
        trace = run.finish_all()
        rates.append((len(trace.token_ids) - 1) / (time.perf_counter() - start))
    return [
        Figure("seconds to load", load, "s", high=3),
        Figure("seconds to the first token", max(first), "s", high=0.5),
        Figure("autoregressive tokens a second", max(rates), "/s", low=60),
    ]


# A function that asks and counts, and what it takes behind the asker.
Task = tuple[Callable[..., None], tuple[Any, ...]]
_asker: Asker | None = None  # of a worker


def _start_worker(name: str, method: str) -> None:
    global _asker
    torch.set_num_threads(1)
    _asker = Asker(load_target(name), method, Shares())


def _work(task: Task) -> Shares:
    assert _asker is not None
    _asker.shares = shares = Shares()
    function, arguments = task
    function(_asker, *arguments)
    return shares


def _tasks(pictures: int) -> list[Task]:
    """All that is to be asked, what takes longest first."""
    few = max(2, pictures // 10)
    tasks: list[Task] = [(accepted_length, (max(6, min(48, pictures)),))]
    tasks += [
        (part, (kind, few)) for part in (swapped_pictures, image_sensitivity) for kind in KINDS
    ]
    for kind in KINDS:
        for start in range(0, pictures, _CHUNK):
            tasks.append((score_pictures, (kind, start, min(start + _CHUNK, pictures))))
    return tasks


def ask_all(name: str, pictures: int, method: str, processes: int) -> Shares:
    """All counts of the model `name`, from so many processes."""
    shares = Shares()
    tasks = _tasks(pictures)
    # Not forked: the threads of torch would not come along.
    with ProcessPoolExecutor(
        processes, get_context("spawn"), _start_worker, (name, method)
    ) as pool:
        for done, found in enumerate(pool.map(_work, tasks), start=1):
            shares.update(found)
            print(f"[evaluate] {done} of {len(tasks)} parts", end="\r", file=sys.stderr, flush=True)
    print(file=sys.stderr)
    return shares


def evaluate(name: str = "demo", pictures: int = 200, method: str = "recap-plus") -> int:
    """Print every figure of the model `name`; returns 1 where a target is missed, else 0.

    `pictures` is how many held-out pictures of each kind are asked about, twice each. The last
    line is one JSON object with all figures.
    """
    start = time.perf_counter()
    figures = speed(name)
    shares = ask_all(name, pictures, method, max(1, torch.get_num_threads()))
    for share, (words, low) in _TARGETS.items():
        figures.append(Figure(words, 100 * shares.by_name[share].value, low=low))
    for kind in KINDS:
        value = 100 * shares.by_name[f"sensitive_{kind}"].value
        figures.append(Figure(f"{kind}s: image-sensitive tokens", value))
    mat = shares.by_name["mat"].value
    figures.append(Figure("MAT of RECAP with 63 nodes", mat, "tokens", 3, 4.5))
    figures.append(Figure("seconds for this evaluation", time.perf_counter() - start, "s"))
    for figure in figures:
        print(figure.line())
    missed = [figure.name for figure in figures if not figure.met]
    print(f"{len(missed)} of {len(figures)} figures miss their target: {', '.join(missed) or '-'}")
    print(json.dumps({figure.name: round(figure.value, 4) for figure in figures}))
    return 1 if missed else 0
