"""Any picture decodes to upright RGB, or says why not."""

from __future__ import annotations

import contextlib
import io
import struct
import zlib

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from recap.errors import ImageError
from recap.targets.images import MAX_PIXELS, load_image
from tests.recap.reference import picture, tiny_target


def encoded(image: Image.Image, kind: str, **options) -> bytes:
    buffer = io.BytesIO()
    image.save(buffer, kind, **options)
    return buffer.getvalue()


@pytest.mark.parametrize("mode", ["RGB", "RGBA", "L", "LA", "P", "1", "CMYK", "YCbCr", "I;16", "I"])
def test_modes_become_rgb(mode):
    """A mid grey stays a mid grey in every mode that can hold one."""
    if mode.startswith("I"):
        image = Image.fromarray(np.full((9, 12), 128 * 256, np.uint16))
        image = image.convert("I") if mode == "I" else image
    else:
        image = Image.new("RGB", (12, 9), (128, 128, 128)).convert(mode)
    loaded = load_image(image)
    assert loaded.mode == "RGB"
    assert loaded.size == (12, 9)
    if mode != "1":
        assert abs(int(np.asarray(loaded).mean()) - 128) <= 2


def test_16_bit_png_is_scaled_not_clipped():
    """Pillow's own conversion would make nearly everything white."""
    ramp = np.linspace(0, 65535, 256).astype(np.uint16).reshape(16, 16)
    loaded = np.asarray(load_image(encoded(Image.fromarray(ramp), "PNG")))
    assert loaded.min() == 0
    assert loaded.max() == 255
    assert 100 < loaded.mean() < 155


def test_exif_orientation_is_applied():
    """A phone's portrait comes out upright."""
    image = Image.new("RGB", (30, 20), "black")
    image.paste("white", (0, 0, 30, 3))
    exif = Image.Exif()
    exif[0x0112] = 6
    loaded = load_image(encoded(image, "JPEG", exif=exif, quality=95))
    assert loaded.size == (20, 30)
    assert loaded.getpixel((19, 15))[0] > 200


def test_transparency_is_laid_over_white():
    """Not over black, where dark text would vanish."""
    assert load_image(Image.new("RGBA", (4, 4), (0, 0, 0, 0))).getpixel((1, 1)) == (255, 255, 255)
    palette = Image.new("P", (4, 4), 0)
    palette.info["transparency"] = 0
    assert load_image(palette).getpixel((1, 1)) == (255, 255, 255)


def test_first_frame_of_an_animation():
    """GIF and WebP."""
    frames = [Image.new("RGB", (8, 8), c) for c in ("red", "blue")]
    for kind in ("GIF", "WEBP"):
        data = encoded(frames[0], kind, save_all=True, append_images=frames[1:], duration=50)
        red, green, blue = load_image(data).getpixel((4, 4))
        assert red > 200
        assert max(green, blue) < 60


@pytest.mark.parametrize("size", [(1, 1), (1, 90), (300, 3), (2, 5)])
def test_small_and_thin_pictures_go_through_the_model(size):
    """Resized to what the model takes, or a message; never a crash."""
    target = tiny_target("qwen2_5_vl")
    request = target.prepare("what?", Image.new("RGB", size, "red"))
    assert request.image_tokens >= 1
    target.prefill(request, top_k=8)


@pytest.mark.parametrize("size", [(20_000, 2), (101, 1)])
def test_very_thin_pictures_are_refused(size):
    """With the limit in the message."""
    with pytest.raises(ImageError, match="100 times"):
        load_image(Image.new("RGB", size))


def png_of(width: int, height: int) -> bytes:
    """A PNG that claims a size and holds next to nothing: a decompression bomb's head."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        body = kind + data
        return struct.pack(">I", len(data)) + body + struct.pack(">I", zlib.crc32(body))

    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    return (
        b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(b"\0" * 999))
        + chunk(b"IEND", b"")
    )  # fmt: skip


@pytest.mark.parametrize("side", [9_000, 20_000, 60_000])
def test_bombs_are_refused_before_they_are_decoded(side):
    """81, 400 and 3,600 megapixels in a few hundred bytes."""
    assert side * side > MAX_PIXELS
    with pytest.raises(ImageError, match="64 megapixels"):
        load_image(png_of(side, side))


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"hello",
        b"<svg xmlns='http://www.w3.org/2000/svg'/>",
        b"%PDF-1.4",
        b"\x89PNG\r\n\x1a\n",
    ],
)
def test_what_is_no_picture_is_refused(data):
    """A text named .png, SVG, PDF, a bare header."""
    with pytest.raises(ImageError):
        load_image(data)


def test_paths(tmp_path):
    """The message has the file's name, not the whole path."""
    with pytest.raises(ImageError, match=r"^'none\.png' does not exist"):
        load_image(tmp_path / "none.png")
    with pytest.raises(ImageError):
        load_image(tmp_path)
    (tmp_path / "a.png").write_bytes(encoded(picture(1), "PNG"))
    assert load_image(tmp_path / "a.png").size == (90, 60)


@settings(deadline=None, max_examples=200)
@given(st.sampled_from(["PNG", "JPEG", "GIF", "WEBP", "BMP", "TIFF"]), st.data())
def test_damaged_files_decode_or_are_refused(kind, data):
    """Truncated anywhere, any byte changed: a picture or an `ImageError`."""
    raw = bytearray(encoded(picture(3, 24, 16), kind))
    for _ in range(data.draw(st.integers(0, 4))):
        raw[data.draw(st.integers(0, len(raw) - 1))] = data.draw(st.integers(0, 255))
    raw = raw[: data.draw(st.integers(0, len(raw)))]
    with contextlib.suppress(ImageError):
        assert load_image(bytes(raw)).mode == "RGB"
