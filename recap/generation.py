"""RECAP inside anyone's `generate`, with the same ids as without it.

    import recap

    ids = model.generate(**inputs, do_sample=False, max_new_tokens=200,
                         custom_generate=recap.generate)

    session = recap.Session(recap.make_target(model))     # keeps what it learns between calls
    for inputs in requests:
        model.generate(**inputs, do_sample=False, custom_generate=recap.generate, memory=session)

transformers hands over what it prepared: ids, processors, stopping criteria, an empty cache,
positions, and a picture that its vision tower has encoded already. What it does not hand over to a
custom function, it cannot honour: a `streamer` stays silent (use `on_step`), and `tokenizer` does
not arrive, so stop strings need a `StopStringCriteria` of one's own. What RECAP cannot do with the
same result (sampling, beams, batches, continuing a cache) is refused by name.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import torch
from transformers import (
    DynamicCache,
    EosTokenCriteria,
    GenerationConfig,
    LogitsProcessorList,
    MaxLengthCriteria,
    StoppingCriteriaList,
)
from transformers.generation.utils import GenerateDecoderOnlyOutput

from recap.decoding import MAX_NEW_TOKENS, Run, new_memory
from recap.drafters import get_method
from recap.errors import MemoryMismatchError, SettingsError
from recap.memory import PersistentMemory
from recap.processors import RowProcessors
from recap.session import Session
from recap.settings import Settings
from recap.targets import Target, make_target
from recap.trace import Step

#: Inputs of `model.generate` that only its own loop needs.
_OF_THE_LOOP = ("logits_to_keep", "use_cache")
#: Settings that ask for another way of decoding, with the values that do not.
_GREEDY: dict[str, tuple[Any, ...]] = {
    "do_sample": (None, False),
    "num_beams": (None, 1),
    "num_return_sequences": (None, 1),
    "penalty_alpha": (None, 0),
    "dola_layers": (None,),
    "constraints": (None,),
    "force_words_ids": (None,),
}
#: Outputs that exist for one row a pass, which a tree pass does not have.
_PER_TOKEN = ("output_scores", "output_logits", "output_attentions", "output_hidden_states")


def generate(
    model: Any,
    input_ids: torch.Tensor,
    logits_processor: LogitsProcessorList,
    stopping_criteria: StoppingCriteriaList,
    generation_config: GenerationConfig,
    *,
    method: str = "recap",
    memory: PersistentMemory | Session | None = None,
    settings: Settings | None = None,
    on_step: Callable[[Step], None] | None = None,
    **inputs: Any,
) -> torch.Tensor | GenerateDecoderOnlyOutput:
    """Greedy decoding for `model.generate(..., custom_generate=recap.generate)`.

    `method`, `memory`, `settings` and `on_step` are arguments of that same call. `memory` is a
    session, whose memory of `method` is used, or a persistent memory; without one the call starts
    cold. `on_step` gets every `Step` as it is done.

    Returns (1, prompt + new) int64 ids, or a `GenerateDecoderOnlyOutput` of `sequences` and `cache`
    with `return_dict_in_generate`. A `DynamicCache` that the caller gave is filled. Where the
    model's context ends, the answer ends with a logged warning; `generate` would go on.

    Raises `SettingsError`, `PromptError`, `ProcessorError`, `ModelError` or `ContextError`, naming
    what cannot be had with the same result.
    """
    config = generation_config
    cache = inputs.pop("cache", None)
    _refuse(config, inputs, cache)
    for name in _OF_THE_LOOP:
        inputs.pop(name, None)
    target, remembered = _memory(model, method, memory)
    request = target.from_inputs({"input_ids": input_ids, **inputs})
    longest, eos, stop_when = _ends(stopping_criteria, input_ids)
    run = Run(
        target,
        request,
        method,
        settings=settings,
        memory=remembered,
        max_new_tokens=longest,
        stop_when=stop_when,
        eos=eos,
        processors=RowProcessors(logits_processor, input_ids.device),
    )
    for step in run.steps():
        if on_step is not None:
            on_step(step)
    if run.trace.finish == "context":
        logging.getLogger(__name__).warning("%s", run.trace.message)
    new = torch.tensor([run.trace.token_ids], dtype=input_ids.dtype, device=input_ids.device)
    ids: Any = torch.cat([input_ids, new], dim=-1)
    wants_dict = bool(config.return_dict_in_generate)
    if cache is not None and (wants_dict or getattr(cache, "_is_user_defined", False)):
        _fill(cache, request.cache)
    return GenerateDecoderOnlyOutput(sequences=ids, cache=cache) if wants_dict else ids


def _refuse(config: GenerationConfig, inputs: dict[str, Any], cache: Any) -> None:
    """Refuse by name what would not give the ids of `generate`."""
    for name, greedy in _GREEDY.items():
        value = getattr(config, name, None)
        if value not in greedy:
            raise SettingsError(
                name, f"must be {greedy[-1]}: RECAP decodes one answer greedily, got {value!r}"
            )
    if config.return_dict_in_generate:
        for name in _PER_TOKEN:
            if getattr(config, name, None):
                raise SettingsError(name, "is not available: RECAP has no pass for each token")
    if inputs.get("inputs_embeds") is not None:
        raise SettingsError("inputs_embeds", "is not supported: give input_ids")
    if cache is not None and cache.get_seq_length():
        raise SettingsError("cache", "must be empty: an earlier answer cannot be continued")
    if getattr(cache, "_is_user_defined", False) and type(cache) is not DynamicCache:
        raise SettingsError("cache", f"must be a DynamicCache, got {type(cache).__name__}")


def _memory(
    model: Any, method: str, memory: PersistentMemory | Session | None
) -> tuple[Target, PersistentMemory]:
    """(target around the model, persistent memory for this call)."""
    get_method(method)
    if isinstance(memory, Session):
        if memory.target.model is not model:
            raise MemoryMismatchError(
                "The session belongs to another model. Make one around this model: "
                "recap.Session(recap.make_target(model))"
            )
        return memory.target, memory.memory(method)
    target = make_target(model)
    return target, new_memory(target) if memory is None else memory


def _ends(
    criteria: StoppingCriteriaList, input_ids: torch.Tensor
) -> tuple[int, frozenset[int], Callable[[list[int]], bool] | None]:
    """(most new tokens, ids that end the answer, what any other criteria say after a token).

    Length and EOS are known to a run without building a tensor for each token.
    """
    longest, eos, others = MAX_NEW_TOKENS, set(), StoppingCriteriaList()
    for criterion in criteria:
        if type(criterion) is MaxLengthCriteria:
            longest = min(longest, criterion.max_length - input_ids.shape[1])
        elif type(criterion) is EosTokenCriteria:
            eos.update(criterion.eos_token_id.tolist())
        else:
            others.append(criterion)

    def stop_when(ids: list[int]) -> bool:
        tensor: Any = torch.tensor([ids], dtype=input_ids.dtype, device=input_ids.device)
        return bool(others(tensor, None).all())

    # Criteria are asked behind a token, so there is always one.
    return max(1, longest), frozenset(eos), stop_when if others else None


def _fill(cache: DynamicCache, kept: Any) -> None:
    """Give the caller's cache the rows of prompt and answer, without the last token's."""
    for index, layer in enumerate(kept.layers):
        cache.update(layer.keys.clone(), layer.values.clone(), index)
