"""Muon: momentum whose matrices are made orthogonal before they are applied.

After K. Jordan et al., "Muon: An optimizer for hidden layers in neural networks" (2024), and the
same updates as `torch.optim.Muon` up to rounding. That one iterates in bfloat16 and matrix by
matrix: on a CPU without bfloat16 products a step of stage 1 took six times as long with it. Here
the iteration runs in float32 there, and on all matrices of one shape at once. It is still a
quarter of a step over small batches, so matrices can take turns: see `Muon`.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor

from recap.demo.forward import bfloat16_is_fast

#: The quintic's coefficients, steep at zero, and how often it is applied.
_QUINTIC = (3.4445, -4.7750, 2.0315)
_ITERATIONS = 5
_TINY = 1e-7
#: With this factor an update is as large as AdamW's usually are, so both share a learning rate.
_ADAMW_SIZE = 0.2


class Muon(torch.optim.Optimizer):
    """Nesterov momentum, orthogonalised, with decoupled weight decay. Takes matrices only.

    With `turns` above one a matrix moves only every so many steps, by as many times the step: its
    momentum, which takes in every gradient, hardly turns meanwhile, and the iteration is run that
    much less often.
    """

    def __init__(
        self,
        params: Iterable[Any],
        lr: float = 1e-3,
        weight_decay: float = 0.01,
        momentum: float = 0.95,
        turns: int = 1,
    ) -> None:
        defaults = {"lr": lr, "weight_decay": weight_decay, "momentum": momentum}
        super().__init__(params, defaults | {"turns": turns, "steps": 0})
        if any(p.ndim != 2 for group in self.param_groups for p in group["params"]):
            raise ValueError("Muon trains matrices only")

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        for group in self.param_groups:  # of a checkpoint from before there were turns
            group.setdefault("turns", 1)
            group.setdefault("steps", 0)

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> float | None:  # type: ignore[override]
        """One update of the matrices whose turn it is, of those that have a gradient."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for group in self.param_groups:
            alike: dict[tuple[int, ...], list[tuple[Tensor, Tensor]]] = defaultdict(list)
            for index, matrix in enumerate(group["params"]):
                if matrix.grad is not None:
                    moved = self._moved(matrix, group)
                    if (index + group["steps"]) % group["turns"] == 0:
                        alike[tuple(matrix.shape)].append((matrix, moved))
            lr = group["lr"] * group["turns"]
            for shape, matrices in alike.items():
                updates = orthogonal(torch.stack([moved for _, moved in matrices]))
                size = lr * _ADAMW_SIZE * math.sqrt(max(shape))
                for (matrix, _), update in zip(matrices, updates, strict=True):
                    matrix.mul_(1.0 - lr * group["weight_decay"])
                    matrix.add_(update, alpha=-size)
            group["steps"] += 1
        return loss

    def _moved(self, matrix: Tensor, group: dict[str, Any]) -> Tensor:
        """The gradient after momentum, looking one step ahead."""
        state, momentum = self.state[matrix], group["momentum"]
        if "momentum_buffer" not in state:
            state["momentum_buffer"] = torch.zeros_like(matrix)
        buffer = state["momentum_buffer"]
        assert matrix.grad is not None  # asked by `step`
        buffer.lerp_(matrix.grad, 1.0 - momentum)
        return matrix.grad.lerp(buffer, momentum)


def orthogonal(matrices: Tensor) -> Tensor:
    """(n, rows, columns) -> the same with singular values near one (0.7 to 1.2) unless tiny."""
    rows, columns = matrices.shape[-2:]
    fast = matrices.device.type != "cpu" or bfloat16_is_fast()
    x = matrices.to(torch.bfloat16) if fast else matrices.float()
    if rows > columns:
        x = x.mT
    x = x / x.norm(dim=(-2, -1), keepdim=True).clamp(min=_TINY)
    a, b, c = _QUINTIC
    for _ in range(_ITERATIONS):
        gram = x @ x.mT
        x = torch.baddbmm(x, torch.baddbmm(gram, gram, gram, beta=b, alpha=c), x, beta=a)
    return (x.mT if rows > columns else x).to(matrices.dtype)
