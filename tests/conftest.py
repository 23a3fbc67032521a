"""What all tests share: no hub, one thread (tiny models gain nothing from more), no chatter."""

from __future__ import annotations

import os
import tempfile

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
# What passes cost is measured for the tests alone, and kept for one run of them.
os.environ["RECAP_CACHE"] = tempfile.mkdtemp(prefix="recap-tests-")

import torch
from hypothesis import settings
from transformers.utils import logging

from recap import cost
from recap.drafters import METHODS

if "PYTEST_XDIST_WORKER" not in os.environ:  # compile once, not once a worker
    for method in METHODS.values():
        method.load()

torch.set_num_threads(1)
# A pass of the tests' models takes a millisecond or a few, and there are dozens of models.
cost.LIMIT = 0.2
logging.set_verbosity_error()
logging.disable_progress_bar()
settings.register_profile("default", deadline=None)  # a busy machine is not a failure
settings.load_profile("default")
