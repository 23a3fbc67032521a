"""The app on a small random model that is slow, stuck or broken where the prompt says so.

`python -m tests.simulated`: the address and the host's settings come from the environment, as for
`app.py`. Everything but the model's passes is the real thing. The first word of a prompt decides:

- "slow": every pass takes a twentieth of a second longer;
- "stuck": the third pass takes so many seconds longer as the second word says;
- "memory": the third pass finds no memory; "prefill": nor does the first;
- "device": the third pass finds no device.
"""

from __future__ import annotations

import time
from typing import Any

import torch

from app.hosting import Host
from app.layout import build, launch_options
from app.line import Turnstile
from app.models import ModelShelf
from recap.targets import Target, load_target


def load(name: str) -> Target:
    """The model with passes that misbehave on request."""
    target = load_target("tiny-random", device="cpu", dtype="float32")
    verify, prefill = target.verify, target.prefill
    passes: dict[int, int] = {}

    def misbehave(request: Any, tree: Any, **options: Any) -> Any:
        word, *rest = request.prompt.split() or [""]  # measuring cost asks nothing
        passes[id(request)] = count = passes.get(id(request), 0) + 1
        if word == "slow":
            time.sleep(0.05)
        elif count == 3 and word in _MISBEHAVIOUR:
            _MISBEHAVIOUR[word](rest)
        return verify(request, tree, **options)

    def refuse(request: Any, **options: Any) -> Any:
        if request.prompt.split()[0] == "prefill":
            _MISBEHAVIOUR["memory"]([])
        passes.pop(id(request), None)
        return prefill(request, **options)

    target.verify, target.prefill = misbehave, refuse
    return target


def _memory(rest: list[str]) -> None:
    raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.")


def _device(rest: list[str]) -> None:
    raise RuntimeError("CUDA error: unspecified launch failure")


_MISBEHAVIOUR = {
    "stuck": lambda rest: time.sleep(float(rest[0])),
    "memory": _memory,
    "device": _device,
}


if __name__ == "__main__":
    host = Host.from_environment()
    page = build(ModelShelf(load, host), Turnstile(host.queue_length, host.stall_seconds))
    page.launch(**launch_options(host))
