"""A target: the model whose greedy choices decide, behind one small interface.

    request = target.prepare("What is this?", image)   # chat template, picture -> model inputs
    first = target.prefill(request, top_k=8)           # one pass over the prompt
    rows = target.verify(request, tree, top_k=8)       # one pass over a candidate tree
    target.commit(request, path)                       # keep the accepted rows of that pass

All that belongs to one request (cache, positions, ids) lives on its `Request`; the model object is
shared and never written to, so requests may be interleaved at will.

A family's adapter overrides what is its own: how a prompt becomes inputs (`prepare`), which inputs
the prefill needs, where positions start (`_prefill_positions`). Text-only causal models need no
more than this class.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from PIL import Image
from transformers import AutoModelForCausalLM, AutoTokenizer

from recap.drafters.base import Rows
from recap.errors import ContextError, ModelError, PromptError
from recap.prediction import GAP
from recap.processors import RowProcessors
from recap.targets.attention import TREE_ATTENTION
from recap.targets.cache import TreeCache
from recap.targets.chat import encode_chat, fingerprint
from recap.tree import CandidateTree

#: Prompt rows whose logits are computed at once: 32 rows of a 152k vocabulary are 20 MB.
_SEED_CHUNK = 32
#: Log-probability of what a processor has ruled out, instead of minus infinity.
_NEVER = -1e9


@dataclass
class Request:
    """One prompt on its way through a target, and everything that belongs to it alone.

    `ids` are the prompt's tokens and then what is emitted; `text` is the same with `GAP` for
    placeholders, which is what a drafter sees. `inputs` are the tensors that only the prefill
    needs. `next_position` is the rotary position of the token behind the prompt; it differs from
    the prompt's length where an image takes fewer positions than rows.
    """

    ids: list[int]
    placeholders: frozenset[int] = frozenset()
    inputs: dict[str, Any] = field(default_factory=dict)
    prompt: str = ""
    image: Image.Image | None = None
    cache: TreeCache | None = None
    next_position: int = 0
    processors: RowProcessors | None = None
    #: Position ids of the prompt's rows where the caller has them; else the family computes them.
    positions: torch.Tensor | None = None
    text: list[int] = field(init=False)
    prompt_length: int = field(init=False)

    def __post_init__(self) -> None:
        self.prompt_length = len(self.ids)
        self.text = [GAP if token in self.placeholders else token for token in self.ids]

    def twin(self) -> Request:
        """The same prompt, to be decoded on its own. Only before the prefill."""
        if self.cache is not None:
            raise PromptError("A request can be doubled only before its prefill.")
        return Request(
            list(self.ids),
            self.placeholders,
            dict(self.inputs),
            self.prompt,
            self.image,
            positions=self.positions,
        )

    def append(self, tokens: Sequence[int]) -> None:
        """Add emitted tokens."""
        self.ids.extend(tokens)
        self.text.extend([GAP if token in self.placeholders else token for token in tokens])

    @property
    def image_tokens(self) -> int:
        """Rows that placeholders take in the prompt."""
        return self.text[: self.prompt_length].count(GAP)

    @property
    def root_position(self) -> int:
        """Rotary position of the last token: the root of the next pass."""
        return self.next_position + len(self.ids) - self.prompt_length - 1


@dataclass(frozen=True, slots=True)
class Prefill:
    """What the prefill said: predictions at the prompt's last text rows, the last row included.

    `positions` are their places in the prompt, ascending; `rows` has a row for each.
    """

    positions: list[int]
    rows: Rows


class Target:
    """A causal language model, text only. Base of the adapters in this package.

    `device`, `dtype`, `vocabulary` (ids), `eos` (ids that end an answer), `context` (positions) and
    `tokenizer_id` (a fingerprint for saved memories) describe it.
    """

    #: `model_type` of the configurations that this adapter serves.
    families: tuple[str, ...] = ()
    #: The transformers class that loads such a model by name.
    auto_model: Any = AutoModelForCausalLM
    #: Whether `prepare` takes a picture.
    takes_pictures = False

    def __init__(self, model: Any, tokenizer: Any = None, *, name: str = "") -> None:
        if model.training:
            raise ModelError("The model is in training mode; call model.eval() first.")
        self.model = model
        self.tokenizer = tokenizer
        config = model.config
        text = config.get_text_config()
        self.family: str = config.model_type
        self.name = name or getattr(config, "_name_or_path", "") or self.family
        self.vocabulary: int = text.vocab_size
        self.context: int = text.max_position_embeddings
        self.layers: int = text.num_hidden_layers
        self.eos = _eos_ids(model)
        self.tokenizer_id = fingerprint(tokenizer) if tokenizer is not None else ""
        self.placeholders = self._placeholder_ids()
        self._refuse_unsupported(text)
        self._placeholder_index = torch.tensor(
            sorted(self.placeholders), dtype=torch.long, device=self.device
        )

    # What a family may override -----------------------------------------------------------------

    @classmethod
    def load_processors(cls, source: str, **options: Any) -> dict[str, Any]:
        """What stands between a person and the model: arguments of this class by name."""
        return {"tokenizer": AutoTokenizer.from_pretrained(source, **options)}

    def prepare(self, prompt: str, image: Image.Image | None = None) -> Request:
        """Put a prompt, and a picture where the family takes one, through the chat template.

        What a person types stays text: special tokens in it are inert. Raises `PromptError` or
        `ImageError`.
        """
        if image is not None:
            raise PromptError(f"{self.name} reads text only: remove the picture.")
        ids = encode_chat(self._require_tokenizer(), prompt, with_image=False)
        return self.from_inputs({"input_ids": torch.tensor([ids])}, prompt=prompt)

    def _placeholder_ids(self) -> frozenset[int]:
        """Ids that stand for a picture's rows: never written, drafted or matched."""
        return frozenset()

    def _prefill_positions(self, request: Request) -> tuple[torch.Tensor, int]:
        """(position ids of the prompt's rows, position of the token behind them)."""
        length = request.prompt_length
        return torch.arange(length, device=self.device)[None], length

    def _row_positions(self, positions: torch.Tensor) -> torch.Tensor:
        """(rows,) positions of text rows in the shape that the model takes."""
        return positions[None]

    # The interface --------------------------------------------------------------------------------

    @property
    def device(self) -> torch.device:
        return self.model.device

    @property
    def dtype(self) -> torch.dtype:
        return self.model.dtype

    def from_inputs(self, inputs: dict[str, Any], *, prompt: str = "") -> Request:
        """Start from ready-made model inputs: `input_ids` (1, n) and what the family adds.

        Raises `PromptError` for a batch, padding or an empty prompt, `ContextError` for a prompt
        that leaves no room.
        """
        ids = inputs["input_ids"]
        if ids.ndim != 2 or ids.shape[0] != 1:
            raise PromptError("One prompt at a time: input_ids must have shape (1, n).")
        mask = inputs.get("attention_mask")
        if mask is not None and not bool((mask == 1).all()):
            raise PromptError("The prompt must not be padded: attention_mask must be all ones.")
        if not ids.shape[1]:
            raise PromptError("The prompt is empty.")
        if int(ids[0, -1]) in self.placeholders:
            raise PromptError("The prompt must end with text, not with a picture.")
        rest = {
            name: value.to(self.device) if isinstance(value, torch.Tensor) else value
            for name, value in inputs.items()
            if name not in ("input_ids", "attention_mask") and value is not None
        }
        positions = rest.pop("position_ids", None)
        return Request(ids[0].tolist(), self.placeholders, rest, prompt=prompt, positions=positions)

    def generate_inputs(self, request: Request) -> dict[str, Any]:
        """What `model.generate` takes for this request, on the device. Only before the prefill."""
        ids = torch.tensor([request.ids], device=self.device)
        return {"input_ids": ids, "attention_mask": torch.ones_like(ids), **request.inputs}

    @torch.inference_mode()
    def prefill(
        self, request: Request, *, top_k: int, seed_rows: int = 0, reserve: int = 0
    ) -> Prefill:
        """One pass over the prompt. `reserve`: rows of cache to allocate for what comes behind.

        Returns predictions at up to `seed_rows` of the last text rows, and always the last row.
        Raises `ContextError` where the prompt leaves no room for an answer.
        """
        if request.positions is None:
            positions, next_position = self._prefill_positions(request)
        else:
            positions, next_position = request.positions, int(request.positions.max()) + 1
        if next_position >= self.context:
            raise ContextError(
                f"The prompt takes {next_position} positions, and {self.name} has {self.context}. "
                "Shorten the prompt or use a smaller picture."
            )
        cache = TreeCache(self.layers, request.prompt_length + reserve)
        hidden = self._hidden(
            torch.tensor([request.ids], device=self.device),
            positions,
            cache,
            None,
            **request.inputs,
        )
        cache.commit(range(request.prompt_length))
        request.cache, request.next_position = cache, next_position
        request.inputs = {}  # a picture's tensors are not needed any more
        places = [i for i, token in enumerate(request.text) if token != GAP]
        places = places[-max(1, seed_rows) :]
        return Prefill(places, self._read_prompt_rows(request, hidden[0], places, top_k))

    @torch.inference_mode()
    def verify(self, request: Request, tree: CandidateTree, *, top_k: int) -> Rows:
        """One pass over a tree. The cache then holds its rows, pending until `commit`."""
        cache = _cache_of(request)
        rows = len(tree)
        # A root that is a placeholder is a gap to the drafter, and itself to the model.
        ids = torch.tensor([[request.ids[-1], *tree.token[1:]]], device=self.device)
        depth = torch.tensor(tree.depth, device=self.device)
        mask = None if rows == 1 else self._tree_mask(tree, cache.length)
        hidden = self._hidden(ids, self._row_positions(depth + request.root_position), cache, mask)
        logits = self.model.lm_head(hidden[0])
        if request.processors:
            logits = request.processors.apply(request.ids, tree, logits)
        return self._to_host(logits, top_k)

    @torch.inference_mode()
    def commit(self, request: Request, path: Sequence[int]) -> None:
        """Keep the rows of the accepted path (root first) in the cache, drop the others."""
        _cache_of(request).commit(path)

    def synchronize(self) -> None:
        """Wait until the device has done what it was given, so that a clock reads true."""
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)
        elif self.device.type == "mps":
            torch.mps.synchronize()

    def warm_up(self, request: Request, rows: Sequence[int], *, top_k: int) -> float:
        """Run and drop a pass of each of these sizes, and a commit that moves rows.

        Returns seconds.
        """
        started = time.perf_counter()
        for count in rows:
            tree = CandidateTree(request.ids[-1])
            for _ in range(count - 1):
                tree.add(0, tree.token[0], 0.0, 0.0)
            self.verify(request, tree, top_k=top_k)
            self.commit(request, [])
            if count > 2:
                self.verify(request, tree, top_k=top_k)
                cache = _cache_of(request)
                length = cache.length
                self.commit(request, [0, 2])
                cache.length = length
                cache.rollback()
        self.synchronize()
        return time.perf_counter() - started

    # Inside -------------------------------------------------------------------------------------

    def _hidden(
        self,
        ids: torch.Tensor,
        positions: torch.Tensor,
        cache: TreeCache,
        mask: torch.Tensor | None,
        **inputs: Any,
    ) -> torch.Tensor:
        """Last hidden states of these rows, (1, rows, width)."""
        cache.rollback()
        return self.model.model(
            input_ids=ids,
            position_ids=positions,
            attention_mask=mask,
            cache=cache,
            use_cache=True,
            **inputs,
        ).last_hidden_state

    def _tree_mask(self, tree: CandidateTree, committed: int) -> torch.Tensor:
        """Additive mask (1, 1, rows, committed + rows): all of the prefix, then ancestors only."""
        rows = len(tree)
        length = committed + rows
        # Rows of a multiple of 8 values: fused attention kernels pad other masks at every layer.
        wide = torch.zeros((1, 1, rows, -(-length // 8) * 8), dtype=self.dtype, device=self.device)
        mask = wide[..., :length]
        hidden = torch.from_numpy(~tree.ancestry()).to(self.device)
        mask[..., committed:].masked_fill_(hidden, torch.finfo(self.dtype).min)
        return mask

    def _read_prompt_rows(
        self, request: Request, hidden: torch.Tensor, places: list[int], top_k: int
    ) -> Rows:
        """Predictions at these rows of the prompt, in chunks. `hidden` is (rows, width)."""
        parts = []
        for start in range(0, len(places), _SEED_CHUNK):
            chunk = places[start : start + _SEED_CHUNK]
            logits = self.model.lm_head(hidden[torch.tensor(chunk, device=hidden.device)])
            if request.processors:
                logits = request.processors.apply_prompt(request.ids, chunk, logits)
            parts.append(self._to_host(logits, top_k))
        if len(parts) == 1:
            return parts[0]
        return Rows(
            np.concatenate([p.ids for p in parts]),
            np.concatenate([p.probs for p in parts]),
            [choice for p in parts for choice in p.choice],
            np.concatenate([p.top2 for p in parts]),
        )

    def _to_host(self, logits: torch.Tensor, top_k: int) -> Rows:
        """Greedy choices and predictions of (rows, vocabulary) logits, in one copy to the host.

        A tie goes to the lowest id, as `argmax` has it. Log-probabilities are over the full
        vocabulary, in float32.
        """
        top_k = min(top_k, self.vocabulary - len(self.placeholders))
        # generate() compares in float32 too, whatever the model computes in.
        scores = logits.float()
        choice = scores.argmax(-1, keepdim=True)
        log_z = scores.logsumexp(-1, keepdim=True)
        top2 = scores.topk(2, -1).values - log_z
        if len(self._placeholder_index):
            # In place: nothing else reads these logits. A model spread over several devices has
            # its head on the last of them.
            scores.index_fill_(-1, self._placeholder_index.to(scores.device), -torch.inf)
        values, ids = scores.topk(top_k, -1)
        packed = torch.cat(
            [
                choice.int(),
                ids.int(),
                (values - log_z).exp().view(torch.int32),
                top2.clamp(min=_NEVER).view(torch.int32),
            ],
            -1,
        )
        host = packed.cpu().numpy()
        floats = host.view(np.float32)
        return Rows(
            host[:, 1 : 1 + top_k],
            floats[:, 1 + top_k : 1 + 2 * top_k],
            host[:, 0].tolist(),
            floats[:, -2:],
        )

    def _require_tokenizer(self) -> Any:
        if self.tokenizer is None:
            raise PromptError(f"{self.name} was loaded without a tokenizer: give it model inputs.")
        return self.tokenizer

    def _refuse_unsupported(self, text: Any) -> None:
        layer_types = set(getattr(text, "layer_types", None) or ())
        if layer_types - {"full_attention"} or (
            not layer_types and getattr(text, "sliding_window", None)
        ):
            odd = ", ".join(sorted(layer_types - {"full_attention"})) or "sliding_attention"
            raise ModelError(
                f"{self.name} has layers of type {odd}. Only full attention is supported: a tree "
                "pass behind a window has not been shown to be exact."
            )
        for config in (self.model.config, text):
            if config._attn_implementation not in (TREE_ATTENTION, "sdpa", "eager"):
                raise ModelError(
                    f"{self.name} was loaded with attention {config._attn_implementation!r}; load "
                    "it with attn_implementation='sdpa', which takes a tree mask."
                )


def _cache_of(request: Request) -> TreeCache:
    if request.cache is None:
        raise PromptError("A request must be prefilled before it can be verified.")
    return request.cache


def _eos_ids(model: Any) -> frozenset[int]:
    """Ids that end an answer, from the generation config or else the model's."""
    for config in (model.generation_config, model.config.get_text_config(), model.config):
        eos = getattr(config, "eos_token_id", None)
        if eos is not None:
            return frozenset(eos if isinstance(eos, list | tuple) else [eos])
    return frozenset()
