"""`model.generate(..., custom_generate=recap.generate)`: the same ids, or a refusal by name."""

from __future__ import annotations

import pytest
import torch
from transformers import (
    AutoModelForImageTextToText,
    AutoProcessor,
    DynamicCache,
    LogitsProcessor,
    LogitsProcessorList,
    MaxLengthCriteria,
    MaxTimeCriteria,
    RepetitionPenaltyLogitsProcessor,
    StaticCache,
    StoppingCriteria,
    StoppingCriteriaList,
    StopStringCriteria,
    SuppressTokensLogitsProcessor,
)
from transformers.models.llava_next.processing_llava_next import LlavaNextProcessor

import recap
from recap import generation
from recap.decoding import MAX_NEW_TOKENS
from recap.drafters import METHODS
from recap.errors import (
    MemoryMismatchError,
    ModelError,
    ProcessorError,
    PromptError,
    SettingsError,
)
from recap.processors import RowProcessors
from recap.targets import TINY, make_target
from recap.tree import CandidateTree
from tests.recap.families import family_target
from tests.recap.reference import model_inputs, picture

LENGTH = 40


@pytest.fixture(scope="module")
def target():
    return family_target("qwen2_5_vl", 1, scale=0.12)


@pytest.fixture
def inputs(target):
    return model_inputs(target, target.prepare("what is this", picture(0)))


def both(target, inputs, **options):
    """(what `generate` gives alone, what it gives with RECAP)."""
    options = {"max_new_tokens": LENGTH, "do_sample": False, "pad_token_id": 0, **options}
    alone = target.model.generate(**inputs, **options)
    return alone, target.model.generate(**inputs, **options, custom_generate=recap.generate)


def refused(target, inputs, error, match, **options):
    options = {"max_new_tokens": 4, "do_sample": False, "pad_token_id": 0, **options}
    with pytest.raises(error, match=match):
        target.model.generate(**inputs, **options, custom_generate=recap.generate)


def test_ids_come_back_behind_the_prompt(target, inputs):
    """(1, prompt + new), on the prompt's own device and type."""
    alone, ours = both(target, inputs)
    assert ours.shape == (1, inputs["input_ids"].shape[1] + LENGTH)
    assert ours.dtype == inputs["input_ids"].dtype
    assert torch.equal(alone, ours)


@pytest.mark.parametrize("family", ["llama", "qwen2", "qwen3"])
def test_text_models_and_an_absent_mask(family):
    """Text models too, with ids alone."""
    model = TINY[family].make(2, scale=0.12)
    inputs = {"input_ids": torch.tensor([[5, 9, 5, 9, 5]])}
    alone, ours = both(make_target(model), inputs)
    assert torch.equal(alone, ours)


def test_eos_of_the_call_ends_the_answer(target, inputs):
    """Whether the model's configuration knows it or not, also inside an accepted run."""
    free, _ = both(target, inputs)
    for eos in dict.fromkeys(free[0, inputs["input_ids"].shape[1] + 12 :: 7].tolist()):
        alone, ours = both(target, inputs, eos_token_id=[eos, 1])
        assert torch.equal(alone, ours)
        assert ours[0, -1] in (eos, 1)
        assert ours.shape[1] < free.shape[1]


def test_max_length_is_met(target, inputs):
    """`max_length` counts the prompt."""
    length = inputs["input_ids"].shape[1] + 5
    alone, ours = both(target, inputs, max_new_tokens=None, max_length=length)
    assert torch.equal(alone, ours)
    assert ours.shape[1] == length


def test_the_shortest_of_several_limits_counts():
    """Whatever their order, and one token comes where the prompt is as long as that already."""
    ids = torch.tensor([[1, 2, 3, 4]])
    for limits, most in (([9, 7], 3), ([7, 9], 3), ([10**9], MAX_NEW_TOKENS), ([4, 9], 1)):
        criteria = StoppingCriteriaList(MaxLengthCriteria(limit) for limit in limits)
        assert generation._ends(criteria, ids) == (most, frozenset(), None)


def test_a_limit_beyond_any_context_is_no_error():
    """`max_length` may be as large as it likes: EOS, or the context, ends the answer first."""
    target = make_target(TINY["llama"].make(2))
    inputs = {"input_ids": torch.tensor([[5, 9, 5, 9, 5]])}
    free, _ = both(target, inputs)
    options = {"max_new_tokens": None, "max_length": 10**8, "eos_token_id": [int(free[0, 20])]}
    alone, ours = both(target, inputs, **options)
    assert torch.equal(alone, ours)


class AfterTwo(StoppingCriteria):
    """Ends when a token has come a second time; remembers what it was asked."""

    def __init__(self, start):
        self.start = start
        self.asked = []

    def __call__(self, input_ids, scores, **kwargs):
        new = input_ids[0, self.start :].tolist()
        self.asked.append(new)
        return torch.tensor([new.count(new[-1]) >= 4])


