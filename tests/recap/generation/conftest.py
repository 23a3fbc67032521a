"""One small model and the inputs of one request, for all calls."""

from __future__ import annotations

import pytest

from tests.recap.families import family_target
from tests.recap.reference import model_inputs, picture


@pytest.fixture(scope="module")
def target():
    return family_target("qwen2_5_vl", 1, scale=0.12)


@pytest.fixture
def inputs(target):
    return model_inputs(target, target.prepare("what is this", picture(0)))
