"""The order of things: every method on every prompt, prompt by prompt.

The methods change their order from prompt to prompt, so that what the machine drifts hits all of
them alike. Before the timed runs of a prompt there is an untimed prefill of it: whichever method
comes first pays for no allocation or kernel that the others find ready.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Sequence

from recap.bench.contenders import Contender
from recap.bench.journal import Journal
from recap.bench.sets import Item
from recap.bench.statistics import Result
from recap.errors import ContextError, ImageError, PromptError
from recap.targets.base import Request, Target

#: Pass sizes that are readied before anything is timed, in rows.
_LADDER = tuple(2**n for n in range(8))
_TOP_K = 8


def run_bench(
    target: Target,
    contenders: Sequence[Contender],
    items: Sequence[Item],
    journal: Journal,
    *,
    max_new_tokens: int,
    repeats: int = 1,
    progress: Callable[[str], None] = lambda label: None,
    skipped: Callable[[Item, str], None] = lambda item, reason: None,
) -> list[Result]:
    """Samples of all contenders on all items, those that the journal has included.

    `progress` is called after every sample, `skipped` for a prompt that cannot be asked of this
    target.
    """
    results = list(journal.results)
    ready = False
    for index, item in enumerate(items):
        if index < journal.finished:
            continue
        try:
            request = target.prepare(item.prompt, item.open_picture())
            _prefill(target, request.twin())
        except (PromptError, ImageError, ContextError) as error:
            skipped(item, str(error))
            journal.append(None, contenders)
            continue
        if not ready:
            _warm_up(target, contenders, request)
            ready = True
        result = _measure(contenders, item, request, index, max_new_tokens, repeats, progress)
        journal.append(result, contenders)
        results.append(result)
    return results


def _measure(
    contenders: Sequence[Contender],
    item: Item,
    request: Request,
    index: int,
    max_new_tokens: int,
    repeats: int,
    progress: Callable[[str], None],
) -> Result:
    result = Result(item.id, item.category, {contender.label: [] for contender in contenders})
    for repeat in range(repeats):
        for contender in rotated(contenders, index * repeats + repeat):
            gc.collect()  # nobody pays for what another has left behind
            sample = contender.run(request, max_new_tokens, last=repeat == repeats - 1)
            result.samples[contender.label].append(sample)
            progress(contender.label)
    return result


def rotated(contenders: Sequence[Contender], turn: int) -> list[Contender]:
    """The contenders in the order of this turn: a later start, and every other time backwards.

    So each comes first as often as the others, and follows different ones.
    """
    start = turn % len(contenders)
    order = [*contenders[start:], *contenders[:start]]
    return order[::-1] if turn // len(contenders) % 2 else order


def _prefill(target: Target, request: Request) -> None:
    target.prefill(request, top_k=_TOP_K)
    target.synchronize()


def _warm_up(target: Target, contenders: Sequence[Contender], request: Request) -> None:
    """Ready all pass sizes, then every method."""
    twin = request.twin()
    _prefill(target, twin)
    target.warm_up(twin, _LADDER, top_k=_TOP_K)
    for contender in contenders:
        contender.warm_up(request)
