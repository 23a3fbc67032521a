"""Record the bundled traces: `python -m app.record_traces`.

The first view's trace is a real run, made like this: RECAP describes several pictures one after the
other on one memory, and of the last runs the step is taken in which the drafts went furthest before
an earlier picture's memory was wrong.
"""

from __future__ import annotations

import argparse
import json

from app import assets
from app.models import default_model
from recap.session import Session
from recap.targets import load_target
from recap.targets.images import load_image
from recap.trace import Step, Trace


def main() -> None:
    """Record and write the traces."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", default=default_model())
    parser.add_argument("--method", default="recap")
    parser.add_argument("--max-new-tokens", type=int, default=96)
    arguments = parser.parse_args()

    session = Session(load_target(arguments.model, device="cpu", dtype="float32"))
    examples = assets.examples()
    asked = [
        (n, load_image(e.image) if e.image else None, e.prompt) for n, e in enumerate(examples)
    ]
    asked = asked or [(None, None, "Describe this picture in detail.")] * 2
    traces = []
    for number, picture, prompt in asked:
        run = session.run(
            prompt, picture, arguments.method, max_new_tokens=arguments.max_new_tokens
        )
        traces.append((number, run.finish_all()))
    number, trace, step = max(
        ((n, t, s) for n, t in traces[1:] for s in t.steps), key=lambda found: worth(found[2])
    )
    assets.TRACES.mkdir(parents=True, exist_ok=True)
    trace.save(assets.TRACES / "first-trace.json")
    described = {
        "trace": "first-trace.json",
        "show": step.index,
        "example": number,
        "caption": caption(trace, step),
    }
    (assets.TRACES / "first.json").write_text(json.dumps(described, indent=1) + "\n", "utf-8")
    print(f"step {step.index + 1} of {trace.passes}: {described['caption']}")


def worth(step: Step) -> float:
    """How instructive a step is: much matched, then a confident guess of the memory was wrong."""
    wrong = _wrong_guess(step)
    return step.matched + 2 * wrong[1] if wrong and 3 <= step.matched <= 7 else 0.0


def caption(trace: Trace, step: Step) -> str:
    """One sentence on the step, from the trace alone."""
    wrong = _wrong_guess(step)
    if wrong is None:
        return "A recorded run, paused at one step."
    said = trace.vocabulary[str(wrong[0])]["text"].strip()
    wanted = trace.vocabulary[str(step.emitted[-1].token)]["text"].strip()
    return (
        f"A recorded run, paused: {step.matched} guesses were right, then the picture wanted "
        f"“{wanted}” where earlier text had taught the memory “{said}”."
    )


def _wrong_guess(step: Step) -> tuple[int, float] | None:
    """(token, fused score) of the best guess that the bonus token proved wrong."""
    nodes = step.nodes
    accepted = [n for n, state in enumerate(nodes.state) if state == "accepted"]
    parent = accepted[-1] if accepted else -1
    guesses = [n for n in range(len(nodes)) if nodes.parent[n] == parent]
    if not guesses or step.emitted[-1].source != "bonus":
        return None
    best = max(guesses, key=lambda n: nodes.fused[n])
    return nodes.token[best], nodes.fused[best]


if __name__ == "__main__":
    main()
