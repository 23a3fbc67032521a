"""A KV cache that a tree pass writes in place and a commit trims in place.

    cache = TreeCache(layers=24, reserve=700)
    model(input_ids, cache=cache, ...)     # appends its rows behind what is committed
    cache.commit([0, 3, 7])                # keeps three of the rows of that pass, in this order

Buffers are allocated once for the expected length and grow by half when that was too small. A
pass writes its keys and values at the end and reads a view; nothing is concatenated. A commit moves
the accepted rows up only where they are not already in place.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from transformers.cache_utils import Cache, DynamicLayer

#: Rows to a multiple of which a buffer is allocated.
BLOCK = 256


class _BlockLayer(DynamicLayer):
    """One layer's keys and values: a buffer (1, heads, capacity, head_dim) and a length."""

    def __init__(self, reserve: int) -> None:
        super().__init__()
        self._reserve = reserve
        self._length = 0
        self._key_buffer: torch.Tensor | None = None
        self._value_buffer: torch.Tensor | None = None

    def lazy_initialization(self, key_states: torch.Tensor, value_states: torch.Tensor) -> None:
        self.device = key_states.device
        self.is_initialized = True
        self._grow(key_states, value_states, max(self._reserve, key_states.shape[-2]))

    def update(
        self, key_states: torch.Tensor, value_states: torch.Tensor, *args: object, **kwargs: object
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Append rows in place. Returns views of all rows so far, (1, heads, length, head_dim)."""
        if not self.is_initialized:
            self.lazy_initialization(key_states, value_states)
        end = self._length + key_states.shape[-2]
        if end > self.capacity:
            self._grow(key_states, value_states, end)
        assert self._key_buffer is not None
        assert self._value_buffer is not None
        self._key_buffer[:, :, self._length : end] = key_states
        self._value_buffer[:, :, self._length : end] = value_states
        self._set_length(end)
        return self.keys, self.values

    def get_seq_length(self) -> int:
        return self._length

    @property
    def capacity(self) -> int:
        """Rows that fit without growing."""
        return 0 if self._key_buffer is None else self._key_buffer.shape[2]

    def keep(self, base: int, rows: torch.Tensor | None, count: int) -> None:
        """Keep `count` rows behind `base`: the first ones, or those of `rows`, moved up."""
        if rows is not None:
            assert self._key_buffer is not None
            assert self._value_buffer is not None
            for buffer in (self._key_buffer, self._value_buffer):
                # index_select copies first, so that moving rows onto each other is safe.
                buffer[:, :, base : base + count] = buffer.index_select(2, rows)
        self._set_length(base + count)

    def fill(self, length: int) -> None:
        """Have this many rows of zeros, whatever was there."""
        assert self._key_buffer is not None
        assert self._value_buffer is not None
        if length > self.capacity:
            self._grow(self._key_buffer, self._value_buffer, length)
        self._key_buffer.zero_()
        self._value_buffer.zero_()
        self._set_length(length)

    def _set_length(self, length: int) -> None:
        self._length = length
        assert self._key_buffer is not None
        assert self._value_buffer is not None
        self.keys = self._key_buffer[:, :, :length]
        self.values = self._value_buffer[:, :, :length]

    def _grow(self, keys: torch.Tensor, values: torch.Tensor, needed: int) -> None:
        # Half as much again, so that a long answer is copied a few times, not at every block.
        needed = max(needed, self.capacity + self.capacity // 2)
        capacity = -(-needed // BLOCK) * BLOCK
        for name, like in (("_key_buffer", keys), ("_value_buffer", values)):
            old = getattr(self, name)
            new = like.new_empty(*like.shape[:2], capacity, like.shape[3])
            if old is not None:
                new[:, :, : self._length] = old[:, :, : self._length]
            setattr(self, name, new)
        self._set_length(self._length)


class TreeCache(Cache):
    """The keys and values of one request. `length` counts committed rows."""

    def __init__(self, layers: int, reserve: int) -> None:
        super().__init__(layers=[_BlockLayer(reserve) for _ in range(layers)])
        self.length = 0

    @property
    def pending(self) -> int:
        """Rows that a pass appended and no commit has judged yet."""
        return self.layers[0].get_seq_length() - self.length

    def commit(self, rows: Sequence[int]) -> None:
        """Keep these rows of the last pass (numbered from 0, in path order), drop the others.

        Nothing moves where they are the pass's first rows already.
        """
        count, base = len(rows), self.length
        index = None
        if list(rows) != list(range(count)):
            device = self.layers[0].keys.device
            index = torch.tensor(rows, device=device) + base
        for layer in self.layers:
            moved = index if index is None else index.to(layer.keys.device)
            layer.keep(base, moved, count)
        self.length = base + count

    def rollback(self) -> None:
        """Drop what a pass appended without a commit (it failed, or the run was closed)."""
        if self.pending:
            self.commit([])

    @torch.inference_mode()
    def fill(self, length: int) -> None:
        """Hold this many rows of zeros, all committed: a context to measure passes behind."""
        for layer in self.layers:
            layer.fill(length)
        self.length = length
