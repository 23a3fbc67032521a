"""Visitors who speak HTTP to a server (`tests.server`) without a browser.

    with running_server() as server:
        with Visitor(server.address) as visitor:
            text = visitor.run(prompt="Describe the picture.")

A visitor does what the page does: a session of its own, a heartbeat, uploads, events by their
names. Everything stays on the loopback.
"""

from __future__ import annotations

import json
import secrets
import socket
from collections.abc import Iterator
from typing import Any

import httpx
from gradio_client.client import utils

_API = "/gradio_api"


class RefusedError(Exception):
    """The server said that an event failed; the message is what a visitor would see."""


class Visitor:
    """One browser session without a browser."""

    def __init__(self, address: str, source: str = "127.0.0.1") -> None:
        """`source`: the loopback address that this visitor comes from."""
        self.session = secrets.token_hex(8)
        self._source = source
        transport = httpx.HTTPTransport(local_address=source)
        self.http = httpx.Client(base_url=address, timeout=120, transport=transport)
        self.config: dict[str, Any] = self.http.get("/config").json()
        self._components = {c["id"]: c for c in self.config["components"]}
        self._events = {d["api_name"]: d for d in self.config["dependencies"] if d["api_name"]}
        self._heart: socket.socket | None = None

    def __enter__(self) -> Visitor:
        """Open the tab: a connection that stays for as long as it is looked at."""
        url = self.http.base_url
        self._heart = socket.create_connection(
            (url.host, url.port), 10, source_address=(self._source, 0)
        )
        request = f"GET {_API}/heartbeat/{self.session} HTTP/1.1\r\nHost: {url.host}\r\n\r\n"
        self._heart.sendall(request.encode())
        self._heart.recv(4096)
        return self

    def __exit__(self, *exc: object) -> None:
        self.leave()

    def leave(self) -> None:
        """Close the tab."""
        if self._heart is not None:
            self._heart.close()
        self.http.close()

    def upload(self, data: bytes, name: str = "picture.png") -> dict[str, Any]:
        """Send a file as the page does; what an event takes for it."""
        answer = self.http.post(f"{_API}/upload", files={"files": (name, data)})
        if answer.status_code != 200:
            raise RefusedError(f"{answer.status_code} {answer.text}")
        path = answer.json()[0]
        return {
            "path": path, "orig_name": name, "size": len(data),
            "meta": {"_type": "gradio.FileData"},
        }  # fmt: skip

    def form(self, event: str, **changes: Any) -> list[Any]:
        """The values of an event's inputs as the page shows them, changed by their elem_id.

        `recap-prompt` is `prompt`, `setting-budget` is `budget`.
        """
        values = []
        for number in self._events[event]["inputs"]:
            props = self._components[number]["props"]
            name = (props.get("elem_id") or "").removeprefix("recap-").removeprefix("setting-")
            values.append(changes.pop(name.replace("-", "_"), props.get("value")))
        assert not changes, f"{event} has no {sorted(changes)}"
        return values

    def call(self, event: str, *values: Any, **more: Any) -> list[Any]:
        """Trigger an event and wait for its last data. Raises `RefusedError`."""
        data: list[Any] = []
        for data in self.stream(event, *values, **more):  # noqa: B007
            pass
        return data

    def stream(self, event: str, *values: Any, **more: Any) -> Iterator[list[Any]]:
        """Trigger an event; its data as they come, differences put together."""
        known = self._events[event]
        body = {
            "data": list(values), "fn_index": known["id"], "session_hash": self.session,
            "event_data": None, "trigger_id": None, **more,
        }  # fmt: skip
        if known["queue"] is False:
            answer = self._post("run/predict", body)
            if answer.status_code != 200:
                raise RefusedError(answer.text)
            yield answer.json()["data"]
            return
        # Every run has a listener of its own here, under the one session.
        joined = self._post("queue/join", body)
        if joined.status_code != 200:
            raise RefusedError(joined.text)
        yield from self._listen(joined.json()["event_id"])

    def _post(self, address: str, body: dict[str, Any]) -> httpx.Response:
        """As JSON that is plain ASCII: half a surrogate pair can be sent so, as browsers do."""
        kind = {"content-type": "application/json"}
        return self.http.post(f"{_API}/{address}", content=json.dumps(body), headers=kind)

    def _listen(self, event_id: str) -> Iterator[list[Any]]:
        data: list[Any] = []
        with self.http.stream(
            "GET", f"{_API}/queue/data", params={"session_hash": self.session}
        ) as lines:
            for line in lines.iter_lines():
                if not line.startswith("data:"):
                    continue
                message = json.loads(line[5:])
                if message["msg"] == "close_stream":
                    return
                if message["msg"] == "unexpected_error":
                    raise RefusedError(message["message"])
                if message.get("event_id") != event_id:
                    continue
                if message["msg"] == "process_generating":
                    data = _merge(data, message["output"]["data"])
                    yield data
                elif message["msg"] == "process_completed":
                    if not message["success"]:
                        raise RefusedError(str(message["output"].get("error")))
                    output = message["output"].get("data")
                    if output:
                        yield output if not data or not _is_diff(output) else _merge(data, output)
                    return

    def run(self, **changes: Any) -> dict[str, Any]:
        """Run what the form says; the view's last value."""
        *_, last = self.views(**changes)
        return last

    def views(self, **changes: Any) -> Iterator[dict[str, Any]]:
        """Run what the form says; the view's values."""
        for (view,) in self.stream("run", *self.form("run", **changes)):
            if isinstance(view, dict) and "steps" in view:
                yield view
        if refusal := self.settled()[0]:
            raise RefusedError(refusal)

    def settled(self) -> tuple[str, str]:
        """What is said behind a run: why it could not begin, and what the memory holds."""
        notice, size = self.call("settled", None)
        return notice["text"], size["text"]

    def export(self, kind: str) -> str:
        """The shown run as a file's text."""
        event = {"trace": "export", "steps": "export_1", "replay": "export_2"}[kind]
        return self.call(event, None)[0]["text"]


def _is_diff(output: list[Any]) -> bool:
    return all(
        isinstance(part, list) and all(isinstance(e, list) and len(e) == 3 for e in part)
        for part in output
    )


def _merge(before: list[Any], output: list[Any]) -> list[Any]:
    if not before:
        return output
    return [
        utils.apply_diff(old, edits) if isinstance(edits, list) else edits
        for old, edits in zip(before, output, strict=True)
    ]


def text_of(view: dict[str, Any]) -> list[int]:
    """The token ids that a finished view shows."""
    first = json.loads(view["first"])["token"] if view["first"] else None
    emitted = [e[0] for step in view["steps"] for e in json.loads(step)["e"]]
    return ([first] if first is not None else []) + emitted
