"""A tree pass says what step-by-step decoding says; the cache behind it is exact and frugal."""

from __future__ import annotations

import random

import pytest
import torch
from transformers.integrations import sdpa_attention

from recap.decoding import Run
from recap.errors import ContextError, ModelError, PromptError
from recap.targets import TINY, make_target
from recap.targets.attention import TREE_ATTENTION
from recap.targets.cache import BLOCK, TreeCache
from recap.trace import Trace
from recap.tree import CandidateTree
from tests.recap.reference import picture, tiny_target

FAMILIES = ("qwen2_5_vl", "llama", "qwen2", "qwen3")


def random_tree(rng: random.Random, root: int, nodes: int, deep: bool) -> CandidateTree:
    """A random tree; `deep` ones grow from their last nodes."""
    tree = CandidateTree(root)
    while tree.nodes < nodes:
        low = max(0, len(tree) - 3) if deep else 0
        tree.add(rng.randrange(low, len(tree)), rng.randrange(250), 0.0, 0.0)
    return tree


def path_of(tree: CandidateTree, row: int) -> list[int]:
    """Tokens from the root's child down to this row."""
    path = []
    while row:
        path.append(tree.token[row])
        row = tree.parent[row]
    return path[::-1]


def logits_of(target, request, tokens):
    """Logits at the last row of a plain full pass over prompt + tokens: no cache, no tree."""
    twin = request.twin()
    positions, following = target._prefill_positions(twin)
    tail = target._row_positions(torch.arange(following, following + len(tokens)))
    with torch.inference_mode():
        out = target.model(
            input_ids=torch.tensor([twin.ids + tokens]),
            position_ids=torch.cat([positions, tail], -1),
            use_cache=False,
            **twin.inputs,
        )
    return out.logits[0, -1]


def request_of(target, seed):
    image = picture(seed, 70 + 30 * seed, 90) if target.family == "qwen2_5_vl" else None
    return target.prepare(f"prompt {seed}", image)


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("deep", [False, True])
def test_tree_logits_equal_step_by_step_logits(family, deep, monkeypatch):
    """Two passes in a row over trees of up to 64 nodes: every row within 1e-4."""
    seen = []
    target = tiny_target(family, 3)
    to_host = target._to_host

    def watching(logits, top_k):
        seen.append(logits.clone())
        return to_host(logits, top_k)

    monkeypatch.setattr(target, "_to_host", watching)
    rng = random.Random(f"{family}{deep}")
    for seed in range(3):
        request, pristine = (request_of(target, seed) for _ in range(2))
        first = target.prefill(request, top_k=8).rows.choice[-1]
        request.append([first])
        emitted = [first]
        for _ in range(2):
            tree = random_tree(rng, request.ids[-1], rng.choice([1, 17, 64]), deep)
            target.verify(request, tree, top_k=8)
            logits = seen[-1]
            for row in range(len(tree)):
                wanted = logits_of(target, pristine, emitted + path_of(tree, row))
                assert (logits[row] - wanted).abs().max() <= 1e-4
            kept = [rng.randrange(len(tree))]
            while kept[0]:
                kept.insert(0, tree.parent[kept[0]])
            target.commit(request, kept)
            added = [*path_of(tree, kept[-1]), rng.randrange(250)]
            request.append(added)
            emitted += added


@pytest.mark.parametrize("family", FAMILIES)
def test_grouped_heads_read_the_cache_without_a_copy(family, monkeypatch):
    """Masked passes of a loaded model: the same to the bit as SDPA, nothing repeated."""
    target = tiny_target(family, 3)
    repeats = []
    repeat = sdpa_attention.repeat_kv

    def counting(states, times):
        repeats.append(times)
        return repeat(states, times)

    monkeypatch.setattr(sdpa_attention, "repeat_kv", counting)
    said = {}
    for attention in ("sdpa", TREE_ATTENTION):
        target.model.set_attn_implementation(attention)
        repeats.clear()
        trace = Run(target, request_of(target, 1), "recap", max_new_tokens=40).finish_all()
        said[attention] = [step.rows for step in trace.steps]
        assert (max(repeats, default=1) > 1) == (attention == "sdpa")
    assert said["sdpa"] == said[TREE_ATTENTION]


