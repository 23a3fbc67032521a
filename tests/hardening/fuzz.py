"""Hostile input in bulk: traces, pictures and settings, each with nothing but clean errors.

    python -m tests.hardening.fuzz --inputs 120000 [--only traces] [--seed 7]

A clean error is a `RecapError`; whatever else is raised is a fault and ends the run with the input
that did it. What is accepted is used as the program would use it: a trace is shown, exported and
written again, a picture has pixels, settings read back. The last line is one JSON object.

    python -m tests.hardening.fuzz --guided --only traces --inputs 40000

lets coverage decide what is tried next, by way of atheris (`pip install atheris`: Linux, no part of
the requirements). It counts inputs that hypothesis could make something of, and takes one surface.
"""

from __future__ import annotations

import argparse
import copy
import io
import json
import os
import time
import traceback
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any, NoReturn

import gradio as gr
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st
from PIL import Image

import app.payload
import app.settings_form
import recap.schema
import recap.settings
import recap.targets.images
import recap.trace
from app import exports, links
from app.payload import of_trace
from app.settings_form import SettingsForm
from recap.drafters import METHODS
from recap.errors import ImageError, RecapError, SettingsError, TraceError
from recap.inspection import render_trace
from recap.settings import Settings
from recap.targets.images import load_image
from recap.trace import Trace

ROOT = Path(__file__).resolve().parents[2]

_SCRIPT = "</script><script>alert(1)</script>"
_ODD_TEXT = st.one_of(
    st.text(max_size=20),
    st.sampled_from(
        [
            "", _SCRIPT, "../../etc/passwd", "\x00", "\u202eevil", "\ud800", "<|im_end|>",
            "${1+1}", "{{value}}", "=1+1", "x" * 3000, "NaN", "-0", "\N{PILE OF POO}" * 9,
        ]
    ),
)  # fmt: skip
_ODD_NUMBER = st.one_of(
    st.integers(-5, 70),
    st.floats(),
    st.sampled_from([-1, 2**31, 2**63, -(2**63) - 1, 10**30, 10**400, 1e308, 1e-320]),
)
_ODD = st.one_of(
    _ODD_NUMBER,
    _ODD_TEXT,
    st.sampled_from(
        [
            None, True, False, [], {}, [[]], [None], {"": {}}, [[1]], [[1, 2.5]], ["x"], [1] * 99,
            [1, 2, 3], [3, 2, 1], [1.5, 2.5, 9.0], [True], {"a": []}, {"text": 1}, [{"row": 0}],
            [10**30], [[["deep"]]], {"1": 1},
        ]
    ),
)  # fmt: skip
#: Values of the same kind, which a check of kinds lets through.
_ODD_OF = {int: st.integers(-3, 5000), float: st.floats(0, 2), str: _ODD_TEXT, bool: st.booleans()}


# Traces -------------------------------------------------------------------------------------------


def _small_trace() -> str:
    """The bundled trace's first steps: a real one, small enough to be broken often."""
    path = ROOT / "assets" / "traces" / "first-trace.json"
    data = json.loads(path.read_text("utf-8"))
    data["steps"] = data["steps"][:2]
    count = 1 + sum(len(step["emitted"]) for step in data["steps"])
    data["token_ids"] = data["token_ids"][:count]
    for step in data["steps"]:
        _prune(step, 6)
    text = json.dumps(data)
    json.dumps(of_trace(Trace.loads(text), 1))  # still whole
    return text


def _prune(step: dict[str, Any], most: int) -> None:
    """Keep a step's accepted nodes and a few others, so that damage is not always among scores."""
    # Nodes come in the order of popping, parents first: the first ones make a tree by themselves.
    nodes, rows = step["nodes"], step["rows"]
    kept = max(
        most, 1 + max((n for n, s in enumerate(nodes["state"]) if s == "accepted"), default=0)
    )
    for name in nodes:
        nodes[name] = nodes[name][:kept]
    for name in rows:
        rows[name] = rows[name][: kept + 1]
    looked = step["lookups"]
    near = [number for number, row in enumerate(looked["row"]) if row <= kept]
    for name in looked:
        looked[name] = [looked[name][number] for number in near]
    step["expanded"] = [row for row in step["expanded"] if row <= kept]
    step["suffix"] = [found for found in step["suffix"] if found["row"] <= kept]


