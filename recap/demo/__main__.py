"""`python -m recap.demo make|evaluate|examples`: everything about the bundled model."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import torch

from recap.drafters import METHODS
from recap.errors import RecapError

ROOT = Path(__file__).resolve().parents[2]
# What `make` trains on: 44 minutes on two cores with bfloat16 products; by its rates 75 to 85 on
# two older ones, which do 120 to 130 GFLOP/s in float32.
VISION_PICTURES, PICTURES = 26_000, 38_000


def _make(options: argparse.Namespace) -> int:
    from transformers import AutoTokenizer

    from recap.demo.export import averaged_model, export_model
    from recap.demo.optimise import load_checkpoint
    from recap.demo.teach import teach_tower
    from recap.demo.tokenizer import train_tokenizer
    from recap.demo.train import train_model

    if options.threads:
        torch.set_num_threads(options.threads)
    auto = "cuda" if torch.cuda.is_available() else "cpu"
    device = torch.device(auto if options.device == "auto" else options.device)
    work = options.work
    work.mkdir(parents=True, exist_ok=True)
    if not (work / "tokenizer" / "tokenizer.json").exists():
        print("[tokenizer] from the grammar", flush=True)
        train_tokenizer(options.seed).save_pretrained(work / "tokenizer")
    tokenizer = AutoTokenizer.from_pretrained(work / "tokenizer")
    teach_tower(work, options.seed, options.vision_pictures, device=device)
    path = train_model(work, tokenizer, options.seed, options.pictures, device=device)
    state = load_checkpoint(path)
    assert state is not None
    export_model(averaged_model(state, tokenizer), tokenizer, options.output)
    print(f"[export] {options.output}", flush=True)
    return 0


def _export(options: argparse.Namespace) -> int:
    from transformers import AutoTokenizer

    from recap.demo.export import averaged_model, export_model
    from recap.demo.optimise import load_checkpoint

    state = load_checkpoint(options.work / "model.pt")
    if state is None:
        print(f"no checkpoint at {options.work / 'model.pt'}", file=sys.stderr)
        return 2
    tokenizer = AutoTokenizer.from_pretrained(options.work / "tokenizer")
    export_model(averaged_model(state, tokenizer), tokenizer, options.output)
    print(f"[export] step {state['step']} to {options.output}")
    return 0


def _evaluate(options: argparse.Namespace) -> int:
    from recap.demo.evaluate import evaluate

    return evaluate(options.model, options.pictures, options.method)


def _examples(options: argparse.Namespace) -> int:
    from recap.demo.examples import write_examples

    for path in write_examples(options.output):
        print(path)
    return 0


def _at_least(least: int) -> Callable[[str], int]:
    """A type of argument: whole numbers from `least`."""

    def number(text: str) -> int:
        try:
            value = int(text)
        except ValueError:
            value = least - 1
        if value < least:
            raise argparse.ArgumentTypeError(f"must be a whole number, {least} or more: {text!r}")
        return value

    return number


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m recap.demo", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    output = ROOT / "assets" / "demo-vlm"
    work = ROOT / "build" / "demo-vlm"

    make = commands.add_parser("make", help="train the model from nothing and export it")
    make.add_argument("--output", type=Path, default=output, help="folder of the exported model")
    make.add_argument("--work", type=Path, default=work, help="checkpoints; resumes from there")
    make.add_argument("--seed", type=int, default=0, help="pictures, texts and initial weights")
    make.add_argument(
        "--vision-pictures",
        type=_at_least(32),
        default=VISION_PICTURES,
        help=f"pictures that teach the vision tower alone (default {VISION_PICTURES})",
    )
    make.add_argument(
        "--pictures",
        type=_at_least(32),
        default=PICTURES,
        help=f"pictures, with about five requests each, for the whole model (default {PICTURES})",
    )
    make.add_argument("--threads", type=int, default=0, help="CPU threads (default: torch's)")
    make.add_argument("--device", default="auto", help="auto, cpu or cuda")
    make.set_defaults(run=_make)

    export = commands.add_parser("export", help="export the last checkpoint as it stands")
    export.add_argument("--output", type=Path, default=output, help="folder of the exported model")
    export.add_argument("--work", type=Path, default=work, help="folder with the checkpoint")
    export.set_defaults(run=_export)

    check = commands.add_parser("evaluate", help="measure the exported model on held-out pictures")
    check.add_argument("--model", default="demo", help="'demo' or a folder (default demo)")
    check.add_argument(
        "--pictures", type=_at_least(1), default=200, help="held-out pictures a kind"
    )
    check.add_argument(
        "--method",
        default="recap-plus",
        choices=list(METHODS),
        help="decoding method; the text is the same for all",
    )
    check.set_defaults(run=_evaluate)

    examples = commands.add_parser("examples", help="draw the example pictures of the app")
    examples.add_argument("--output", type=Path, default=ROOT / "assets" / "examples")
    examples.set_defaults(run=_examples)
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; returns its exit status."""
    options = _parser().parse_args(arguments)
    try:
        return options.run(options)
    except RecapError as error:
        print(error, file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main())
