"""Calls of `generate` with RECAP and without it."""

from __future__ import annotations

import pytest

import recap

LENGTH = 40


def both(target, inputs, **options):
    """(what `generate` gives alone, what it gives with RECAP)."""
    options = {"max_new_tokens": LENGTH, "do_sample": False, "pad_token_id": 0, **options}
    alone = target.model.generate(**inputs, **options)
    return alone, target.model.generate(**inputs, **options, custom_generate=recap.generate)


def refused(target, inputs, error, match, **options):
    """Assert that this call is refused, in words that match."""
    options = {"max_new_tokens": 4, "do_sample": False, "pad_token_id": 0, **options}
    with pytest.raises(error, match=match):
        target.model.generate(**inputs, **options, custom_generate=recap.generate)