def _damage(data: st.DataObject, whole: Any) -> None:
    """Change one place of a JSON value, somewhere inside."""
    here = whole
    while True:
        keys = list(here) if isinstance(here, dict) else list(range(len(here)))
        key = data.draw(st.sampled_from(keys))
        inner = here[key]
        if isinstance(inner, dict | list) and inner and data.draw(st.integers(0, 5)):
            here = inner
            continue
        kind = data.draw(
            st.sampled_from(["replace", "alike", "alike", "nudge", "drop", "add", "double"])
        )
        if kind == "drop":
            del here[key]
        elif kind == "add" and isinstance(here, dict):
            here[data.draw(_ODD_TEXT)] = copy.deepcopy(data.draw(_ODD))
        elif kind in ("add", "double") and isinstance(here, list):
            here.insert(key, copy.deepcopy(inner))
        elif kind == "nudge" and isinstance(inner, int | float):
            here[key] = inner + data.draw(st.integers(-3, 3))
        elif kind == "alike" and type(inner) in _ODD_OF:
            here[key] = data.draw(_ODD_OF[type(inner)])
        else:
            here[key] = copy.deepcopy(data.draw(_ODD))  # it may be damaged itself
        return


def _fuzz_trace(data: st.DataObject, seen: Counter[str], base: str) -> None:
    changed = json.loads(base)
    for _ in range(data.draw(st.integers(1, 2))):
        _damage(data, changed)
        if not changed:
            break
    text = json.dumps(changed)
    if data.draw(st.integers(0, 9)) == 0:  # damaged as text
        at = data.draw(st.integers(0, len(text)))
        text = text[:at] + data.draw(
            st.sampled_from(["", "[" * 5000, "}", "\x00", "1e999", "NaN", "9" * 5000])
        )
    try:
        trace = Trace.loads(text)
    except TraceError as error:
        seen["refused"] += 1
        assert len(str(error).encode()) < 400  # noqa: PT017  # one sentence that can be sent
        return
    seen["loaded"] += 1
    json.dumps(of_trace(trace, 1), ensure_ascii=False).encode()  # it can be sent
    render_trace(trace)
    assert Trace.loads(trace.dumps()) == trace
    parcels = [exports.parcel(trace, kind) for kind in exports.EXPORTS]
    json.dumps(parcels, ensure_ascii=False).encode()
    assert not any("/" in parcel["name"] for parcel in parcels)
    assert "<script>alert" not in parcels[-1]["text"]


# Pictures -----------------------------------------------------------------------------------------


def _pictures() -> list[bytes]:
    """Small pictures of every format, with the parts that decoders stumble over."""
    noise = Image.effect_noise((24, 18), 80)
    rgb = Image.merge("RGB", (noise, noise.rotate(90).resize((24, 18)), noise))
    exif = Image.Exif()
    exif[0x0112], exif[0x010E] = 6, "words"
    frames = [Image.new("RGB", (9, 9), c) for c in ("red", "green", "blue")]
    made: list[tuple[Image.Image, str, dict[str, Any]]] = [
        (rgb, "PNG", {"exif": exif, "icc_profile": b"\0" * 140}),
        (rgb.convert("RGBA"), "PNG", {}),
        (rgb.convert("P"), "PNG", {"transparency": 3}),
        (noise.convert("I;16"), "PNG", {}),
        (noise.convert("1"), "PNG", {}),
        (rgb, "JPEG", {"exif": exif, "quality": 80}),
        (rgb, "JPEG", {"progressive": True}),
        (rgb.convert("CMYK"), "JPEG", {}),
        (rgb, "WEBP", {"exif": exif}),
        (rgb.convert("RGBA"), "WEBP", {"lossless": True}),
        (frames[0], "WEBP", {"save_all": True, "append_images": frames[1:]}),
        (frames[0], "GIF", {"save_all": True, "append_images": frames[1:], "loop": 0}),
        (frames[0], "PNG", {"save_all": True, "append_images": frames[1:]}),
        (rgb, "BMP", {}),
        (rgb.convert("P"), "BMP", {}),
        (rgb, "TIFF", {"compression": "tiff_lzw", "exif": exif}),
        (noise.convert("F"), "TIFF", {}),
        (rgb, "TIFF", {"compression": "jpeg"}),
        (frames[0], "TIFF", {"save_all": True, "append_images": frames[1:]}),
        (rgb, "PPM", {}),
    ]
    found = []
    for image, kind, options in made:
        out = io.BytesIO()
        image.save(out, kind, **options)
        found.append(out.getvalue())
    return [*found, b"P3\n2 2\n255\n" + b"9 " * 12, b"<svg xmlns='http://www.w3.org/2000/svg'/>"]