def test_positions_are_the_requests_own():
    """A picture takes fewer positions than rows, and another request must not disturb that."""
    target = tiny_target("qwen2_5_vl", 1)
    request = request_of(target, 2)
    target.prefill(request, top_k=8)
    assert request.image_tokens > 4
    assert request.next_position < request.prompt_length
    request.append([5])
    tree = CandidateTree(5)
    tree.add(0, 6, 0.0, 0.0)
    before = target.verify(request, tree, top_k=8)
    target.commit(request, [])
    target.model.model.rope_deltas = torch.tensor([[977]])
    other = request_of(target, 0)
    target.prefill(other, top_k=8)
    after = target.verify(request, tree, top_k=8)
    assert before.choice == after.choice
    assert (before.probs == after.probs).all()
    assert target.model.model.rope_deltas.item() == 977  # neither read nor written


def test_cache_is_not_copied_and_compacts_only_when_it_must():
    """A pass writes into the buffer it finds; a leading chain is kept by counting alone."""
    cache = TreeCache(layers=1, reserve=20)
    rows = torch.arange(12.0).reshape(1, 1, 12, 1)
    keys, _ = cache.update(rows[:, :, :4], -rows[:, :, :4], 0)
    cache.commit(range(4))
    layer = cache.layers[0]
    buffer, where = layer._key_buffer, keys.data_ptr()
    moved = []
    keep = layer.keep

    def watching(base, index, count):
        moved.append(index)
        keep(base, index, count)

    layer.keep = watching  # type: ignore[method-assign]

    keys, _ = cache.update(rows[:, :, 4:9], -rows[:, :, 4:9], 0)
    assert keys.data_ptr() == where
    assert keys.flatten().tolist() == list(range(9))
    cache.commit([0, 1, 2])
    assert moved == [None]
    assert cache.layers[0].keys.flatten().tolist() == [0, 1, 2, 3, 4, 5, 6]

    cache.update(rows[:, :, 7:12], -rows[:, :, 7:12], 0)
    assert cache.pending == 5
    cache.commit([0, 2, 3])
    assert cache.layers[0].keys.flatten().tolist() == [0, 1, 2, 3, 4, 5, 6, 7, 9, 10]
    assert cache.layers[0].values.flatten().tolist() == [-x for x in (*range(8), 9, 10)]
    assert layer._key_buffer is buffer


def test_cache_grows_seldom_and_keeps_what_it_has():
    """More rows than reserved: a larger buffer a few times, the same contents."""
    cache = TreeCache(layers=1, reserve=1)
    total = 0
    capacities = []
    for count in (3, BLOCK, 2, 2 * BLOCK, *[40] * 60):
        rows = torch.arange(float(total), total + count).reshape(1, 1, count, 1)
        cache.update(rows, rows, 0)
        cache.commit(range(count))
        total += count
        capacities.append(cache.layers[0].capacity)
        assert cache.layers[0].keys.flatten().tolist() == list(range(total))
    assert all(capacity % BLOCK == 0 for capacity in capacities)
    assert len(set(capacities)) <= 6


def test_a_failed_pass_leaves_no_rows_behind(monkeypatch):
    """Out of memory in verification: the next pass is as if nothing had happened."""
    target = tiny_target("llama", 4)
    wanted = Run(target, target.prepare("go"), "recap", max_new_tokens=30).finish_all().token_ids
    run = Run(target, target.prepare("go"), "recap", max_new_tokens=30)
    steps = run.steps()
    next(steps)
    head = target.model.lm_head.forward
    monkeypatch.setattr(
        target.model.lm_head, "forward", lambda x: (_ for _ in ()).throw(MemoryError("full"))
    )
    with pytest.raises(MemoryError):
        next(steps)
    assert run.trace.finish == "error"
    monkeypatch.setattr(target.model.lm_head, "forward", head)
    again = Run(target, target.prepare("go"), "recap", memory=run.memory, max_new_tokens=30)
    assert again.finish_all().token_ids == wanted