def test_stopping_criteria_are_asked_after_each_token(target, inputs):
    """The same texts in the same order as in `generate`, and no more of them."""
    start = inputs["input_ids"].shape[1]
    criteria = [AfterTwo(start), AfterTwo(start)]
    options = {"max_new_tokens": LENGTH, "do_sample": False, "pad_token_id": 0}
    alone = target.model.generate(
        **inputs, **options, stopping_criteria=StoppingCriteriaList(criteria[:1])
    )
    ours = target.model.generate(
        **inputs,
        **options,
        stopping_criteria=StoppingCriteriaList(criteria[1:]),
        custom_generate=recap.generate,
    )
    assert torch.equal(alone, ours)
    assert alone.shape[1] < start + LENGTH
    assert criteria[0].asked == criteria[1].asked


def test_stop_strings_and_time_are_criteria(target, inputs):
    """A criterion of transformers' own, built by the caller since no tokenizer arrives."""
    free, _ = both(target, inputs)
    text = target.tokenizer.decode(free[0, inputs["input_ids"].shape[1] + 8 :])
    stop = next(text[i : i + 2] for i in range(len(text)) if text[i : i + 2].isascii())
    criteria = StoppingCriteriaList([StopStringCriteria(target.tokenizer, [stop])])
    alone, ours = both(target, inputs, stopping_criteria=criteria)
    assert torch.equal(alone, ours)
    assert ours.shape[1] < free.shape[1]
    criteria = StoppingCriteriaList([MaxTimeCriteria(0.0)])
    alone, ours = both(target, inputs, stopping_criteria=criteria)
    assert torch.equal(alone, ours)
    assert ours.shape[1] == inputs["input_ids"].shape[1] + 1


def test_processors_are_applied(target, inputs):
    """Those of the configuration and the caller's own."""
    own = LogitsProcessorList([RepetitionPenaltyLogitsProcessor(0.7)])
    plain, _ = both(target, inputs)
    for options in (
        {"repetition_penalty": 1.3},
        {"no_repeat_ngram_size": 2, "eos_token_id": [3], "min_new_tokens": 9},
        {"logits_processor": own},
        {"prefix_allowed_tokens_fn": lambda _, ids: [(int(ids[-1]) * 7 + i) % 200 for i in (1, 2)]},
    ):
        alone, ours = both(target, inputs, **options)
        assert torch.equal(alone, ours), options
        assert not torch.equal(plain, ours), options


def along(answer, start, ids):
    """What a trie of one answer allows behind `ids`: off the answer, and before it, nothing."""
    new = ids[start:].tolist()
    on_it = len(ids) >= start and new == answer[: len(new)]
    return [answer[len(new)]] if on_it else []


def test_a_constraint_may_raise_where_the_answer_does_not_come(target, inputs):
    """Speculative rows lie off the only texts that a trie allows, and prompt rows before them."""
    start = inputs["input_ids"].shape[1]
    free, _ = both(target, inputs)
    answer = free[0, start:].tolist()
    answer[20:24] = [7, 9, 7, 9]  # other than the model and its memory would have it
    asked = []

    def allowed(_, ids):
        asked.append(along(answer, start, ids))
        return asked[-1]

    options = {"max_new_tokens": LENGTH, "do_sample": False, "prefix_allowed_tokens_fn": allowed}
    alone = target.model.generate(**inputs, **options)
    assert alone[0, start:].tolist() == answer
    assert all(asked)
    for method in METHODS:
        ours = target.model.generate(
            **inputs, **options, custom_generate=recap.generate, method=method
        )
        assert torch.equal(alone, ours), method
    assert not all(asked), "nothing was tried off the answer"


def test_a_constraint_that_raises_on_the_answer_is_heard(target, inputs):
    """As in `generate`: with its own error, behind the same tokens."""
    start = inputs["input_ids"].shape[1]
    free, _ = both(target, inputs)
    for dead in (0, 1, 17):
        answer = free[0, start : start + dead].tolist()
        fails = {"prefix_allowed_tokens_fn": lambda _, ids, it=answer: it[len(ids) - start :][:1]}
        with pytest.raises(ValueError, match="empty list"):
            target.model.generate(**inputs, max_new_tokens=LENGTH, do_sample=False, **fails)
        for method in METHODS:
            steps = []
            with pytest.raises(ValueError, match="empty list"):
                target.model.generate(
                    **inputs,
                    max_new_tokens=LENGTH,
                    do_sample=False,
                    **fails,
                    custom_generate=recap.generate,
                    method=method,
                    on_step=steps.append,
                )
            emitted = [token.token for step in steps for token in step.emitted]
            assert emitted == answer[1:], method
            # Ended before it comes to that row, nothing is wrong.
            if dead:
                alone, ours = both(target, inputs, max_new_tokens=dead, **fails)
                assert torch.equal(alone, ours)


