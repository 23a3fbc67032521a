"""From one pass's raw parts to a `Step` of a `Trace`. Its time is not charged to any method.

Everything is converted to plain Python data here and once, so that saving, sending and showing a
step need no further work and share nothing with the running engine.
"""

from __future__ import annotations

import hashlib
import platform
import secrets
from collections.abc import Iterable
from datetime import UTC, datetime
from itertools import chain
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
import transformers

from recap import __version__
from recap.detokenize import spelling
from recap.drafters.base import Learned, Rows
from recap.prediction import Predictions
from recap.provenance import Provenances, provenances
from recap.settings import Settings
from recap.trace import LARGEST, Emitted, Entries, Lookups, Nodes, Step, Trace
from recap.tree import CandidateTree

if TYPE_CHECKING:
    from recap.targets.base import Request, Target

_DIGITS = 8


def versions() -> dict[str, str]:
    """Versions of what a run's figures depend on."""
    return {
        "python": platform.python_version(),
        "torch": torch.__version__,
        "transformers": transformers.__version__,
        "recap": __version__,
    }


def start_trace(
    target: Target,
    request: Request,
    method: str,
    settings: Settings,
    *,
    max_new_tokens: int,
    number: int,
    memory: dict[str, Any],
) -> Trace:
    """The trace of a request that is about to be decoded.

    `number` counts the session's requests, from 1; `memory` is what its memory holds.
    """
    return Trace(
        id=secrets.token_hex(8),
        created=datetime.now(UTC).isoformat(timespec="seconds"),
        model=target.name,
        family=target.family,
        device=str(target.device),
        dtype=str(target.dtype).removeprefix("torch."),
        versions=versions(),
        method=method,
        settings=settings.to_json(),
        prompt=request.prompt,
        image=describe_image(request.image),
        prompt_tokens=request.prompt_length,
        image_tokens=request.image_tokens,
        prefill={"seconds": 0.0, "first_token": None, "top2": None, "rows": None},
        max_new_tokens=max_new_tokens,
        request=number,
        memory={"start": memory, "end": None},
    )


def describe_image(image: Any) -> dict[str, Any] | None:
    """What a trace says of a picture: a digest of its pixels, and its size."""
    if image is None:
        return None
    return {
        "sha256": hashlib.sha256(image.tobytes()).hexdigest(),
        "width": image.width,
        "height": image.height,
    }


class Vocabulary:
    """Keeps a trace's vocabulary: text and bytes of every token that its steps show, each once.

    `size` is the number of tokens there are.
    """

    def __init__(self, trace: Trace, tokenizer: Any, size: int) -> None:
        self._spelled, self._tokenizer = trace.vocabulary, tokenizer
        self._new = np.ones(size, bool)

    def note(self, shown: Iterable[int] | np.ndarray) -> None:
        """Spell what is new among these tokens."""
        if self._tokenizer is None:
            return
        tokens = shown if isinstance(shown, np.ndarray) else np.fromiter(shown, np.int64)
        for token in set(tokens[self._new[tokens]].tolist()):
            text, spelled = spelling(self._tokenizer, token)
            self._spelled[str(token)] = {"text": text, "bytes": spelled}
            self._new[token] = False

    def note_step(self, step: Step, predicted: np.ndarray) -> None:
        """Spell what a step shows; `predicted` are its rows' predictions as they came.

        Nodes, and so keys, come from entries, the suffix or the runners-up, and the text.
        """
        self.note(predicted.ravel())  # half of a thousand tokens, of which hardly one is new
        shown = [[step.root], step.rows["choice"], *step.entries.ids]
        if step.suffix:
            shown.append([found["token"] for found in step.suffix])
        if step.runner_up:
            shown.append(step.runner_up["ids"])
        self.note(chain.from_iterable(shown))