@pytest.mark.parametrize("stop", [(), ("never said",)])
def test_a_step_that_fails_after_verification_leaves_a_trace_that_loads(monkeypatch, stop):
    """What was not recorded is not part of the answer either."""
    target = tiny_target("llama", 4)
    run = Run(target, target.prepare("go"), "recap", max_new_tokens=40, stop=stop)
    steps = run.steps()
    next(steps)
    text, ids = run.trace.text, list(run.trace.token_ids)

    def full(request, path):
        raise MemoryError("full")

    monkeypatch.setattr(target, "commit", full)
    with pytest.raises(MemoryError):
        next(steps)
    assert run.trace.token_ids == ids
    assert run.trace.text.startswith(text)
    assert Trace.loads(run.trace.dumps()) == run.trace


def test_one_copy_to_the_host_a_step(monkeypatch):
    """Everything the host needs of a pass comes over in one tensor."""
    target = tiny_target("qwen2_5_vl", 6)
    copies = []
    cpu = torch.Tensor.cpu
    monkeypatch.setattr(torch.Tensor, "cpu", lambda self: (copies.append(self.shape), cpu(self))[1])
    run = Run(target, request_of(target, 1), "recap", max_new_tokens=40)
    run.prefill()
    copies.clear()
    passes = len(list(run.steps()))
    assert len(copies) == passes


def test_a_request_is_decoded_once():
    """Its cache is used up: a second run says so instead of decoding nonsense."""
    target = tiny_target("llama", 1)
    request = target.prepare("go")
    Run(target, request, max_new_tokens=5).finish_all()
    with pytest.raises(PromptError, match="prepare it again"):
        Run(target, request)
    with pytest.raises(PromptError, match="before its prefill"):
        request.twin()


def test_a_prompt_that_ends_with_a_picture_is_refused():
    """Where text would go on is not defined then."""
    target = tiny_target("qwen2_5_vl", 1)
    request = request_of(target, 1)
    last = max(i for i, token in enumerate(request.ids) if token in target.placeholders)
    inputs = {"input_ids": torch.tensor([request.ids[: last + 1]]), **request.inputs}
    with pytest.raises(PromptError, match="end with text"):
        target.from_inputs(inputs)


def test_ready_made_inputs_need_no_tokenizer():
    """A target can start from tensors; there is no text then, only ids."""
    with_words = tiny_target("qwen2_5_vl", 1)
    request = request_of(with_words, 1)
    wanted = Run(with_words, request_of(with_words, 1), max_new_tokens=20).finish_all()
    bare = make_target(with_words.model)
    inputs = {"input_ids": torch.tensor([request.ids]), **request.inputs}
    trace = Run(bare, bare.from_inputs(inputs), max_new_tokens=20).finish_all()
    assert trace.token_ids == wanted.token_ids
    assert trace.text == ""


def test_sliding_window_layers_are_refused():
    """They would be silently wrong behind a window."""
    model = TINY["qwen2"].make(use_sliding_window=True, sliding_window=16, max_window_layers=1)
    with pytest.raises(ModelError, match="sliding_attention"):
        make_target(model)


def test_unknown_family_is_refused_by_name():
    """An adapter is needed for each family."""
    model = TINY["llama"].make()
    model.config.model_type = "mamba"
    with pytest.raises(ModelError, match="mamba"):
        make_target(model)


@pytest.mark.parametrize("method", ["recap", "autoregressive"])
def test_the_context_limit_ends_the_answer_with_a_message(method):
    """The last position of the context is used, none behind it."""
    target = tiny_target("llama", 1, max_position_embeddings=64)
    request = target.prepare("abc")
    run = Run(target, request, method, max_new_tokens=500)
    trace = run.finish_all()
    assert trace.finish == "context"
    assert "64 positions" in trace.message
    assert request.prompt_length + len(trace.token_ids) == 65  # the last token needs no position
    with pytest.raises(ContextError, match="Shorten"):
        Run(target, target.prepare("x" * 100), method).finish_all()
