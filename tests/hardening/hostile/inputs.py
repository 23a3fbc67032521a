"""What several tests of hostile input send."""

from __future__ import annotations

import io
from typing import Any

from PIL import Image

SCRIPT = "</script><script>alert(1)</script>"


def saved(kind: str, size: tuple[int, int] = (60, 40), **options: Any) -> bytes:
    """A picture of noise as a file of this kind."""
    out = io.BytesIO()
    Image.effect_noise(size, 60).convert(options.pop("mode", "RGB")).save(out, kind, **options)
    return out.getvalue()
