"""A trace as text that one can read in a terminal. Needs no model."""

from __future__ import annotations

from recap.trace import Nodes, Step, Trace

_STATE_MARKS = {"accepted": "●", "rejected": "○", "unreached": "·"}


def render_trace(trace: Trace, only: int | None = None) -> str:
    """The run's summary and its steps' candidate trees, or one step's."""
    lines = [
        f"{trace.method} on {trace.model} ({trace.device}, {trace.dtype}), {trace.created}",
        f"prompt: {trace.prompt!r}, {trace.prompt_tokens} tokens, {trace.image_tokens} of an image",
        f"{len(trace.token_ids)} tokens in {trace.passes} passes"
        + (f", MAT {trace.mat:.2f}" if trace.mat else "")
        + f", ended by {trace.finish}",
        "● accepted  ○ rejected  · unreached  ★ bonus",
        "",
    ]
    for step in trace.steps:
        if only is None or step.index == only:
            lines += [*render_step(trace, step), ""]
    return "\n".join(lines)


def render_step(trace: Trace, step: Step) -> list[str]:
    """One sentence and the tree, a line a node, siblings in the order of popping."""
    nodes = step.nodes
    lines = [describe_step(trace, step), f"  {_text(trace, step.root)}"]
    children: dict[int, list[int]] = {}
    for node, parent in enumerate(nodes.parent):
        children.setdefault(parent, []).append(node)
    accepted = [node for node, state in enumerate(nodes.state) if state == "accepted"]
    bonus_parent = accepted[-1] if accepted else -1
    bonus = [e.token for e in step.emitted if e.source == "bonus"]
    stack: list[tuple[int, int]] = [(-1, 0)]
    while stack:
        node, depth = stack.pop()
        if node >= 0:
            lines.append(_node_line(trace, nodes, node, depth))
        if node == bonus_parent and bonus:
            lines.append(
                f"  {'  ' * (depth + 1)}★ {_text(trace, bonus[0])}  what the target wanted"
            )
        stack += [(child, depth + 1) for child in reversed(children.get(node, []))]
    return lines


def describe_step(trace: Trace, step: Step) -> str:
    """One sentence on what happened in a step."""
    count = len(step.nodes)
    if not count:
        why = step.budget.get("reason") or "nothing to propose"
        return f"Step {step.index}: no candidates ({why}); {step.accepted_length} emitted"
    return (
        f"Step {step.index}: {count} nodes, "
        f"expected {step.budget['expected_tokens']:.2f}{_pass(step)}; "
        f"{step.matched} matched, {step.accepted_length} emitted"
    )


def _pass(step: Step) -> str:
    """What an adaptive budget expected its pass to take."""
    seconds = step.budget.get("expected_seconds")
    return "" if seconds is None else f" in {1e3 * seconds:.1f} ms"


def _node_line(trace: Trace, nodes: Nodes, node: int, depth: int) -> str:
    key = " ".join(_text(trace, token) for token in nodes.key[node])
    origin = f"order {nodes.primary[node]} " if nodes.primary[node] else ""
    return (
        f"  {'  ' * depth}{_STATE_MARKS[nodes.state[node]]} {_text(trace, nodes.token[node])}  "
        f"{origin}{nodes.source[node]}, fused {nodes.fused[node]:.2f}, path {nodes.path[node]:.3f}"
        + (f", key [{key}]" if key else "")
    )


def _text(trace: Trace, token: int) -> str:
    entry = trace.vocabulary.get(str(token))
    return repr(entry["text"]) if entry else f"#{token}"
