"""What streaming costs: tokens per second with a client on the other end, and without one.

    OMP_NUM_THREADS=1 python -m tests.streaming_cost [--rounds N] [--browser]

Starts the app as `app.py` does and lets it decode the same requests in turns, in one process and on
one torch thread: *headless*, where the runner's events are thrown away, and *streamed*, where the
page's own event goes over HTTP to a client that reads and parses every update but draws nothing;
with `--browser` also with Chromium on the page. Seconds run from the prefill to the last token, in
the decoding thread; the ratio is that of the totals. On one core the client's own work counts
against streaming, so the ratio of the server's CPU seconds stands beside it.

Prints a table, and one JSON object on the last line.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import secrets
import shutil
import statistics
import sys
import threading
import time
import urllib.request
from collections import defaultdict
from collections.abc import Iterator
from typing import Any

from tests.server import ROOT, Server, running_server

PROMPT = "Describe the picture in detail."
EXAMPLES = (0, 3, 4)


# In the server's process ------------------------------------------------------------------------


def serve() -> None:
    """The app with a stopwatch around its runs; a line on stdin runs one of them headless."""
    import runpy

    from app import runner
    from recap.decoding import new_memory

    decode = runner.decode
    requests: dict[str, Any] = {}

    def timed(target: Any, asked: Any, memory: Any, stop: Any, host: Any) -> Iterator[Any]:
        requests[_name(asked)] = (target, asked, host)
        yield from _watched(decode(target, asked, memory, stop, host), asked, "streamed")

    def listen() -> None:
        for line in sys.stdin:
            target, asked, host = requests[line.strip()]
            run = decode(target, asked, new_memory(target), lambda: False, host)
            for _ in _watched(run, asked, "headless"):
                pass

    runner.decode = timed
    threading.Thread(target=listen, daemon=True).start()
    sys.argv = ["app.py"]  # it reads the command line, and this one is not its own
    runpy.run_path(str(ROOT / "app.py"), run_name="__main__")


def _watched(events: Iterator[Any], asked: Any, arm: str) -> Iterator[Any]:
    from app.runner import Passed, Prefilled

    start = end = (0.0, 0.0)
    tokens = 0
    for event in events:
        if isinstance(event, Prefilled):
            start = end = (time.perf_counter(), time.process_time())
        elif isinstance(event, Passed):
            end = (time.perf_counter(), time.process_time())
            tokens += event.step.accepted_length
        yield event
    said = {"arm": arm, "request": _name(asked), "tokens": tokens, "seconds": end[0] - start[0],
            "cpu": end[1] - start[1]}  # fmt: skip
    print(f"TIMED {json.dumps(said)}", flush=True)


def _name(asked: Any) -> str:
    from recap.recording import describe_image
    from recap.targets.images import load_image

    return describe_image(load_image(asked.image))["sha256"]


# In the client's process ------------------------------------------------------------------------


class Stopwatch:
    """What the server says about its runs, and the way to have it do one headless."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._log = server.log.open("r", encoding="utf-8", errors="replace")

    def timed(self) -> dict[str, Any]:
        """What the server says of the run that has just ended."""
        line = ""
        while self._server.process.poll() is None:
            line += self._log.readline()
            if not line.endswith("\n"):  # nothing more yet, or the beginning of a line
                time.sleep(0.05)
                continue
            if line.startswith("TIMED "):
                return json.loads(line[6:])
            line = ""
        raise RuntimeError("the server ended: " + self._server.output)

    def headless(self, request: str) -> dict[str, Any]:
        """Run a request that was streamed before, without anybody on the other end."""
        assert self._server.process.stdin is not None
        self._server.process.stdin.write(f"{request}\n".encode())
        self._server.process.stdin.flush()
        return self.timed()

    def close(self) -> None:
        self._log.close()


