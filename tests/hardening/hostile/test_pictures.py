"""Pictures and other files: bombs, polyglots, wrong names, no end."""

from __future__ import annotations

import io
import json
import struct
import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from recap.errors import ImageError
from recap.targets.images import load_image
from tests.hardening.hostile.inputs import SCRIPT, saved
from tests.server import Server
from tests.visitor import RefusedError, Visitor


def _png(*chunks: tuple[bytes, bytes], size: tuple[int, int] = (8, 8), rows: bytes = b"") -> bytes:
    """A PNG of these chunks behind its header; grey, 8 bits."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return (
            struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
        )

    body = zlib.compress(rows or (b"\0" + b"\x80" * size[0]) * size[1], 9)
    head = struct.pack(">IIBBBBB", *size, 8, 0, 0, 0, 0)
    parts = [(b"IHDR", head), *chunks, (b"IDAT", body), (b"IEND", b"")]
    return b"\x89PNG\r\n\x1a\n" + b"".join(chunk(*part) for part in parts)


def _animated(kind: str) -> bytes:
    frames = [Image.new("RGB", (32, 32), colour) for colour in ("red", "blue")] * 20
    out = io.BytesIO()
    frames[0].save(out, kind, save_all=True, append_images=frames[1:], duration=9, loop=0)
    return out.getvalue()


def _zip() -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        archive.writestr("a.html", SCRIPT)
    return out.getvalue()


def _exif(tag: int, kind: int, value: bytes) -> bytes:
    """A directory of one entry: its tag, the number of its kind, four bytes of value."""
    return b"Exif\0\0II*\0" + struct.pack("<IHHHI4sI", 8, 1, tag, kind, 1, value, 0)


_ZEROS = zlib.compress(bytes(20_000_000), 9)


REFUSED = {
    "bomb-pixels.png": _png(size=(9000, 9000), rows=bytes(9001 * 9000)),
    "bomb-claimed.png": _png(size=(60_000, 60_000), rows=b"\0" * 99),
    "bomb-text.png": _png((b"zTXt", b"Comment\0\0" + _ZEROS)),
    "bomb-profile.png": _png((b"iCCP", b"p\0\0" + _ZEROS)),
    "bomb.gif": b"GIF89a" + b"\xff" * 4 + b"\x80" + bytes(8) + b"," + bytes(4) + b"\xff" * 4,
    "bomb.bmp": b"BM" + struct.pack("<IHHIIiiHH", 54, 0, 0, 54, 40, 99999, 99999, 1, 24) + b"\0",
    "bomb.ppm": b"P6 99999 99999 255\n" + b"\0" * 99,
    "thin.png": _png(size=(20_000, 2)),
    "thin-high.png": _png(size=(2, 20_000)),
    "vector.svg": f"<svg xmlns='http://www.w3.org/2000/svg'><script>{SCRIPT}</script></svg>".encode(),
    "vector.png": b"<?xml version='1.0'?><!DOCTYPE a [<!ENTITY b 'c'>]><svg>&b;</svg>",
    "page.png": f"<html>{SCRIPT}</html>".encode(),
    "script.gif": b"GIF89a/*" + b"\0" * 30 + b"*/=alert(1)//",
    "document.pdf": b"%PDF-1.7\n" + b"\0" * 500,
    "archive.png": _zip(),
    "empty.png": b"",
    "elf.jpg": b"\x7fELF" + bytes(900),
    "postscript.eps": b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n(w) (r) file\n",
    **{f"cut-{kind}.{kind}": saved(kind)[:60] for kind in ("png", "jpeg", "webp", "gif", "tiff")},
}  # fmt: skip


DECODED = {
    "one-pixel.png": _png(size=(1, 1)),
    "animated.gif": _animated("GIF"),
    "animated.webp": _animated("WEBP"),
    "animated.png": _animated("PNG"),
    "polyglot.png": saved("PNG") + _zip(),
    "polyglot.jpg": saved("JPEG", comment=SCRIPT.encode()) + SCRIPT.encode(),
    "named-wrong.gif": saved("PNG"),
    "profile.png": saved("PNG", icc_profile=b"\xff" * 300),
    "profile-short.jpg": saved("JPEG", icc_profile=b"x"),
    "cmyk.jpg": saved("JPEG", mode="CMYK", icc_profile=b"\0" * 128),
    "turned.jpg": saved("JPEG", exif=_exif(0x0112, 3, b"\6\0\0\0")),
    "turned-nowhere.jpg": saved("JPEG", exif=_exif(0x0112, 3, b"\x63\0\0\0")),
    "turned-in-words.jpg": saved("JPEG", exif=_exif(0x0112, 2, b"up\0\0")),
    "exif-garbage.jpg": saved("JPEG", exif=b"Exif\0\0MM\0*" + b"\xff" * 5000),
    # A directory that is its own sub-directory.
    "exif-circle.jpg": saved("JPEG", exif=_exif(0x8769, 4, b"\x08\0\0\0")),
    "huge-but-fair.png": _png(size=(6000, 6000), rows=bytes(6001 * 6000)),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_no_fair_picture_is_refused_in_words(
    visit: Callable[[], Visitor], name: str
) -> None:
    """By the engine, by the page before a run, and by the run itself, each in one sentence."""
    with pytest.raises(ImageError):
        load_image(REFUSED[name])
    visitor = visit()
    file = visitor.upload(REFUSED[name], name)
    said = visitor.call("look", file, "demo")[0]["text"]
    assert said.endswith(".")
    assert len(said) < 400
    assert str(Path(file["path"]).parent) not in said, "a path of the server"
    with pytest.raises(RefusedError) as refused:
        visitor.run(picture=file, limit=2)
    assert str(refused.value) == said


@pytest.mark.parametrize("name", DECODED)
def test_odd_pictures_are_looked_at(visit: Callable[[], Visitor], name: str) -> None:
    """They decode, and a run answers."""
    assert load_image(DECODED[name]).mode == "RGB"
    visitor = visit()
    file = visitor.upload(DECODED[name], name)
    view = visitor.run(picture=file, prompt="What is this?", limit=2)
    assert json.loads(view["end"])["finish"] in ("length", "eos")


@pytest.mark.parametrize("name", ["vector.svg", "page.html", "page.svg.png", "run.xml", "run.js"])
def test_an_upload_is_never_served_as_something_that_runs(
    visit: Callable[[], Visitor], name: str
) -> None:
    """A browser that opens its address saves it, or shows a broken picture."""
    visitor = visit()
    file = visitor.upload(f"<svg xmlns='http://www.w3.org/2000/svg'>{SCRIPT}</svg>".encode(), name)
    answer = visitor.http.get(f"/gradio_api/file={file['path']}")
    assert answer.headers["x-content-type-options"] == "nosniff"
    kind = answer.headers["content-type"]
    attached = answer.headers.get("content-disposition", "").startswith("attachment")
    assert kind.startswith("image/png") or (attached and kind == "application/octet-stream")


@pytest.mark.parametrize(
    "name",
    [
        "../../../tmp/evil.png", "..\\..\\evil.png", "/etc/passwd", "a/../../b.png", "....//x.png",
        "x" * 150 + ".png", "%2e%2e%2fevil.png", "CON", ".bashrc", "\u202egnp.exe", "a;rm -rf.png",
    ],
)  # fmt: skip
def test_a_name_cannot_leave_the_folder(
    visit: Callable[[], Visitor], server: Server, name: str
) -> None:
    """Whatever a file calls itself, it lies in a folder named by its digest."""
    visitor = visit()
    (folder,) = server.folder.iterdir()
    path = Path(visitor.upload(saved("PNG"), name)["path"])
    assert path.resolve().parent.parent == folder.resolve()
    with pytest.raises(RefusedError):
        visitor.call("look", {"path": name, "meta": {"_type": "gradio.FileData"}}, "demo")


def test_a_file_or_a_body_without_end_is_refused(visit: Callable[[], Visitor]) -> None:
    """By its length before it is read, and where it does not say one."""
    visitor = visit()
    with pytest.raises(RefusedError, match="413"):
        visitor.upload(bytes(41_000_000), "large.png")
    http = visitor.http
    address = "/gradio_api/queue/join"
    assert http.post(address, content=b"x" * 17_000_000).status_code == 413
    assert http.post(address, content=iter([b"{", b"}"])).status_code == 411


@pytest.mark.parametrize(
    "picture",
    [
        "/etc/passwd", {"path": "/etc/passwd"}, {"path": "\0"}, [1], {"path": "x" * 9000},
        {"path": None, "url": "http://127.0.0.1/"},
    ],
)  # fmt: skip
def test_a_picture_that_was_not_uploaded_is_refused(
    visit: Callable[[], Visitor], picture: Any
) -> None:
    """A client names only files that it has sent."""
    with pytest.raises(RefusedError, match=r"uploaded|None"):
        visit().call("decode", picture, "Hello!", "recap", 2, None)
