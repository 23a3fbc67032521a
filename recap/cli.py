"""The command line: `python -m recap run|race|bench|inspect`.

Text goes to stdout as it streams, everything about the run to stderr. With `--json` the last line
of stdout is one ASCII JSON object. Bad arguments, unreadable pictures and models that cannot be
loaded end with one line on stderr and exit status 2.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Sequence
from typing import Any, NoReturn

from recap.bench.command import add_bench
from recap.errors import RecapError
from recap.inspection import render_trace
from recap.options import add_model_options, load_model, note, save, touch, write
from recap.trace import Trace

_PHASES = ("prefill", "draft", "verify", "commit", "observe", "total")


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line. Returns the exit status."""
    arguments = _parser().parse_args(argv)
    try:
        return arguments.command(arguments)
    except BrokenPipeError:  # `| head`: nobody reads on
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 141
    except RecapError as error:
        print(f"recap: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("recap: stopped", file=sys.stderr)
        return 130


class _Parser(argparse.ArgumentParser):
    """Bad arguments end with one line, without the usage before it."""

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"recap: {message} (see {self.prog} --help)\n")


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(
        prog="python -m recap",
        description="Speculative decoding with RECAP. Greedy only: a model's penalties and "
        "sampling defaults are neutralised, so every method gives the same text.",
    )
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    run = commands.add_parser("run", help="answer one prompt and say how it was decoded")
    _add_request(run)
    run.add_argument("--method", default="recap", help="drafting method (default: recap)")
    _add_budget(run, "nodes in the candidate tree")
    run.add_argument("--trace", metavar="FILE", help="save the trace as JSON")
    run.set_defaults(command=_run)

    race = commands.add_parser("race", help="several methods on one prompt, by their compute time")
    _add_request(race)
    race.add_argument(
        "--methods",
        default="recap,recap-plus,token-recycling,prompt-lookup,autoregressive",
        help="comma-separated methods (default: all)",
    )
    _add_budget(race, "nodes in the candidate tree, for every method")
    race.set_defaults(command=_race)

    add_bench(commands)

    inspect = commands.add_parser("inspect", help="print a saved trace as readable trees")
    inspect.add_argument("trace", metavar="TRACE", help="a file written by run --trace")
    inspect.add_argument("--step", type=int, help="only this step")
    inspect.set_defaults(command=_inspect)
    return parser


def _add_budget(parser: argparse.ArgumentParser, what: str) -> None:
    parser.add_argument(
        "--budget",
        type=_budget,
        metavar="N|adaptive",
        help=f"{what}: a number, or adaptive (default) for as many as pay for themselves",
    )
    parser.add_argument(
        "--measure-cost",
        action="store_true",
        help="measure anew what a pass costs on this machine, instead of using what is kept",
    )


def _budget(text: str) -> int | str:
    """A number where it is one; what else may stand here, the settings know."""
    try:
        return int(text)
    except ValueError:
        return text


