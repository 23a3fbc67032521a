"""Logits processors, applied to every row of a tree on that row's own text.

`generate(do_sample=False)` takes the argmax *after* its logits processors, each of which may depend
on all tokens so far. In a tree pass every row has a text of its own: prompt, emitted tokens and the
row's path. So a processor is run row by row, and one that keeps state between calls, or needs
passes of its own, is refused by name.

Most rows of a tree lie off the answer's path, where a processor may raise what it would never raise
in `generate`: a constraint has no token for a text that it does not allow. Such a row keeps its raw
scores, and the error counts only where the answer comes to that row (`usable`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch
from transformers import GenerationConfig
from transformers.generation import logits_process as hf

from recap.errors import ProcessorError
from recap.tree import CandidateTree

#: Processors whose result is a function of (text, scores) alone.
STATELESS: tuple[type, ...] = (
    hf.RepetitionPenaltyLogitsProcessor,
    hf.NoRepeatNGramLogitsProcessor,
    hf.SequenceBiasLogitsProcessor,  # and NoBadWords, its subclass
    hf.MinLengthLogitsProcessor,
    hf.MinNewTokensLengthLogitsProcessor,
    hf.PrefixConstrainedLogitsProcessor,
    hf.ForcedBOSTokenLogitsProcessor,
    hf.ForcedEOSTokenLogitsProcessor,
    hf.InfNanRemoveLogitsProcessor,
    hf.ExponentialDecayLengthPenalty,
    hf.LogitNormalization,
    hf.SuppressTokensAtBeginLogitsProcessor,
    hf.SuppressTokensLogitsProcessor,
)

#: Fields of a generation config that change a greedy choice and cannot be applied per row.
_REFUSED: dict[str, tuple[Any, ...]] = {
    "guidance_scale": (None, 1, 1.0),
    "encoder_repetition_penalty": (None, 1, 1.0),
    "encoder_no_repeat_ngram_size": (None, 0),
    "penalty_alpha": (None, 0, 0.0),
    "watermarking_config": (None,),
    "constraints": (None,),
    "force_words_ids": (None,),
    "dola_layers": (None,),
    "forced_eos_token_id": (None,),  # depends on the limit of the run
}


class RowProcessors:
    """A list of stateless processors. Raises `ProcessorError` for any other, by name.

    A processor of one's own is taken if it has a true attribute `stateless`. They run on `device`,
    where some of them keep tensors; by default where the logits are.
    """

    def __init__(
        self,
        processors: Iterable[Callable[..., torch.Tensor]],
        device: torch.device | str | None = None,
    ) -> None:
        self._processors = list(processors)
        self._device = device
        self._failed: dict[int, Exception] = {}
        for processor in self._processors:
            if not isinstance(processor, STATELESS) and not getattr(processor, "stateless", False):
                raise ProcessorError(
                    f"The logits processor {type(processor).__name__} cannot be applied to each "
                    "row of a candidate tree. Remove it, or decode with generate() alone."
                )

    def __bool__(self) -> bool:
        return bool(self._processors)

    def apply(self, text: Sequence[int], tree: CandidateTree, logits: torch.Tensor) -> torch.Tensor:
        """(rows, vocabulary) processed scores, float32. `text` ends with the tree's root.

        A row whose processors raise keeps its raw scores; ask `usable` before its choice is used.
        """
        scores = self._scores(logits)
        base = torch.tensor(text, device=scores.device)
        paths: list[list[int]] = [[]]
        self._failed = {}
        for row in range(len(tree)):
            if row:
                paths.append([*paths[tree.parent[row]], tree.token[row]])
            ids = torch.cat([base, base.new_tensor(paths[row])])
            try:
                scores[row] = self._processed(ids, scores[row])
            except Exception as error:  # a processor may be anybody's
                self._failed[row] = error
        return scores

    def usable(self, path: Sequence[int]) -> int:
        """How many rows of an accepted path come before the first one whose processors raised.

        Raises what they raised where that is the path's first row: the answer has come to it.
        """
        for place, row in enumerate(path):
            if row in self._failed:
                if not place:
                    raise self._failed[row]
                return place
        return len(path)

    def apply_prompt(
        self, prompt: Sequence[int], places: Sequence[int], logits: torch.Tensor
    ) -> torch.Tensor:
        """Scores of rows of the prompt, at `places`; only its last row is processed.

        The others choose nothing, and a constraint on the answer means nothing inside the prompt.
        """
        if places[-1] != len(prompt) - 1:
            return logits
        scores = self._scores(logits)
        scores[-1] = self._processed(torch.tensor(prompt, device=scores.device), scores[-1])
        return scores

    def _scores(self, logits: torch.Tensor) -> torch.Tensor:
        """A copy of the logits to work on, float32 as in generate()."""
        return logits.to(self._device or logits.device, torch.float32, copy=True)

    def _processed(self, ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        """(vocabulary,) scores behind `ids`. The given scores are not written to."""
        ids, scores = ids[None], scores[None].clone()
        for processor in self._processors:
            scores = processor(ids, scores)
        return scores[0]


def processors_from(config: GenerationConfig, prompt_length: int, *, device: Any) -> RowProcessors:
    """The processors that `generate(do_sample=False)` derives from a generation config.

    In the same order as there. Sampling settings do not matter to a greedy choice and are ignored.
    Raises `ProcessorError` for a setting that cannot be applied per row.
    """
    for name, harmless in _REFUSED.items():
        if getattr(config, name, None) not in harmless:
            raise ProcessorError(
                f"The generation setting {name} cannot be applied to each row of a candidate tree. "
                "Unset it, or decode with generate() alone."
            )
    eos = config.eos_token_id
    eos_ids = [eos] if isinstance(eos, int) else list(eos or [])
    where = {"device": device}
    made: list[Any] = []

    def add(present: Any, make: Callable[[], Any]) -> None:
        if present:
            made.append(make())

    add(config.sequence_bias, lambda: hf.SequenceBiasLogitsProcessor(config.sequence_bias))
    add(
        config.repetition_penalty not in (None, 1.0),
        lambda: hf.RepetitionPenaltyLogitsProcessor(config.repetition_penalty),
    )
    add(
        config.no_repeat_ngram_size,
        lambda: hf.NoRepeatNGramLogitsProcessor(config.no_repeat_ngram_size),
    )
    add(
        config.bad_words_ids,
        lambda: hf.NoBadWordsLogitsProcessor(config.bad_words_ids, eos_ids or None),
    )
    add(
        config.min_length and eos_ids,
        lambda: hf.MinLengthLogitsProcessor(config.min_length, eos_ids, **where),
    )
    add(
        config.min_new_tokens and eos_ids,
        lambda: hf.MinNewTokensLengthLogitsProcessor(
            prompt_length, config.min_new_tokens, eos_ids, **where
        ),
    )
    add(
        config.forced_bos_token_id is not None,
        lambda: hf.ForcedBOSTokenLogitsProcessor(config.forced_bos_token_id),
    )
    add(config.remove_invalid_values, hf.InfNanRemoveLogitsProcessor)
    add(
        config.exponential_decay_length_penalty,
        lambda: hf.ExponentialDecayLengthPenalty(
            config.exponential_decay_length_penalty, eos_ids, prompt_length
        ),
    )
    add(
        config.suppress_tokens,
        lambda: hf.SuppressTokensLogitsProcessor(config.suppress_tokens, **where),
    )
    add(
        config.begin_suppress_tokens,
        lambda: hf.SuppressTokensAtBeginLogitsProcessor(
            config.begin_suppress_tokens, prompt_length, **where
        ),
    )
    add(config.renormalize_logits, hf.LogitNormalization)
    return RowProcessors(made, device)