def _fuzz_picture(data: st.DataObject, seen: Counter[str], bases: list[bytes]) -> None:
    raw = bytearray(data.draw(st.sampled_from(bases)))
    # Most of what a decoder decides by stands near the start.
    near = st.one_of(st.integers(0, min(len(raw), 80) - 1), st.integers(0, len(raw) - 1))
    for _ in range(data.draw(st.integers(0, 4))):
        at = data.draw(near)
        kind = data.draw(st.sampled_from(["byte", "bit", "big", "insert", "cut", "other"]))
        if kind == "byte":
            raw[at : at + 1] = bytes([data.draw(st.integers(0, 255))])
        elif kind == "bit":
            raw[at : at + 1] = bytes([(raw[at] if at < len(raw) else 0) ^ 1 << at % 8])
        elif kind == "big":
            raw[at : at + 4] = data.draw(st.sampled_from([b"\xff" * 4, b"\0" * 4, b"\x7f\xff\0\0"]))
        elif kind == "insert":
            raw[at:at] = data.draw(st.binary(max_size=12))
        elif kind == "cut":
            del raw[at:]
        else:  # a polyglot: the head of one, the tail of another
            raw[at:] = data.draw(st.sampled_from(bases))[at:]
    try:
        image = load_image(bytes(raw))
    except ImageError:
        seen["refused"] += 1
        return
    seen["decoded"] += 1
    assert image.mode == "RGB"
    image.getpixel((0, 0))


# Settings and links -------------------------------------------------------------------------------


def _fuzz_settings(data: st.DataObject, seen: Counter[str], form: SettingsForm) -> None:
    names = st.one_of(st.sampled_from(form.names), _ODD_TEXT)
    changes = data.draw(st.dictionaries(names, _ODD, max_size=4))
    method = data.draw(st.sampled_from([*METHODS, "", "\x00"]))
    outcome, messages = "refused", [""]
    try:
        found = Settings.from_json(changes)
        assert Settings.from_json(json.loads(json.dumps(found.to_json()))) == found
        outcome = "accepted"
    except SettingsError as error:
        messages.append(str(error))
    values = form.defaults("recap")
    for name, value in changes.items():
        if name in form.names:
            values[form.names.index(name)] = value
    try:
        form.read(values)
    except SettingsError as error:
        messages.append(str(error))
    assert max(map(len, messages)) < 400, "a message is one sentence"
    query = {"prompt": data.draw(_ODD_TEXT), "method": method, "step": data.draw(_ODD_TEXT)}
    query["settings"] = data.draw(st.sampled_from([json.dumps(changes), "[" * 9000, "9" * 5000]))
    query |= {name: str(data.draw(st.integers(-3, 4000))) for name in ("tokens", "example")}
    if links.read(query) is not None:
        outcome += ", link read"
    seen[outcome] += 1


# The run ------------------------------------------------------------------------------------------


def _form() -> SettingsForm:
    with gr.Blocks(analytics_enabled=False):
        return SettingsForm()


#: What is fuzzed: (one input, what it starts from, the modules whose branches count).
SURFACES: dict[str, tuple[Callable[..., None], Callable[[], Any], tuple[ModuleType, ...]]] = {
    "traces": (
        _fuzz_trace, _small_trace, (recap.trace, recap.schema, app.payload, app.exports),
    ),
    "pictures": (_fuzz_picture, _pictures, (recap.targets.images,)),
    "settings": (_fuzz_settings, _form, (recap.settings, app.settings_form, app.links)),
}  # fmt: skip