def _add_request(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--prompt", required=True, help="what to ask")
    parser.add_argument("--image", metavar="FILE", help="a picture, for models that see")
    add_model_options(parser)
    parser.add_argument("--json", action="store_true", help="end with one JSON object on stdout")


def _picture(arguments: argparse.Namespace) -> Any:
    if arguments.image is None:
        return None
    from recap.targets.images import load_image

    return load_image(arguments.image)


def _run(arguments: argparse.Namespace) -> int:
    from recap.drafters import get_method
    from recap.session import Session

    method = get_method(arguments.method)
    changes = {} if arguments.budget is None else {"budget": arguments.budget}
    settings = method.settings(**changes)
    picture = _picture(arguments)
    if arguments.trace:
        save(arguments.trace, touch)  # before the work, not after it
    target = load_model(arguments)
    run = Session(target).run(
        arguments.prompt,
        picture,
        method.name,
        settings=settings,
        max_new_tokens=arguments.max_new_tokens,
    )
    if arguments.measure_cost:
        run.ready_budget(remeasure=True)
    try:
        _stream(run)
    finally:
        if arguments.trace:
            save(arguments.trace, run.trace.save)
    _summarize(run.trace)
    if arguments.json:
        print(json.dumps(_summary(run.trace)))
    return 0


def _stream(run: Any) -> None:
    """Print the answer as it grows."""
    printed = 0

    def show() -> None:
        nonlocal printed
        text = run.trace.text
        if len(text) > printed:
            write(text[printed:])
            printed = len(text)

    run.prefill()
    show()
    for _ in run.steps():
        show()
    write("\n")


def _summary(trace: Trace) -> dict[str, Any]:
    return {
        "text": trace.text,
        "token_ids": trace.token_ids,
        "passes": trace.passes,
        "emitted": len(trace.token_ids),
        "mat": trace.mat,
        "seconds": {phase: round(trace.seconds[phase], 6) for phase in _PHASES},
        "model": trace.model,
        "device": trace.device,
        "dtype": trace.dtype,
        "method": trace.method,
        "finish": trace.finish,
    }


def _summarize(trace: Trace) -> None:
    seconds = trace.seconds
    rate = trace.tokens_per_second
    note(
        f"{trace.model} on {trace.device}, {trace.dtype}; {trace.method}; greedy, penalties neutral"
    )
    note(
        f"{len(trace.token_ids)} tokens in {trace.passes} passes"
        + (f", MAT {trace.mat:.2f}" if trace.mat else "")
        + (f", {rate:.1f} tokens/s without prefill" if rate else "")
        + f", ended by {trace.finish}"
        + (f" ({trace.message})" if trace.message else "")
    )
    note("seconds: " + ", ".join(f"{phase} {seconds[phase]:.3f}" for phase in _PHASES))


def _race(arguments: argparse.Namespace) -> int:
    from recap.drafters import get_method
    from recap.session import Session

    methods = [name.strip() for name in arguments.methods.split(",") if name.strip()]
    for name in methods:
        get_method(name)
    settings = {}
    if arguments.budget is not None:
        settings = {
            name: get_method(name).settings(budget=arguments.budget)
            for name in methods
            if name != "autoregressive"
        }
    picture = _picture(arguments)
    race = Session(load_model(arguments)).race(
        arguments.prompt,
        picture,
        methods,
        settings=settings,
        max_new_tokens=arguments.max_new_tokens,
    )
    if arguments.measure_cost:
        race.measure_cost()
    for lane, step in race.steps():
        if step is not None and lane.finished:
            note(f"{lane.name} finished at {lane.clock:.3f} s")
    comparison = race.comparison()
    write(race.lanes[0].run.trace.text + "\n")
    print(f"\n{'method':<16} {'seconds':>8} {'speed-up':>8} {'MAT':>6} {'passes':>6}  identical")
    for name, row in comparison.items():
        speedup = f"{row['speedup']:.2f}x" if row["speedup"] else "-"
        mat = f"{row['mat']:.2f}" if row["mat"] else "-"
        print(
            f"{name:<16} {row['seconds']:>8.3f} {speedup:>8} {mat:>6} {row['passes']:>6}  "
            + _identity(row["identical"])
        )
    if arguments.json:
        lanes = {lane.name: _summary(lane.run.trace) for lane in race.lanes}
        print(json.dumps({"lanes": lanes, "comparison": comparison}))
    return 0


def _identity(identical: dict[str, Any]) -> str:
    difference = identical["first_difference"]
    if difference is None:
        return f"{identical['compared']}/{identical['compared']} with {identical['with']}"
    return f"differs from {identical['with']} at token {difference['position']}"


def _inspect(arguments: argparse.Namespace) -> int:
    trace = Trace.load(arguments.trace)
    if arguments.step is not None and not 0 <= arguments.step < trace.passes:
        raise RecapError(f"--step must be between 0 and {trace.passes - 1}, got {arguments.step}.")
    write(render_trace(trace, arguments.step))
    return 0
