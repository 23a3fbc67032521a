"""A decorator with the interface and the ways of `spaces.GPU`, without a GPU.

As the real one does, it runs the function in a forked process: arguments and everything yielded are
pickled, nothing else comes back, a process that dies raises `gr.Error`, and a call that is closed
ends at the process's next yield.
"""

from __future__ import annotations

import multiprocessing
import pickle
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import gradio as gr
import torch


class Platform:
    """Lends processes; `durations` are the seconds asked for, `process` the latest one."""

    def __init__(self) -> None:
        self.durations: list[int] = []
        self.process: Any = None

    def gpu(self, *, duration: Callable[..., int]) -> Callable[[Any], Any]:
        def decorate(task: Callable[..., Iterator[Any]]) -> Callable[..., Iterator[Any]]:
            def call(*arguments: Any) -> Iterator[Any]:
                self.durations.append(duration(*arguments))
                yield from self._fork(task, pickle.dumps(arguments))

            return call

        return decorate

    def _fork(self, task: Callable[..., Iterator[Any]], arguments: bytes) -> Iterator[Any]:
        context = multiprocessing.get_context("fork")
        ours, theirs = context.Pipe()
        self.process = context.Process(target=_serve, args=(theirs, task, arguments), daemon=True)
        self.process.start()
        theirs.close()
        try:
            while True:
                try:
                    kind, value = pickle.loads(ours.recv_bytes())
                except EOFError:
                    raise gr.Error("GPU task aborted", print_exception=False) from None
                if kind == "end":
                    return
                if kind == "error":
                    raise gr.Error(value, print_exception=False)
                yield value
        finally:
            ours.close()
            self.process.join(20)
            self.process.kill()


def _serve(pipe: Any, task: Callable[..., Iterator[Any]], arguments: bytes) -> None:
    torch.set_num_threads(1)  # a pool of threads does not survive a fork
    with suppress(BrokenPipeError):
        try:
            for value in task(*pickle.loads(arguments)):
                pipe.send_bytes(pickle.dumps(("value", value)))
        except BrokenPipeError:
            raise
        except Exception as error:
            pipe.send_bytes(pickle.dumps(("error", type(error).__name__)))
        else:
            pipe.send_bytes(pickle.dumps(("end", None)))