def fuzz(surface: str, inputs: int, number: int = 0) -> Counter[str]:
    """So many inputs for one surface; what became of them. Raises at the first fault."""
    every, seen = _test(surface, inputs, number)
    every()
    return seen


def guided(surface: str, inputs: int, number: int = 0) -> NoReturn:
    """The same, guided by coverage. Ends the process, since libFuzzer does not come back."""
    import atheris

    for module in SURFACES[surface][2]:
        for function in _functions(module):
            atheris.instrument_func(function)
    every, seen = _test(surface, inputs, number)
    tried = 0

    def one(data: bytes) -> None:
        nonlocal tried
        tried += 1
        try:
            every.hypothesis.fuzz_one_input(data)
        except BaseException:
            traceback.print_exc()
            os._exit(1)
        if tried % 1000 == 0:
            print(f"{surface}: {seen.total()} inputs, {tried} buffers", flush=True)
        if seen.total() >= inputs:
            report = {"inputs": seen.total(), **seen, "buffers": tried}
            print(json.dumps({"seed": number, "guided": True, surface: report}), flush=True)
            os._exit(0)

    # libFuzzer takes 0 for "by the clock"; a buffer is what hypothesis makes its choices from. What
    # takes long on a busy machine is no finding, and would be written to the current folder.
    options = (f"-seed={number + 1}", "-max_len=8192", "-verbosity=0", "-report_slow_units=1000000")
    atheris.Setup(["fuzz", *options], one)
    atheris.Fuzz()
    raise AssertionError("libFuzzer came back")


def _functions(module: ModuleType) -> list[FunctionType]:
    """The functions that a module defines, those of its classes among them."""
    classes = [value for value in vars(module).values() if isinstance(value, type)]
    found = [*vars(module).values()]
    found += [member for one in classes for member in vars(one).values()]
    plain = [getattr(value, "fget", None) or getattr(value, "__func__", value) for value in found]
    return [
        value
        for value in plain
        if isinstance(value, FunctionType) and value.__module__ == module.__name__
    ]


def _test(surface: str, inputs: int, number: int) -> tuple[Any, Counter[str]]:
    """(a test of hypothesis, what becomes of its inputs)."""
    one, make, _ = SURFACES[surface]
    base, seen = make(), Counter[str]()

    @seed(number)
    @settings(
        max_examples=inputs, deadline=None, database=None, phases=[Phase.generate, Phase.shrink],
        suppress_health_check=list(HealthCheck),
    )  # fmt: skip
    @given(data=st.data())
    def every(data: st.DataObject) -> None:
        try:
            one(data, seen, base)
        except RecapError as error:
            raise AssertionError(f"an error in the wrong place: {error}") from error

    return every, seen


def main() -> None:
    """Fuzz from the command line."""
    parser = argparse.ArgumentParser(description="Hostile input in bulk.")
    parser.add_argument("--inputs", type=int, default=120_000, help="over all surfaces together")
    parser.add_argument("--only", choices=SURFACES, action="append", help="these surfaces only")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--guided", action="store_true", help="guided by coverage; needs atheris, one surface"
    )
    asked = parser.parse_args()
    surfaces = asked.only or list(SURFACES)
    if asked.guided:
        if len(surfaces) != 1:
            parser.error("--guided takes one surface: name it with --only")
        guided(surfaces[0], asked.inputs, asked.seed)
    report: dict[str, Any] = {"seed": asked.seed}
    for surface in surfaces:
        started = time.perf_counter()
        seen = fuzz(surface, asked.inputs // len(surfaces), asked.seed)
        spent = time.perf_counter() - started
        report[surface] = {"inputs": seen.total(), **seen}
        print(f"{surface}: {seen.total()} inputs in {spent:.0f} s: {dict(seen)}", flush=True)
    print(json.dumps(report))


if __name__ == "__main__":
    main()