def record_step(
    *,
    index: int,
    position: int,
    root: int,
    tree: CandidateTree,
    rows: Rows,
    path: list[int],
    emitted: list[int],
    learned: Learned,
    settings: Settings,
    budget: dict[str, Any],
    seconds: dict[str, float],
    memory: dict[str, int],
) -> Step:
    """The `Step` of a pass. `path` holds the accepted rows, root first."""
    origins = provenances(tree)
    lookups, entries = _lookups(tree, settings)
    # At once, since behind a pass each array operation costs as much as a hundred numbers do.
    count = rows.probs.shape[1]
    numbers = _rounded(np.concatenate([rows.probs, rows.top2], 1))
    top2 = [row[count:] for row in numbers]
    return Step(
        index=index,
        position=position,
        root=root,
        nodes=_nodes(tree, path, origins),
        rows={
            "ids": rows.ids.tolist(),
            "probs": [row[:count] for row in numbers],
            "choice": list(rows.choice),
            "top2": top2,
        },
        lookups=lookups,
        expanded=tree.lookups.expanded.tolist(),
        suffix=_suffix(tree),
        runner_up=_runner_up(tree),
        entries=entries,
        writes={
            str(order): {"new": new, "overwritten": repeated}
            for order, (new, repeated) in learned.writes.items()
        },
        emitted=_emitted(path, emitted, origins, top2),
        accepted_length=len(emitted),
        budget=budget,
        seconds=seconds,
        memory=memory,
    )


def _nodes(tree: CandidateTree, path: list[int], origins: Provenances) -> Nodes:
    accepted = set(path)
    states = [
        "accepted" if row in accepted else "rejected" if parent in accepted else "unreached"
        for row, parent in enumerate(tree.parent[1:], start=1)
    ]
    return Nodes(
        token=tree.token[1:],
        parent=[parent - 1 for parent in tree.parent[1:]],
        depth=tree.depth[1:],
        orders=origins.orders,
        primary=origins.primary,
        weights=origins.weights,
        fused=tree.fused[1:],
        path=tree.path[1:],
        pop=list(range(tree.nodes)),
        source=origins.source,
        key=origins.key,
        state=states,
    )


def _lookups(tree: CandidateTree, settings: Settings) -> tuple[Lookups, Entries]:
    """What each expanded row hit, and the predictions that were hit, each once."""
    found = tree.lookups
    own = (0.0, *settings.specificity)
    specificity = (own, tuple(settings.carry * s for s in own))
    order, carried = found.order.tolist(), found.carried.tolist()
    lookups = Lookups(
        row=found.row.tolist(),
        order=order,
        carried=[old > 0 for old in carried],
        entry=found.entry.tolist(),
        specificity=[specificity[old][n] for n, old in zip(order, carried, strict=True)],
        weight=found.weight.tolist(),
    )
    return lookups, _entries(found.entries)


def _entries(predictions: Predictions) -> Entries:
    if not len(predictions):
        return Entries()
    columns = predictions.columns
    *ids, request, step = predictions.ints.T.tolist()
    *probs, concentration = predictions.floats.T.tolist()
    entries = Entries(
        list(zip(*ids, strict=True)),
        list(zip(*probs, strict=True)),
        concentration,
        list(probs[0]),
        request,
        step,
    )
    if min(ids[-1]) < 0:  # some are shorter than others
        for n, row in enumerate(entries.ids):
            if row[columns - 1] < 0:
                length = row.index(-1)
                entries.ids[n], entries.probs[n] = row[:length], entries.probs[n][:length]
    return entries


def _suffix(tree: CandidateTree) -> list[dict[str, Any]]:
    return [found._asdict() for found in tree.lookups.suffix]


def _runner_up(tree: CandidateTree) -> dict[str, Any] | None:
    found = tree.lookups.runner_up
    if not found.ids:
        return None
    return {"ids": list(found.ids), "probs": list(found.probs), "share": found.share}


def _emitted(
    path: list[int], emitted: list[int], origins: Provenances, top2: list[list[float]]
) -> list[Emitted]:
    """Token i was chosen by row path[i], and drafted by the row after it, if there is one."""
    sources = [origins.supplier[row - 1] for row in path[1:]] + ["bonus"]
    return [
        Emitted(token, source, list(top2[row]))
        for token, source, row in zip(emitted, sources, path, strict=False)
    ]


def _rounded(values: np.ndarray) -> list[Any]:
    """float32 numbers as they are shown and saved: finite, of a few digits."""
    if not np.isfinite(values).all():
        values = np.nan_to_num(values, nan=0.0, posinf=LARGEST, neginf=-LARGEST)
    return values.astype(np.float64).round(_DIGITS).tolist()
