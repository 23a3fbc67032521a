"""What the commands share: options that say which model runs where, and how text is written."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from recap.collector import calm_collector
from recap.errors import RecapError

if TYPE_CHECKING:
    from recap.targets import Target


def add_model_options(parser: argparse.ArgumentParser) -> None:
    """Which model, on which device, in which number format."""
    parser.add_argument(
        "--model",
        help="demo (the bundled model, default), smollm2 (a text model from a package), a folder, "
        "or a Hugging Face id such as Qwen/Qwen2.5-VL-7B-Instruct, "
        "llava-hf/llava-v1.6-vicuna-7b-hf or HuggingFaceTB/SmolVLM-256M-Instruct; "
        "tiny-random[-FAMILY] needs no files and says nonsense",
    )
    parser.add_argument("--max-new-tokens", type=int, default=200, help="default: 200")
    parser.add_argument("--device", default="auto", help="auto, cpu, cuda, cuda:1, mps")
    parser.add_argument("--dtype", default="auto", help="auto, float32, bfloat16, float16, float64")
    parser.add_argument("--quantize", help="4bit or 8bit weights; needs bitsandbytes")
    parser.add_argument("--min-pixels", type=int, help="least pixels of a picture")
    parser.add_argument("--max-pixels", type=int, help="most pixels of a picture")
    parser.add_argument("--threads", type=int, help="CPU threads for torch")


def load_model(arguments: argparse.Namespace) -> Target:
    """The target that was asked for; the bundled one by default."""
    if not sys.stderr.isatty():
        os.environ.setdefault("TQDM_DISABLE", "1")  # read when tqdm is imported, below
    import torch
    from huggingface_hub.utils import disable_progress_bars
    from transformers.utils import logging

    from recap.targets import TINY_RANDOM, demo_path, load_target

    logging.set_verbosity_error()
    if not sys.stderr.isatty():
        logging.disable_progress_bar()
        disable_progress_bars()
    if arguments.threads is not None:
        if arguments.threads < 1:
            raise RecapError(f"--threads must be at least 1, got {arguments.threads}.")
        torch.set_num_threads(arguments.threads)
    calm_collector()
    name = arguments.model
    if name is None:
        name = "demo"
        if not (demo_path() / "config.json").is_file():
            note("The bundled model is not there; using a small random one that says nonsense.")
            name = TINY_RANDOM
    return load_target(
        name,
        device=arguments.device,
        dtype=arguments.dtype,
        quantize=arguments.quantize,
        min_pixels=arguments.min_pixels,
        max_pixels=arguments.max_pixels,
    )


def note(text: str) -> None:
    """Say something on stderr."""
    print(text, file=sys.stderr)


def write(text: str) -> None:
    """Write text to stdout whatever its encoding is."""
    encoding = sys.stdout.encoding or "utf-8"
    sys.stdout.write(text.encode(encoding, "replace").decode(encoding))
    sys.stdout.flush()


def save(path: str, how: Callable[[str], None]) -> None:
    """Call `how` with the path; a file that cannot be written is a `RecapError`."""
    try:
        how(path)
    except OSError as error:
        raise RecapError(f"'{Path(path).name}' cannot be written: {error.strerror}.") from None


def touch(path: str) -> None:
    """See that a file can be written, without changing what is in it."""
    with open(path, "a", encoding="utf-8"):
        pass
