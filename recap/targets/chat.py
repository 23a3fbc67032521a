"""From what a person types to token ids, through the model's own chat template.

Typed text is inert. A special token's spelling in a prompt (`<|im_end|>`, `<|image_pad|>`) must not
become that token: it would end the turn or claim rows of a picture. So where a prompt spells one,
it is cut inside the spelling and tokenised in parts, which leaves ordinary text tokens.
"""

from __future__ import annotations

import hashlib
import itertools
from typing import Any

from recap.errors import PromptError

#: Longest prompt, in characters, that is looked at. No model here has a context for more.
MAX_CHARACTERS = 1_000_000
# Stands for the prompt while a template is rendered; no template contains or alters it.
_SLOT = "\ue000recap-prompt\ue001"
# Stands before a part that does not open the text: no tokenizer merges a line break with what
# follows in a spelling.
_BREAK = "\n"


def encode_chat(
    tokenizer: Any, prompt: str, *, with_image: bool, in_parts: bool = False
) -> list[int]:
    """Ids of one user turn and the opening of the answer; one image placeholder where asked.

    `in_parts` hands the text over as a list of parts, which templates that take pictures expect
    without a picture too. Without a chat template the prompt is encoded alone. Raises
    `PromptError`.
    """
    prompt = clean(prompt)
    if tokenizer.chat_template:
        opening: list[int] = []
        before, slot, after = _render(tokenizer, _SLOT, with_image, in_parts).partition(_SLOT)
        if not slot:
            raise PromptError("The chat template drops what a person types.")
    elif with_image:
        raise PromptError("This model's tokenizer has no chat template that takes a picture.")
    else:
        opening, before, after = tokenizer("")["input_ids"], "", ""
    spelled = _spelled_tokens(tokenizer, prompt)
    if spelled or not tokenizer.chat_template:
        cuts = [0, *spelled, len(prompt)]
        parts = [prompt[start:end] for start, end in itertools.pairwise(cuts)]
        parts[0], parts[-1] = before + parts[0], parts[-1] + after
        ids = _encode(tokenizer, parts[0])
        for part in parts[1:]:
            ids += _encode_behind(tokenizer, part)
    else:  # as the template has it: it may trim what a person types
        ids = _encode(tokenizer, _render(tokenizer, prompt, with_image, in_parts))
    added = tokenizer.added_tokens_decoder.items()
    live = {token for token, spelling in added if spelling.special or len(spelling.content) > 1}
    harmless = _encode(tokenizer, before + "x" + after)
    if sum(token in live for token in ids) != sum(token in live for token in harmless):
        raise PromptError("The prompt spells a special token that cannot be made harmless.")
    return opening + ids


def clean(prompt: str) -> str:
    """The prompt without what no tokenizer can encode. Raises `PromptError`."""
    if not isinstance(prompt, str):
        raise PromptError("The prompt must be text.")
    if len(prompt) > MAX_CHARACTERS:
        raise PromptError(f"The prompt is too long: at most {MAX_CHARACTERS:,} characters.")
    # Lone surrogates cannot be encoded as UTF-8.
    prompt = prompt.encode("utf-8", "replace").decode("utf-8")
    if not prompt.strip():
        raise PromptError("The prompt is empty: type a question or a request.")
    return prompt


def fingerprint(tokenizer: Any) -> str:
    """A short digest of the vocabulary: equal exactly where ids mean the same tokens."""
    digest = hashlib.sha256()
    for token, index in sorted(tokenizer.get_vocab().items(), key=lambda item: item[1]):
        digest.update(f"{index}\t{token}\n".encode("utf-8", "surrogatepass"))
    return digest.hexdigest()[:16]


def _render(tokenizer: Any, prompt: str, with_image: bool, in_parts: bool) -> str:
    content: Any = prompt
    if with_image or in_parts:
        content = [{"type": "image"}] * with_image + [{"type": "text", "text": prompt}]
    try:
        return tokenizer.apply_chat_template(
            [{"role": "user", "content": content}], tokenize=False, add_generation_prompt=True
        )
    except Exception as error:  # templates are programs and fail in their own ways
        raise PromptError(f"The model's chat template failed: {error}") from error


def _encode(tokenizer: Any, text: str) -> list[int]:
    return tokenizer(text, add_special_tokens=False)["input_ids"]


def _encode_behind(tokenizer: Any, text: str) -> list[int]:
    """Ids of a part behind another one; SentencePiece opens a text of its own with a space."""
    opening, ids = _encode(tokenizer, _BREAK), _encode(tokenizer, _BREAK + text)
    if ids[: len(opening)] != opening:
        return _encode(tokenizer, text)
    return ids[len(opening) :]


def _spelled_tokens(tokenizer: Any, prompt: str) -> list[int]:
    """Places to cut the prompt, ascending: one inside every spelling of an added token."""
    cuts = set()
    for added in tokenizer.added_tokens_decoder.values():
        spelling = added.content
        if len(spelling) < 2:
            continue
        start = prompt.find(spelling)
        while start >= 0:
            cuts.add(start + 1)
            start = prompt.find(spelling, start + 1)
    return sorted(cuts)
