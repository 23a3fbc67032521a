"""Many visitors for a long time: nothing lost, nothing crossed, nothing that grows.

    python -m tests.soak --sessions 8 --minutes 20

The real server in a process of its own, on the loopback; visitors who run, stop, reload, race,
upload, load traces, use the endpoint and vanish, each from an address of its own. Every finished
answer is compared with the engine's own, decoded beforehand in this process; every stopped one must
be its beginning. The curve of the server's memory, threads and open files is printed as it goes,
and one JSON object on the last line. Exit status 1 where anything was lost, crossed or left over.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import random
import statistics
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import httpx
from PIL import Image

from recap.decoding import Run
from recap.drafters import METHODS
from recap.targets import load_target
from recap.targets.images import load_image
from tests.server import ROOT, Server, running_server
from tests.visitor import RefusedError, Visitor, text_of

#: Share of the time after which the server has seen everything once.
_WARM = 0.4
#: Growth of resident memory that is no growth: pages that the allocator keeps, in KiB.
_LEEWAY = 48 * 1024
_METHODS = tuple(METHODS)
#: Seconds that a session outlives its page in this server.
_GRACE = 2


@dataclass(frozen=True)
class Question:
    """What is asked, and what the engine answers."""

    prompt: str
    picture: bytes | None
    limit: int
    token_ids: tuple[int, ...]
    text: str


@dataclass
class Findings:
    """What happened, put together by all visitors."""

    done: Counter[str] = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def note(self, what: str) -> None:
        with self.lock:
            self.done[what] += 1

    def blame(self, what: str) -> None:
        with self.lock:
            self.wrong.append(what)


def questions() -> list[Question]:
    """Prompts and pictures with different answers, decoded one token a pass."""
    target = load_target("demo", device="cpu")
    made = []
    examples = ROOT / "assets" / "examples"
    asked: list[tuple[str, str | None]] = [
        ("Describe this picture in detail.", "scene-1.png"),
        ("Describe this picture in detail.", "scene-2.png"),
        ("Describe this picture in detail.", "scene-3.png"),
        ("What does the chart show?", "chart-1.png"),
        ("What does the card say?", "card-1.png"),
        ("Hello!", None),
    ]
    for number, (prompt, name) in enumerate(asked):
        data = (examples / name).read_bytes() if name else None
        image = load_image(data) if data else None
        for limit in (24, 40 + 8 * number):
            run = Run(target, target.prepare(prompt, image), "autoregressive", max_new_tokens=limit)
            trace = run.finish_all()
            made.append(Question(prompt, data, limit, tuple(trace.token_ids), trace.text))
    return made


class Guest:
    """One visitor who comes again and again."""

    def __init__(
        self, server: Server, number: int, seed: int, asked: list[Question], found: Findings
    ) -> None:
        self._server, self._number, self._asked, self._found = server, number, asked, found
        self._random = random.Random(f"{seed}-{number}")
        self._serial = 0
        self._visitor = self._arrive()

    def _arrive(self) -> Visitor:
        return Visitor(self._server.address, f"127.0.0.{2 + self._number}").__enter__()

    def spend(self, until: float) -> None:
        """Do one thing after another until then."""
        acts: list[tuple[Callable[[], None], int]] = [
            (self.run, 8), (self.stop, 3), (self.reload, 2), (self.race, 1), (self.upload, 3),
            (self.trace, 2), (self.endpoint, 2), (self.vanish, 1), (self.clear, 1),
        ]  # fmt: skip
        kinds, weights = zip(*acts, strict=True)
        while time.monotonic() < until:
            (act,) = self._random.choices(kinds, weights)
            try:
                act()
            except (RefusedError, httpx.HTTPError, ArithmeticError, LookupError) as error:
                self._found.blame(f"{act.__name__}: {type(error).__name__} {error}"[:300])
            else:
                self._found.note(act.__name__)
        self._visitor.leave()

    def run(self) -> None:
        """To the end, with any method."""
        question = self._random.choice(self._asked)
        self._compare(question, self._visitor.run(**self._form(question)))
        trace = json.loads(self._visitor.export("trace"))
        self._expect(trace["text"] == question.text, "the exported text is another one")

    def stop(self) -> None:
        """Ended on the way: what is there is the beginning of the answer."""
        question = self._random.choice(self._asked)
        view: dict[str, Any] = {}
        for number, view in enumerate(self._visitor.views(**self._form(question))):  # noqa: B007
            if number == 2:
                self._visitor.call("stop", None)
        ids = tuple(text_of(view))
        self._expect(ids == question.token_ids[: len(ids)], "a stopped run is no beginning")
        self._expect(view["status"] == "done", "a stopped run does not end")

    def reload(self) -> None:
        """The tab is closed and opened again."""
        self._visitor.leave()
        self._visitor = self._arrive()

    def vanish(self) -> None:
        """The tab is closed in the middle of a run."""
        question = self._random.choice(self._asked)
        with contextlib.closing(self._visitor.views(**self._form(question))) as views:
            next(views, None)
        self.reload()

    def race(self) -> None:
        """Every lane gives the engine's answer."""
        question = self._random.choice(self._asked)
        form = self._form(question)
        methods = self._random.sample(_METHODS, 2)
        *_, last = self._visitor.stream(
            "race", *self._visitor.form("race", **form, race_methods=methods)
        )
        end = json.loads(last[0]["end"])
        self._expect(end["finished"], f"a race does not finish: {end['message']}")
        for lane in last[0]["lanes"]:
            ids = tuple(text_of(lane))
            self._expect(ids == question.token_ids, f"{lane['name']} raced to another answer")

    def upload(self) -> None:
        """A picture that nobody else has, byte for byte, with the same content."""
        question = self._random.choice([q for q in self._asked if q.picture])
        out = io.BytesIO()
        image = Image.open(io.BytesIO(question.picture or b""))
        image.save(out, "PNG", compress_level=1)
        data = out.getvalue() + self._random.randbytes(16)
        file = self._visitor.upload(data, f"guest-{self._number}.png")
        self._visitor.call("look", file, "demo")
        back = self._visitor.http.get(f"/gradio_api/file={file['path']}")
        self._expect(back.content == data, "an upload comes back as something else")
        self._compare(question, self._visitor.run(**self._form(question, file)))

    def trace(self) -> None:
        """Taken away and loaded again."""
        self.run()
        text = self._visitor.export("trace")
        file = self._visitor.upload(text.encode(), "trace.json")
        view, _ = self._visitor.call("load_trace", None, file)
        self._expect(text_of(view) == json.loads(text)["token_ids"], "a trace loads as another")
        self._expect(self._visitor.export("trace") == text, "a loaded trace is another one")

    def endpoint(self) -> None:
        """As a program calls it."""
        question = self._random.choice(self._asked)
        picture = self._visitor.upload(question.picture) if question.picture else None
        method = self._random.choice(_METHODS)
        (last,) = self._visitor.call(
            "decode", picture, question.prompt, method, question.limit, None
        )
        self._expect(last["text"] == question.text, f"decode with {method} says another text")

    def clear(self) -> None:
        """Forget what was learnt."""
        (size,) = self._visitor.call("clear", None)
        self._expect("empty" in size["text"], "cleared memory is not empty")

    def _form(self, question: Question, file: dict[str, Any] | None = None) -> dict[str, Any]:
        if file is None and question.picture:
            file = self._visitor.upload(question.picture, "example.png")
            self._visitor.call("look", file, "demo")
        return {
            "picture": file, "prompt": question.prompt, "limit": question.limit,
            "method": self._random.choice(_METHODS),
        }  # fmt: skip

    def _compare(self, question: Question, view: dict[str, Any]) -> None:
        ids = tuple(text_of(view))
        self._expect(ids == question.token_ids, "a run's answer is another one")
        about = json.loads(view["about"])
        self._expect(about["prompt"] == question.prompt, "a run of another prompt is shown")
        self._expect(view["serial"] > self._serial, "an older run is shown")
        self._serial = view["serial"]

    def _expect(self, holds: bool, what: str) -> None:
        if not holds:
            self._found.blame(f"guest {self._number}: {what}")


