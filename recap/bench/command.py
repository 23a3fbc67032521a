"""`python -m recap bench`: options, and the way from them to tables, JSON and a page.

Tables and one JSON object, on the last line, go to stdout; progress and notes to stderr.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from recap.bench.spec import BASELINES, PRESETS, Spec, parse_specs
from recap.drafters import METHODS
from recap.errors import RecapError
from recap.files import write_whole
from recap.options import add_model_options, load_model, note, save, touch, write

if TYPE_CHECKING:
    from recap.bench.journal import Journal
    from recap.bench.processes import Processes
    from recap.bench.report import Conditions
    from recap.bench.sets import Item
    from recap.bench.statistics import Result
    from recap.targets import Target

_EPILOG = f"""\
methods: METHOD[@BUDGET][:SETTING=VALUE]..., separated by commas; nothing needs quoting.
  recap@63                          a budget of 63 nodes
  recap@63:suffix=off:orders=1+2    any field of recap.settings.Settings: switches are on or
                                    off, several values are joined by plus signs
  {", ".join(METHODS)}
  {", ".join(BASELINES)}
                                    model.generate, as a user of transformers calls it
autoregressive always takes part: every answer is compared with its token by token.

presets, which stand for several methods:
  {", ".join(PRESETS)}
"""


def add_bench(commands: Any) -> None:
    """Add the command to an argparse `subparsers` object."""
    parser = commands.add_parser(
        "bench",
        help="several methods on many prompts: speed-up, MAT, identity",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add_model_options(parser)
    parser.add_argument(
        "--prompts",
        default="demo",
        help="demo (48 requests for the bundled model, default), a JSONL file (id, prompt, and "
        "where wanted image and category), or by name mmt-bench, seed-bench, scienceqa, ocrbench, "
        "chartqa, mathvista, textvqa (through the package datasets); paper is all seven, and "
        "several are joined by commas",
    )
    parser.add_argument("--methods", default="default", help="see below (default: %(default)s)")
    parser.add_argument("--repeats", type=int, default=1, help="runs of each (default: 1)")
    memory = parser.add_mutually_exclusive_group()
    memory.add_argument(
        "--cold",
        dest="warm",
        action="store_false",
        help="clear the persistent memory for each prompt (default)",
    )
    memory.add_argument(
        "--warm", action="store_true", help="keep each method's memory from prompt to prompt"
    )
    parser.set_defaults(warm=False)
    parser.add_argument(
        "--limit",
        type=int,
        help="only the first N prompts, categories interleaved; of a benchmark by name, a sample "
        "of N (default there: 100); of several sets, N of each",
    )
    parser.add_argument("--seed", type=int, default=0, help="draws that sample (default: 0)")
    parser.add_argument(
        "--json",
        metavar="FILE",
        help="also write the JSON object there; finished prompts go to FILE.partial.jsonl at once",
    )
    parser.add_argument(
        "--resume", action="store_true", help="go on from FILE.partial.jsonl after a crash"
    )
    parser.add_argument("--plot", metavar="FILE.html", help="write a page with charts")
    parser.set_defaults(command=_bench)


def _bench(arguments: argparse.Namespace) -> int:
    from recap.bench.processes import join_processes, leave_processes

    specs = parse_specs(arguments.methods)
    _check(arguments)
    processes = join_processes(arguments.device)
    try:
        arguments.device = processes.device or arguments.device
        _measure_and_report(arguments, specs, processes)
    finally:
        leave_processes()
    return 0


def _check(arguments: argparse.Namespace) -> None:
    """Refuse what would fail after hours, before the first of them."""
    if arguments.repeats < 1:
        raise RecapError(f"--repeats must be at least 1, got {arguments.repeats}.")
    if arguments.max_new_tokens < 1:
        raise RecapError(f"--max-new-tokens must be at least 1, got {arguments.max_new_tokens}.")
    if arguments.resume and not arguments.json:
        raise RecapError("--resume needs --json FILE: it goes on from FILE.partial.jsonl.")
    for path in (arguments.json, arguments.plot):
        if path:
            save(path, touch)
    if arguments.plot:
        from recap.bench.plot import require_plotly

        require_plotly()


def _measure_and_report(
    arguments: argparse.Namespace, specs: Sequence[Spec], processes: Processes
) -> None:
    from recap.bench.contenders import make_contender
    from recap.bench.report import build_report, render
    from recap.bench.sets import load_set

    items = load_set(arguments.prompts, arguments.limit, arguments.seed)
    target = load_model(arguments)
    conditions = _conditions(arguments, target, processes)
    contenders = [make_contender(target, spec, warm=arguments.warm) for spec in specs]
    part = processes.share(items)
    journal = _open_journal(arguments, specs, part, conditions, processes)
    try:
        journal.restore(contenders)
        results, reasons = _run(arguments, target, contenders, part, journal, processes)
    finally:
        journal.close()
    results, reasons = processes.gather(results), processes.gather(reasons)
    if processes.rank:
        return
    if not results:
        raise RecapError(f"No prompt could be asked. {reasons[0] if reasons else ''}".strip())
    labels = [spec.label for spec in specs]
    report = build_report(results, labels, conditions)
    text = json.dumps(report, allow_nan=False)
    write(render(report, results, conditions) + "\n")
    if arguments.json:
        save(arguments.json, lambda path: write_whole(path, text + "\n"))
    if arguments.plot:
        from recap.bench.plot import write_page
        from recap.bench.statistics import median_prompt
        from recap.cost import cost_of
        from recap.decoding import usual_context

        # Behind as many rows as a run looks it up for.
        context = usual_context(median_prompt(results), arguments.max_new_tokens)
        cost = dict(cost_of(target, context).points)
        save(arguments.plot, lambda path: write_page(path, report, results, conditions, cost))
    print(text)


def _conditions(arguments: argparse.Namespace, target: Target, processes: Processes) -> Conditions:
    from recap.bench.report import Conditions
    from recap.recording import versions

    return Conditions(
        model=target.name,
        device=str(target.device),
        dtype=str(target.dtype).removeprefix("torch."),
        versions=versions(),
        prompts=arguments.prompts,
        max_new_tokens=arguments.max_new_tokens,
        repeats=arguments.repeats,
        warm=arguments.warm,
        processes=processes.count,
    )


def _open_journal(
    arguments: argparse.Namespace,
    specs: Sequence[Spec],
    items: Sequence[Item],
    conditions: Conditions,
    processes: Processes,
) -> Journal:
    """The journal of this process; what a resumed run must have in common is its configuration."""
    from recap.bench.journal import Journal, partial_path
    from recap.bench.sets import digest

    configuration = {
        "model": conditions.model,
        "device": conditions.device,
        "dtype": conditions.dtype,
        "versions": conditions.versions,
        "prompts": digest(items),
        "methods": [spec.label for spec in specs],
        "max_new_tokens": arguments.max_new_tokens,
        "repeats": arguments.repeats,
        "warm": arguments.warm,
        "threads": arguments.threads,
        "quantize": arguments.quantize,
        "pixels": [arguments.min_pixels, arguments.max_pixels],
        "process": [processes.rank, processes.count],
    }
    path = partial_path(arguments.json, processes.rank) if arguments.json else None
    return Journal(path, configuration, len(items), resume=arguments.resume)


def _run(
    arguments: argparse.Namespace,
    target: Target,
    contenders: Sequence[Any],
    items: Sequence[Item],
    journal: Journal,
    processes: Processes,
) -> tuple[list[Result], list[str]]:
    """(results of this process's prompts, why others could not be asked)."""
    from tqdm import tqdm

    from recap.bench.runner import run_bench

    reasons: list[str] = []
    runs = len(contenders) * arguments.repeats
    on_terminal = sys.stderr.isatty()
    with tqdm(
        total=len(items) * runs,
        initial=journal.finished * runs,
        disable=processes.rank > 0,
        file=sys.stderr,
        unit="run",
        # A file wants a line now and then, not one a tenth of a second.
        mininterval=0.1 if on_terminal else 20,
        ascii=None if on_terminal else True,
        leave=False,
    ) as bar:

        def progress(label: str) -> None:
            bar.set_postfix_str(label, refresh=False)
            bar.update()

        def skipped(item: Item, reason: str) -> None:
            reasons.append(f"{item.id}: {reason}")
            bar.update(runs)
            note(f"skipped {reasons[-1]}")

        results = run_bench(
            target,
            contenders,
            items,
            journal,
            max_new_tokens=arguments.max_new_tokens,
            repeats=arguments.repeats,
            progress=progress,
            skipped=skipped,
        )
    return results, reasons
