"""What the tests of the bundled model share; loading and training once is enough."""

from __future__ import annotations

import pytest

from recap.demo.tokenizer import train_tokenizer


@pytest.fixture(scope="session")
def tokenizer():
    """A tokenizer trained on a little text."""
    return train_tokenizer(seed=0, texts=1500)