class Elsewhere(LogitsProcessor):
    """Adds a tensor that lies on a device of its own."""

    stateless = True

    def __call__(self, input_ids, scores):
        assert input_ids.device == scores.device == torch.device("meta")
        return scores + torch.zeros((), device="meta")[None]


def test_processors_run_where_the_ids_are():
    """transformers makes some of them there, and a model may have its head on another device."""
    rows = RowProcessors([Elsewhere()], "meta")
    assert rows.apply([1, 2], CandidateTree(2), torch.zeros(1, 5)).device.type == "meta"
    assert rows.usable([0]) == 1
    assert rows.apply_prompt([1, 2], [0, 1], torch.zeros(2, 5)).device.type == "meta"


def test_prompt_rows_are_not_processed():
    """But the last one, whose choice is the answer's first token."""
    rows = RowProcessors([SuppressTokensLogitsProcessor([3])])
    logits = torch.zeros(2, 5)
    assert rows.apply_prompt([1, 2], [0, 1], logits).isinf().any(-1).tolist() == [False, True]
    assert rows.apply_prompt([1, 2, 4], [0, 1], logits).equal(logits)
    assert not logits.any()


def test_return_dict_and_cache(target, inputs):
    """The output class of `generate`, and a cache that an ordinary pass can go on from."""
    alone, ours = both(target, inputs, return_dict_in_generate=True)
    assert type(ours) is type(alone)
    assert torch.equal(alone.sequences, ours.sequences)
    assert ours.cache.get_seq_length() == alone.cache.get_seq_length()
    for mine, theirs in zip(ours.cache.layers, alone.cache.layers, strict=True):
        assert torch.allclose(mine.keys, theirs.keys, atol=1e-5)
        assert torch.allclose(mine.values, theirs.values, atol=1e-5)


def test_a_cache_of_the_caller_is_filled(target, inputs):
    """A `DynamicCache` that was handed in empty holds prompt and answer afterwards."""
    cache = DynamicCache(config=target.model.config.get_text_config())
    ids = target.model.generate(
        **inputs, max_new_tokens=6, do_sample=False, cache=cache, custom_generate=recap.generate
    )
    assert cache.get_seq_length() == ids.shape[1] - 1


def test_the_end_of_the_context_ends_the_answer(caplog):
    """With a warning: up to there the ids are those of `generate`."""
    target = make_target(TINY["llama"].make(max_position_embeddings=32))
    alone, ours = both(target, {"input_ids": torch.arange(20, 40)[None]}, max_new_tokens=30)
    assert ours.shape[1] == 33  # the last token needs no position of its own
    assert torch.equal(alone[:, :33], ours)
    assert "context of 32" in caplog.text


def test_own_keywords_arrive(target, inputs):
    """`method`, `settings` and `on_step`, and nothing of them reaches the model."""
    for method in METHODS:
        steps = []
        ids = target.model.generate(
            **inputs,
            max_new_tokens=LENGTH,
            do_sample=False,
            custom_generate=recap.generate,
            method=method,
            settings=METHODS[method].settings(budget=3),
            on_step=steps.append,
        )
        assert 1 + sum(step.accepted_length for step in steps) == LENGTH
        assert max(len(step.nodes) for step in steps) <= 3
        assert ids[0, -1] == steps[-1].emitted[-1].token


def test_a_session_keeps_the_memory_over_calls(target, inputs):
    """The second call starts with what the first one learnt."""
    session = recap.Session(target)
    for _ in range(2):
        steps = []
        target.model.generate(
            **inputs,
            max_new_tokens=LENGTH,
            do_sample=False,
            custom_generate=recap.generate,
            method="recap-plus",
            memory=session,
            on_step=steps.append,
        )
    assert session.memory("recap-plus").requests == 2
    # Before its first pass, the second call has what the first one's passes wrote.
    assert any(step >= 0 for step in steps[0].entries.step)


def test_memories_of_another_model_are_refused(target, inputs):
    """Ids of another vocabulary mean other words; what to do is said."""
    other = family_target("llava_next")
    advice = "another model.*make_target"
    refused(target, inputs, MemoryMismatchError, advice, memory=recap.Session(other))
    advice = "another model.*an empty one"
    refused(target, inputs, MemoryMismatchError, advice, memory=recap.new_memory(other))


class Counting(LogitsProcessor):
    def __call__(self, input_ids, scores):
        return scores


