"""What one session asked, showed and learnt is nowhere to be had for another.

One visitor plants secrets: in a prompt, in a picture, in a picture's name, in a trace, in the
memory. Another asks every address that the server knows, and every event, and reads the log.
"""

from __future__ import annotations

import base64
import contextlib
import io
import itertools
import json
import re
import secrets
import stat
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from gradio.routes import App
from PIL import Image
from PIL.PngImagePlugin import PngInfo

from app.layout import build
from app.line import Turnstile
from app.models import ModelShelf
from tests.server import ROOT, Server, running_server
from tests.visitor import RefusedError, Visitor


class Secrets:
    """Words that nobody can guess, and what they look like on the wire."""

    def __init__(self) -> None:
        self.prompt, self.picture, self.name, self.trace = (
            f"{kind}-{secrets.token_hex(8)}" for kind in ("prompt", "picture", "name", "trace")
        )
        facts = PngInfo()
        facts.add_text("Comment", self.picture)
        out = io.BytesIO()
        Image.effect_noise((96, 96), 90).convert("RGB").save(out, "PNG", pnginfo=facts)
        self.png = out.getvalue()
        middle = self.png[len(self.png) // 2 :][:24]
        #: The picture's bytes as they are and as base64 has them, at each of the three offsets.
        self.bytes = [middle, *(base64.b64encode(middle[skip:])[4:20] for skip in range(3))]

    def found_in(self, content: bytes) -> list[str]:
        words = [self.prompt, self.picture, self.name, self.trace]
        found = [word for word in words if word.encode() in content]
        return found + ["bytes of the picture"] * any(part in content for part in self.bytes)


@pytest.fixture
def planted() -> Secrets:
    return Secrets()


@pytest.fixture
def alice(visit: Callable[[], Visitor], planted: Secrets) -> Visitor:
    """Has asked, loaded a trace, and learnt; a run of hers goes on while others look."""
    visitor = visit()
    path = ROOT / "assets" / "traces" / "first-trace.json"
    trace = json.loads(path.read_text("utf-8"))
    trace["prompt"] = planted.trace
    file = visitor.upload(json.dumps(trace).encode(), f"{planted.name}.json")
    view, _ = visitor.call("load_trace", None, file)
    assert planted.trace in view["about"], "the secret is really there"
    picture = visitor.upload(planted.png, f"{planted.name}.png")
    visitor.call("look", picture, "demo")
    view = visitor.run(prompt=f"Describe {planted.prompt}.", picture=picture, limit=24)
    assert planted.prompt in view["about"]
    assert planted.prompt in visitor.export("trace")
    return visitor


def _addresses(visitor: Visitor, folder: Path, name: str) -> Iterator[str]:
    """Every GET address that Gradio serves, on or off, with this visitor's own parameters."""
    page = build(ModelShelf(), Turnstile())
    routes = []
    for route in App.create_app(page).routes:
        inner = getattr(route, "original_router", None)
        routes += inner.routes if inner is not None else [route]
    patterns = {r.path for r in routes if "GET" in (getattr(r, "methods", None) or ())}
    assert len(patterns) > 40, "Gradio's routes are not found any more"
    guesses = {
        "session_hash": [visitor.session], "event_id": ["0"], "run": ["0"], "component_id": ["1"],
        "segment_id": ["0"], "ext": ["ts"], "api_name": ["decode", "run"], "key": ["0"],
        "size": ["192"], "id": ["0"], "environment": ["client"], "type": ["component"],
        "file_name": ["index.js"], "endpoint": ["decode"], "record_id": ["0"], "asset_id": ["0"],
        "page": [""],
        "path": ["index.html", "../../app.py", str(folder), "../" * 12 + "etc/passwd"],
        "url_path": ["http://127.0.0.1/"],
        "path_or_url": [
            str(folder), f"{folder}/{name}.png", f"{folder}/../log.txt", str(ROOT / "app.py"),
            "/etc/passwd", "/proc/self/environ", "app.py", "%2e%2e/%2e%2e/etc/passwd",
            "http://127.0.0.1:1/", "file:///etc/passwd",
        ],
    }  # fmt: skip
    for pattern in sorted(patterns):
        names = re.findall(r"{(\w+)(?::path)?}", pattern)
        assert set(names) <= set(guesses), f"a new kind of address: {pattern}"
        for number in range(max([len(guesses[n]) for n in names], default=1)):
            filled = pattern
            for n in names:
                value = guesses[n][number % len(guesses[n])]
                filled = re.sub(rf"{{{n}(:path)?}}", lambda _, value=value: value, filled)
            yield filled
            yield f"{filled}?session_hash={visitor.session}"


def _read(http: httpx.Client, address: str, seconds: float = 2) -> bytes:
    """What an address says, up to 4 MB or so many seconds: some never end."""
    content = b""
    limits = httpx.Timeout(5, read=seconds)
    with (
        contextlib.suppress(httpx.HTTPError),
        http.stream("GET", address, timeout=limits) as answer,
    ):
        content += str(answer.headers).encode()
        for part in answer.iter_bytes():
            content += part
            if len(content) > 4_000_000 or b"ALIVE" in content:
                break
    asked = address.partition("?")[0].partition("=")[2]
    return content.replace(asked.encode(), b"") if asked else content  # a refusal may repeat it


def test_a_secret_is_nowhere_for_another_session(
    alice: Visitor, visit: Callable[[], Visitor], planted: Secrets, server: Server
) -> None:
    """Through every address and every event, while runs with the secret go on, and in the log."""
    done = threading.Event()

    def go_on() -> None:
        while not done.is_set():
            alice.run(prompt=f"Tell {planted.prompt}.", method="autoregressive")

    running = threading.Thread(target=go_on)
    running.start()
    bob = visit()
    answers: dict[str, bytes] = {}
    (folder,) = server.folder.iterdir()
    listening: list[bytes] = []
    listener = threading.Thread(
        target=lambda: listening.append(
            _read(bob.http, f"/gradio_api/queue/data?session_hash={bob.session}", 8)
        )
    )
    listener.start()
    for address in _addresses(bob, folder, planted.name):
        answers[address] = _read(bob.http, address)
    for event, known in bob._events.items():
        values = bob.form(event) if known["inputs"] else []
        for extra in ({}, {"event_data": {"tokens": list(range(3))}}):
            with contextlib.suppress(RefusedError, AssertionError):
                if event in ("run", "run_1"):
                    values = bob.form(event, limit=4)
                if event == "race":
                    values = bob.form(event, limit=2)
                if event == "decode":
                    values = [None, "Hello!", "recap", 4, None]
                answers[f"{event} {extra}"] = json.dumps(bob.call(event, *values, **extra)).encode()
    done.set()
    running.join(60)
    listener.join(20)
    answers["queue"] = listening[0]
    leaks = {at: planted.found_in(content) for at, content in answers.items()}
    assert {at: found for at, found in leaks.items() if found} == {}
    assert not planted.found_in(server.log.read_bytes())
    assert sum(len(content) > 100 for content in answers.values()) > 20, "little was looked at"


def test_what_a_session_learnt_stays_there(alice: Visitor, visit: Callable[[], Visitor]) -> None:
    """A lookup of the very tokens finds entries for the one, and nothing for the other."""
    trace = json.loads(alice.export("trace"))
    asked = {"event_data": {"tokens": trace["token_ids"][:3]}}
    own = alice.call("look_up", None, **asked)[0]
    assert own["found"], "the entries are really there"
    bob = visit()
    assert "found" not in json.dumps(bob.call("look_up", None, **asked))
    bob.run(prompt="Hello!", limit=2)
    first = json.loads(bob.export("trace"))
    assert first["memory"]["start"]["entries"]["1"] == 0
    assert json.loads(alice.export("trace"))["id"] == trace["id"]


def test_a_session_is_forgotten_with_its_last_page(
    alice: Visitor, visit: Callable[[], Visitor]
) -> None:
    """Who has its name finds an empty session: no memory, no run."""
    own = alice.call("clear", None)  # says how much there is after clearing: nothing
    assert "empty" in own[0]["text"]
    alice.run(prompt="Hello!", limit=4)
    before = json.loads(alice.export("trace"))["id"]
    alice.leave()
    heir = visit()
    heir.session = alice.session

    def gone() -> bool:
        try:
            return json.loads(heir.export("trace"))["id"] != before
        except RefusedError as error:
            return "no longer on the server" in str(error)

    # Whoever listens for an answer holds the session: it ends between two looks, not under them.
    _until(gone, pause=3)
    with pytest.raises(RefusedError, match="no longer on the server"):
        heir.export("steps")


def test_routes_that_the_page_does_not_need_are_closed(visit: Callable[[], Visitor]) -> None:
    """Proxies, recordings, histories, copies of sessions: all 404."""
    http = visit().http
    closed = [
        "/monitoring", "/monitoring/summary", "/gradio_api/deep_link?session_hash=x",
        "/gradio_api/proxy=http://127.0.0.1/", "/gradio_api/file=http://127.0.0.1/",
        "/gradio_api/file=https://127.0.0.1/", "/gradio_api/runs", "/gradio_api/vibe-code",
        "/gradio_api/run-history/buckets", "/gradio_api/stream/a/b/1/playlist-file",
        "/gradio_api/custom_component/0/client/component/index.js", "/docs", "/.env", "/app.py",
    ]  # fmt: skip
    assert {address: http.get(address).status_code for address in closed} == dict.fromkeys(
        closed, 404
    )
    for address in ("/gradio_api/process_recording", "/gradio_api/component_server"):
        assert http.post(address, json={}).status_code == 404


def test_uploads_are_private_and_go_with_the_session(
    visit: Callable[[], Visitor], planted: Secrets, server: Server
) -> None:
    """Nobody else on the machine can read them; closing the tab deletes them, the other's stay."""
    one, other = visit(), visit()
    file = one.upload(planted.png, "mine.png")
    shared = one.upload(planted.png + b"tail", "ours.png")
    assert other.upload(planted.png + b"tail", "ours.png")["path"] == shared["path"]
    for visitor, picture in ((one, file), (one, shared), (other, shared)):
        visitor.call("look", picture, "demo")
    for path in server.folder.iterdir():
        assert stat.S_IMODE(path.stat().st_mode) == 0o700
    assert stat.S_IMODE(Path(file["path"]).stat().st_mode) == 0o600
    one.leave()
    one.__enter__()  # a connection that was cut and comes back within the time of grace
    time.sleep(2)
    assert Path(file["path"]).exists()
    one.leave()
    _until(lambda: not Path(file["path"]).exists())
    assert Path(shared["path"]).exists()
    other.leave()
    _until(lambda: not Path(shared["path"]).exists())
    assert visit().http.get("/").status_code == 200


def test_an_example_outlives_those_who_upload_it_again(
    visit: Callable[[], Visitor], server: Server
) -> None:
    """An example's copy and its upload are one file; it belongs to all."""
    example = ROOT / "assets" / "examples" / "scene-1.png"
    first = visit()
    file = first.upload(example.read_bytes(), example.name)
    first.call("look", file, "demo")
    marker = first.upload(example.read_bytes() + b"tail", "marker.png")
    first.call("look", marker, "demo")
    first.leave()
    _until(lambda: not Path(marker["path"]).exists())
    assert visit().http.get(f"/gradio_api/file={file['path']}").content == example.read_bytes()


def test_the_log_holds_nothing_that_a_visitor_sent(
    visit: Callable[[], Visitor], planted: Secrets, server: Server
) -> None:
    """A prompt in any wrong field makes an error, and the log says where but not what."""
    visitor = visit()
    refused: list[str] = []
    shapes = itertools.cycle(
        (planted.prompt, [planted.prompt], {planted.prompt: planted.prompt}, [[planted.prompt]])
    )
    for event in visitor._events:
        values = (
            [None, "Hello!", "recap", 4, None] if event == "decode" else visitor.form(event)
        )  # fmt: skip
        values = [2 if value == 160 else value for value in values]
        for place in range(len(values)):
            changed = [*values[:place], next(shapes), *values[place + 1 :]]
            try:
                visitor.call(event, *changed)
            except RefusedError as error:
                refused.append(str(error))
    for body in (b'{"data":["' + planted.prompt.encode(), b"\xff" + planted.prompt.encode()):
        for address in ("/gradio_api/queue/join", "/gradio_api/run/predict"):
            answer = httpx.post(server.address + address, content=body)
            assert answer.status_code >= 400
            assert "Traceback" not in answer.text
    assert len(refused) > 20, "little went wrong"
    assert not [message for message in refused if "Traceback" in message]
    assert not planted.found_in(server.log.read_bytes())
    assert "Error" in server.output, "the log says that something happened"


def test_ending_the_server_leaves_nothing_behind(planted: Secrets) -> None:
    """As a service manager ends it: exit status 0, no uploads, no secrets in the log."""
    with running_server() as server, Visitor(server.address) as visitor:
        file = visitor.upload(planted.png)
        assert Path(file["path"]).exists()
        assert server.stop() == 0
        assert list(server.folder.iterdir()) == []
        assert not planted.found_in(server.log.read_bytes())


def _until(holds: Callable[[], Any], pause: float = 0.1) -> None:
    """Wait for something that comes soon; a busy machine may take its time."""
    for _ in range(round(60 / pause)):
        if holds():
            return
        time.sleep(pause)
    raise AssertionError("it did not come about")
