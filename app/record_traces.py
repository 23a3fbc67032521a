"""Record the bundled trace of the first view: `python -m app.record_traces`.

A real run: RECAP gets the same task for one example picture after the other, on one memory; this is
done from every picture on. Of the later runs that step is shown in which most guesses were right
before the memory, taught by an earlier picture, was confidently wrong about this one.
"""

from __future__ import annotations

import argparse
import json
from dataclasses import dataclass

import torch

from app import assets
from app.models import default_model
from recap.demo.words import COLOURS, SHAPES, SIZES
from recap.session import Session
from recap.settings import Settings
from recap.targets import load_target
from recap.targets.images import load_image
from recap.trace import Step, Trace

_PROMPTS = (
    "Describe the picture in detail.",
    "Tell me everything about this picture.",
    "Where is everything?",
    "List the shapes as JSON.",
)
#: Pictures that one memory sees.
_PICTURES = 3
_KIND = "scene"
#: Many nodes: a tree to look at, and the same one on every machine.
_NODES = 63
#: So much of a step fits on a screen without scrolling.
_MATCHED = range(2, 8)


@dataclass(frozen=True)
class Wrong:
    """The best guess that the bonus token proved wrong; `request` wrote the entry behind it."""

    token: int
    fused: float
    request: int


@dataclass(frozen=True)
class Story:
    """A step worth pausing at."""

    example: int
    trace: Trace
    step: Step
    wrong: Wrong

    @property
    def worth(self) -> float:
        """Much matched, then a confident error that an earlier picture caused."""
        words = (self.step.emitted[-1].token, self.wrong.token)
        spelled = [_word(self.trace, token) for token in words]
        # A colour, a shape or a size tells more than "is" and "are".
        telling = all(word in COLOURS or word in SHAPES or word in SIZES for word in spelled)
        middle = self.step.index > 0
        return self.step.matched + 4 * self.wrong.fused + 6 * telling + 3 * middle

    @property
    def caption(self) -> str:
        """One sentence on the step, from the trace alone."""
        wanted = _word(self.trace, self.step.emitted[-1].token)
        return (
            f"A recorded run, paused: {self.step.matched} guesses were right, then this picture "
            f"wanted “{wanted}” where an earlier one had taught the memory "
            f"“{_word(self.trace, self.wrong.token)}”."
        )


def main() -> None:
    """Record and write the trace."""
    parser = argparse.ArgumentParser(description="Record the bundled trace of the first view.")
    parser.add_argument("--model", default=default_model())
    parser.add_argument("--max-new-tokens", type=int, default=120)
    arguments = parser.parse_args()

    torch.set_num_threads(1)  # so that a busy machine does not distort the recorded seconds
    target = load_target(arguments.model, device="cpu", dtype="float32")
    scenes = [
        (number, load_image(example.image))
        for number, example in enumerate(assets.examples())
        if example.kind == _KIND and example.image is not None
    ]
    settings = Settings(budget=_NODES)
    stories = []
    for prompt in _PROMPTS:
        for first in range(len(scenes)):
            session = Session(target)
            for number, picture in (scenes[first:] + scenes[:first])[:_PICTURES]:
                run = session.run(
                    prompt, picture, settings=settings, max_new_tokens=arguments.max_new_tokens
                )
                trace = run.finish_all()
                stories += find(number, trace, session.memory("recap").requests)
    story = max(stories, key=lambda found: found.worth)
    assets.TRACES.mkdir(parents=True, exist_ok=True)
    story.trace.save(assets.TRACES / "first-trace.json")
    described = {
        "trace": "first-trace.json",
        "show": story.step.index,
        "example": story.example,
        "caption": story.caption,
    }
    text = json.dumps(described, indent=1, ensure_ascii=False)
    (assets.TRACES / "first.json").write_text(text + "\n", "utf-8")
    print(f"step {story.step.index + 1} of {story.trace.passes}: {story.caption}")


def find(example: int, trace: Trace, request: int) -> list[Story]:
    """Steps in which an earlier request's entry was behind the guess that failed."""
    stories = []
    for step in trace.steps:
        wrong = wrong_guess(step)
        if wrong and step.matched in _MATCHED and wrong.request < request:
            stories.append(Story(example, trace, step, wrong))
    return stories


def wrong_guess(step: Step) -> Wrong | None:
    """The best guess beside the bonus token, where there was one."""
    nodes, looked, entries = step.nodes, step.lookups, step.entries
    accepted = [n for n, state in enumerate(nodes.state) if state == "accepted"]
    parent = accepted[-1] if accepted else -1
    guesses = [n for n in range(len(nodes)) if nodes.parent[n] == parent]
    if not guesses or not step.emitted or step.emitted[-1].source != "bonus":
        return None
    best = max(guesses, key=lambda n: nodes.fused[n])
    token = nodes.token[best]
    writers = [
        (looked.weight[hit], entries.request[looked.entry[hit]])
        for hit, row in enumerate(looked.row)
        if row == parent + 1 and token in entries.ids[looked.entry[hit]]
    ]
    return Wrong(token, nodes.fused[best], max(writers)[1]) if writers else None


def _word(trace: Trace, token: int) -> str:
    return trace.vocabulary[str(token)]["text"].strip()


if __name__ == "__main__":
    main()
