"""Any picture a person may have, as RGB the right way up, or an `ImageError` that says why not."""

from __future__ import annotations

import io
import warnings
from pathlib import Path
from typing import IO

from PIL import Image, ImageOps, UnidentifiedImageError

from recap.errors import ImageError

#: Largest picture that is decoded, in pixels. A small file can hold a picture of any size.
MAX_PIXELS = 64_000_000
#: Longest side over shortest; beyond it a picture cannot be cut into patches sensibly.
MAX_ASPECT = 100
_FORMATS = ("PNG", "JPEG", "WEBP", "GIF", "BMP", "TIFF", "PPM")

Source = Image.Image | str | Path | bytes | IO[bytes]


def load_image(source: Source) -> Image.Image:
    """Decode a path, bytes, an open file or a PIL image to an RGB image.

    EXIF orientation is applied, transparency is laid over white, 16-bit and palette pictures are
    converted, and of an animation the first frame is taken. Raises `ImageError`.
    """
    name = "The picture"
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of damaged metadata, which does no harm
            warnings.simplefilter("error", Image.DecompressionBombWarning)
            if isinstance(source, Image.Image):
                return _to_rgb(_checked(source))
            if isinstance(source, str | Path):
                name = f"'{Path(source).name}'"
                source = Path(source).read_bytes()
            if isinstance(source, bytes | bytearray):
                source = io.BytesIO(source)
            with Image.open(source, formats=_FORMATS) as opened:
                return _to_rgb(_checked(opened))
    except ImageError:
        raise
    except FileNotFoundError:
        raise ImageError(f"{name} does not exist.") from None
    except (Image.DecompressionBombError, Image.DecompressionBombWarning):
        raise ImageError(_too_large()) from None
    except (UnidentifiedImageError, IsADirectoryError):
        raise ImageError(
            f"{name} is not a picture that can be read. Use PNG, JPEG, WebP, GIF, BMP or TIFF."
        ) from None
    except PermissionError:
        raise ImageError(f"{name} may not be read: permission denied.") from None
    except Exception as error:  # decoders raise many kinds: struct.error, zlib.error, SyntaxError
        raise ImageError(f"{name} is damaged and cannot be decoded ({error}).") from None


def _too_large() -> str:
    return f"The picture is too large: at most {MAX_PIXELS // 1_000_000} megapixels are decoded."


def _checked(image: Image.Image) -> Image.Image:
    width, height = image.size
    if width < 1 or height < 1:
        raise ImageError("The picture is empty.")
    if width * height > MAX_PIXELS:
        raise ImageError(_too_large())
    if max(width, height) > MAX_ASPECT * min(width, height):
        raise ImageError(
            f"The picture is too long and thin ({width} x {height}): "
            f"at most {MAX_ASPECT} times as long as it is wide."
        )
    return image


def _to_rgb(image: Image.Image) -> Image.Image:
    image = ImageOps.exif_transpose(image)
    if image.mode.startswith("I;16") or image.mode == "I":
        # Pillow clips 16-bit values when it converts them to 8 bits; scale them instead.
        image = image.convert("I").point(lambda value: value / 256).convert("L")
    elif image.mode == "F":
        raise ImageError("The picture holds floating-point values; save it as PNG or JPEG first.")
    if "A" in image.getbands() or "transparency" in image.info:
        layer = image.convert("RGBA")
        background = Image.new("RGBA", layer.size, "white")
        image = Image.alpha_composite(background, layer)
    return image.convert("RGB")