@pytest.mark.parametrize(
    ("options", "error", "match"),
    [
        ({"do_sample": True}, SettingsError, "do_sample"),
        ({"num_beams": 2}, SettingsError, "num_beams"),
        ({"return_dict_in_generate": True, "output_scores": True}, SettingsError, "output_scores"),
        ({"return_dict_in_generate": True, "output_logits": True}, SettingsError, "output_logits"),
        ({"logits_processor": LogitsProcessorList([Counting()])}, ProcessorError, "Counting"),
        ({"guidance_scale": 1.5}, ProcessorError, "ClassifierFree"),
        ({"encoder_repetition_penalty": 1.5}, ProcessorError, "EncoderRepetition"),
        ({"method": "magic"}, SettingsError, "method"),
    ],
    ids=lambda value: next(reversed(value)) if isinstance(value, dict) else "",
)
def test_what_would_give_other_ids_is_refused_by_name(target, inputs, options, error, match):
    """Each with its own name in the message."""
    refused(target, inputs, error, match, **options)


def test_the_example_of_the_documentation(tmp_path):
    """With what AutoModel and AutoProcessor load, as anybody would write it."""
    tiny = TINY["llava_next"]
    TINY["llava_next"].make().save_pretrained(tmp_path)
    LlavaNextProcessor(
        tiny.image_processor(),
        tiny.tokenizer(),
        patch_size=14,
        vision_feature_select_strategy="default",
        num_additional_image_tokens=1,
        chat_template=tiny.template,
    ).save_pretrained(tmp_path)
    name, image = str(tmp_path), picture(0)

    model = AutoModelForImageTextToText.from_pretrained(name, dtype="auto")
    processor = AutoProcessor.from_pretrained(name)
    content = [{"type": "image", "image": image}, {"type": "text", "text": "What is this?"}]
    inputs = processor.apply_chat_template(
        [{"role": "user", "content": content}],
        add_generation_prompt=True,
        tokenize=True,
        return_dict=True,
        return_tensors="pt",
    )
    options = {"do_sample": False, "max_new_tokens": 40}
    session = recap.Session(recap.make_target(model))  # keeps what it learns between calls
    ids = model.generate(**inputs, **options, custom_generate=recap.generate, memory=session)

    assert torch.equal(ids, model.generate(**inputs, **options))
    assert session.memory("recap").requests == 1


def test_several_answers_are_refused(target, inputs):
    """`num_return_sequences` needs sampling in transformers; greedily it is refused there."""
    refused(target, inputs, (SettingsError, ValueError), "num_return_sequences",
            num_return_sequences=2)  # fmt: skip


def test_a_batch_is_refused():
    """One prompt at a time, with or without padding."""
    target = make_target(TINY["llama"].make())
    batch = {"input_ids": torch.tensor([[1, 2, 3], [4, 5, 6]])}
    refused(target, batch, PromptError, "One prompt")
    padded = {
        "input_ids": torch.tensor([[0, 2, 3]]),
        "attention_mask": torch.tensor([[0, 1, 1]]),
    }
    refused(target, padded, PromptError, "padded")


def test_embeddings_are_refused():
    """Without ids there are no keys."""
    target = make_target(TINY["llama"].make())
    embeds = target.model.get_input_embeddings()(torch.tensor([[1, 2, 3]]))
    refused(target, {"inputs_embeds": embeds}, SettingsError, "inputs_embeds")


def test_a_cache_that_is_not_empty_or_not_dynamic_is_refused():
    """An earlier answer cannot be continued."""
    target = make_target(TINY["llama"].make())
    ids = torch.tensor([[1, 2, 3, 4]])
    cache = DynamicCache(config=target.model.config)
    with torch.no_grad():
        target.model(ids[:, :3], cache=cache)
    refused(target, {"input_ids": ids}, SettingsError, "cache: must be empty", cache=cache)
    cache = StaticCache(config=target.model.config, max_cache_len=64)
    refused(target, {"input_ids": ids}, SettingsError, "DynamicCache, got Static", cache=cache)


def test_a_family_without_an_adapter_is_refused():
    """By its name, with those that are supported."""
    from transformers import GPT2Config, GPT2LMHeadModel

    model = GPT2LMHeadModel(GPT2Config(n_layer=1, n_embd=16, n_head=2, vocab_size=50)).eval()
    with pytest.raises(ModelError, match=r"'gpt2'.*llava_next"):
        model.generate(
            torch.tensor([[1, 2]]), do_sample=False, max_new_tokens=2,
            custom_generate=recap.generate,
        )  # fmt: skip


def test_the_models_sampling_defaults_are_named(target, inputs):
    """Published models sample by default: the refusal says what to set."""
    model = family_target("qwen2_5_vl").model
    model.generation_config.do_sample = True
    with pytest.raises(SettingsError, match="do_sample: must be False"):
        model.generate(**inputs, max_new_tokens=2, custom_generate=recap.generate)