class Client:
    """Does what the page does when Run is pressed, and reads every update."""

    def __init__(self, server: Server, tokens: int) -> None:
        self._server, self._tokens = server, tokens
        config = json.load(urllib.request.urlopen(f"{server.address}/config"))
        run = next(
            c["id"] for c in config["components"] if c["props"].get("elem_id") == "recap-run"
        )
        self._event = next(
            d for d in config["dependencies"] if d["backend_fn"] and [run, "click"] in d["targets"]
        )
        values = {c["id"]: c["props"].get("value") for c in config["components"]}
        self._form = [values.get(number) for number in self._event["inputs"]]
        self._names = {c["props"].get("elem_id"): c["id"] for c in config["components"]}
        self._pictures = {example: self._upload(example) for example in EXAMPLES}

    def _upload(self, example: int) -> str:
        from app import assets

        path = assets.examples()[example].image
        assert path is not None
        head = (
            '--x\r\nContent-Disposition: form-data; name="files"; '
            f'filename="{path.name}"\r\nContent-Type: image/png\r\n\r\n'
        )
        post = urllib.request.Request(
            f"{self._server.address}/gradio_api/upload",
            head.encode() + path.read_bytes() + b"\r\n--x--\r\n",
            {"Content-Type": "multipart/form-data; boundary=x"},
        )
        return json.load(urllib.request.urlopen(post))[0]

    def run(self, example: int) -> dict[str, Any]:
        """One streamed run; {"updates", "bytes", "seconds", "first"} as the client saw it."""
        data, picture = list(self._form), self._pictures[example]
        for name, value in {
            "recap-picture": {"path": picture, "meta": {"_type": "gradio.FileData"}},
            "recap-prompt": PROMPT, "recap-method": "recap", "recap-limit": self._tokens,
            "setting-persist": False,
        }.items():  # fmt: skip
            data[self._event["inputs"].index(self._names[name])] = value
        session = secrets.token_hex(6)
        body = {
            "data": data, "fn_index": self._event["id"], "session_hash": session,
            "trigger_id": self._event["targets"][0][0], "event_data": None,
        }  # fmt: skip
        api = f"{self._server.address}/gradio_api"
        post = urllib.request.Request(
            f"{api}/queue/join", json.dumps(body).encode(), {"Content-Type": "application/json"}
        )
        started = time.perf_counter()
        urllib.request.urlopen(post).read()
        seen: dict[str, Any] = {"updates": 0, "bytes": 0}
        with urllib.request.urlopen(f"{api}/queue/data?session_hash={session}") as stream:
            for line in stream:
                if not line.startswith(b"data:"):
                    continue
                seen["updates"] += 1
                seen["bytes"] += len(line)
                message = json.loads(line[5:])
                if rb"\"finish\":\"error\"" in line:
                    raise RuntimeError(line.decode()[:2000])
                if "first" not in seen and rb"\"logprob\"" in line:
                    seen["first"] = time.perf_counter() - started
                if message["msg"] == "process_completed":
                    if not message["success"]:
                        raise RuntimeError(str(message))
                    break
        return {**seen, "seconds": time.perf_counter() - started}


class Browser:
    """Chromium on the page: it reads every update and draws it."""

    def __init__(self, server: Server) -> None:
        from playwright.sync_api import sync_playwright

        self._playwright = sync_playwright().start()
        found = shutil.which("chromium") or shutil.which("google-chrome")
        self._browser = self._playwright.chromium.launch(
            executable_path=found, args=["--no-sandbox", "--disable-gpu"]
        )
        self._page = self._browser.new_page(viewport={"width": 1280, "height": 820})
        self._page.goto(server.address)
        self._page.wait_for_selector(".tree-svg .node")
        self._page.get_by_text("Settings", exact=True).click()
        self._page.get_by_label("Memory across requests").uncheck()
        self._page.fill("#recap-prompt textarea", PROMPT)

    def run(self, example: int) -> dict[str, Any]:
        """One run as a person starts it, drawn at the page's own pace."""
        from app import assets

        page, picture = self._page, assets.examples()[example].image
        assert picture is not None
        remove = page.locator("#recap-picture button[aria-label='Remove Image']")
        if remove.count():
            remove.click()
            page.wait_for_selector("#recap-picture img", state="detached")
        page.locator("#recap-picture input[type=file]").set_input_files(picture)
        page.wait_for_selector(f"#recap-picture img[src*='{picture.name}']")
        page.wait_for_timeout(500)
        serial = page.evaluate("Recap.page.store.serial")
        started = time.perf_counter()
        page.click("#recap-run")
        page.wait_for_function(
            f"Recap.page.store.serial > {serial} && Recap.page.store.run.status === 'done'"
        )
        seconds = time.perf_counter() - started
        page.evaluate("Recap.page.store.skip()")  # or it goes on drawing into the next arm
        page.wait_for_timeout(500)
        return {"updates": 0, "bytes": 0, "seconds": seconds}

    def close(self) -> None:
        self._browser.close()
        self._playwright.stop()