def soak(sessions: int, minutes: float, seed: int, show: Callable[[str], None]) -> dict[str, Any]:
    """Run it; the report. `wrong` lists what must not be."""
    asked = questions()
    found = Findings()
    with running_server(RECAP_GRACE_SECONDS=str(_GRACE)) as server:
        with Visitor(server.address, "127.0.0.2") as first:
            first.run(prompt="Hello!", limit=2)  # the model is loaded
        time.sleep(2 * _GRACE)
        before = server.facts()
        started = time.monotonic()
        until = started + 60 * minutes
        guests = [Guest(server, number, seed, asked, found) for number in range(sessions)]
        threads = [threading.Thread(target=guest.spend, args=(until,)) for guest in guests]
        for thread in threads:
            thread.start()
        curve: list[dict[str, float]] = []
        show("  time   done  wrong    RSS MiB  threads  files  uploads")
        pause = max(2.0, 60 * minutes / 60)
        while any(thread.is_alive() for thread in threads):
            threads[0].join(pause) if threads[0].is_alive() else time.sleep(pause)
            facts = {"time": time.monotonic() - started, **server.facts()}
            curve.append(facts)
            show(
                f"{facts['time']:6.0f} {found.done.total():6d} {len(found.wrong):6d} "
                f"{facts['rss'] / 1024:10.1f} {facts['threads']:8.0f} {facts['files']:6.0f} "
                f"{facts['uploads']:8.0f}"
            )
        after = _settled(server, before)
        output = server.output
        status = server.stop()
    wrong = list(found.wrong)
    if "Error" in output:
        wrong.append("the server's log: " + output[max(0, output.index("Error") - 60) :][:300])
    wrong += [
        f"{what} left: {after[what]} after {before[what]}"
        for what, more in (("files", 3), ("uploads", 0), ("threads", 2))
        if after[what] > before[what] + more
    ]
    # Warm from here on: the median of what came early against the median of the end.
    warm = [facts["rss"] for facts in curve if facts["time"] > _WARM * 60 * minutes]
    third = max(1, len(warm) // 3)
    growth = statistics.median(warm[-third:]) - statistics.median(warm[:third])
    if growth > _LEEWAY:
        wrong.append(f"memory grew by {growth / 1024:.0f} MiB after the warm-up")
    if status != 0:
        wrong.append(f"the server ended with status {status}")
    return {
        "sessions": sessions, "minutes": minutes, "seed": seed, "done": dict(found.done),
        "before": before, "after": after, "growth_mib": round(growth / 1024, 1), "wrong": wrong,
    }  # fmt: skip


def _settled(server: Server, before: dict[str, int]) -> dict[str, int]:
    """The server's facts once everybody has left and the time of grace is over.

    Gradio's pool ends a thread that was idle for ten seconds when the pool is used again.
    """
    visitor = Visitor(server.address, "127.0.0.2")
    facts = server.facts()
    for _ in range(20):
        if all(facts[what] <= before[what] for what in ("files", "uploads", "threads")):
            break
        time.sleep(1)
        visitor.call("defaults", "recap")
        facts = server.facts()
    visitor.leave()
    return facts


def main() -> int:
    """Soak from the command line."""
    parser = argparse.ArgumentParser(description="Many visitors for a long time.")
    parser.add_argument("--sessions", type=int, default=8)
    parser.add_argument("--minutes", type=float, default=20)
    parser.add_argument("--seed", type=int, default=0)
    asked = parser.parse_args()
    report = soak(asked.sessions, asked.minutes, asked.seed, lambda line: print(line, flush=True))
    print(json.dumps(report))
    return 1 if report["wrong"] else 0


if __name__ == "__main__":
    sys.exit(main())