def measure(rounds: int, browser: bool, *, tokens: int = 160, warm: int = 2) -> dict[str, Any]:
    """All arms in turns, the order changing from round to round; `warm` turns come before them."""
    started = time.perf_counter()
    with (
        running_server("-m", "tests.streaming_cost", "--serve") as server,
        contextlib.closing(Stopwatch(server)) as watch,
        contextlib.ExitStack() as opened,
    ):
        up_seconds = time.perf_counter() - started
        client = Client(server, tokens)
        for _ in range(warm):  # every shape is warm after this, and every request known
            for example in EXAMPLES:
                client.run(example)
                request = watch.timed()["request"]
                watch.headless(request)
        arms: dict[str, Any] = {"headless": None, "streamed": client}
        if browser:
            arms["browser"] = drawing = opened.enter_context(contextlib.closing(Browser(server)))
            drawing.run(EXAMPLES[0])
            watch.timed()
        totals: dict[str, dict[str, float]] = defaultdict(lambda: defaultdict(float))
        first_tokens: list[float] = []
        known: dict[int, str] = {}
        for number in range(rounds):
            example = EXAMPLES[number % len(EXAMPLES)]
            if example not in known:
                client.run(example)
                known[example] = watch.timed()["request"]
            order = list(arms)
            for arm in order[number % len(order) :] + order[: number % len(order)]:
                seen: dict[str, Any] = {}
                if arm == "headless":
                    said = watch.headless(known[example])
                else:
                    seen = arms[arm].run(example)
                    said = watch.timed()
                assert said["request"] == known[example] or arm == "browser"
                total = totals[arm]
                total["runs"] += 1
                for name in ("tokens", "seconds", "cpu"):
                    total[name] += said[name]
                for name in ("updates", "bytes"):
                    total[name] += seen.get(name, 0)
                if "first" in seen:
                    first_tokens.append(seen["first"])
                time.sleep(0.3)  # what a run leaves behind is not the next one's
    return {
        "cores": len(os.sched_getaffinity(0)),
        "up_seconds": round(up_seconds, 1),
        "first_token_seconds": round(statistics.median(first_tokens), 3),
        "arms": _arms(totals),
    }


def _arms(totals: dict[str, dict[str, float]]) -> dict[str, Any]:
    bare = totals["headless"]
    arms: dict[str, Any] = {}
    for arm, total in totals.items():
        rate, cpu_rate = total["tokens"] / total["seconds"], total["tokens"] / total["cpu"]
        arms[arm] = {
            "runs": int(total["runs"]),
            "tokens": int(total["tokens"]),
            "tokens_per_second": round(rate, 1),
            "of_headless": round(rate * bare["seconds"] / bare["tokens"], 3),
            "of_headless_by_cpu": round(cpu_rate * bare["cpu"] / bare["tokens"], 3),
            "updates_per_run": round(total["updates"] / total["runs"], 1),
            "kilobytes_per_run": round(total["bytes"] / total["runs"] / 1e3, 1),
        }
    return arms


def main() -> None:
    parser = argparse.ArgumentParser(description="Measure what streaming costs.")
    parser.add_argument("--rounds", type=int, default=12)
    parser.add_argument("--browser", action="store_true", help="also with Chromium on the page")
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.serve:
        serve()
        return
    result = measure(arguments.rounds, arguments.browser)
    print(f"{'arm':10} {'runs':>5} {'tokens/s':>9} {'of headless':>12} {'by CPU':>7} {'kB/run':>8}")
    for arm, row in result["arms"].items():
        print(
            f"{arm:10} {row['runs']:5} {row['tokens_per_second']:9.1f} {row['of_headless']:12.3f} "
            f"{row['of_headless_by_cpu']:7.3f} {row['kilobytes_per_run']:8.1f}"
        )
    print(json.dumps(result))


if __name__ == "__main__":
    main()
