"""Visitors over real HTTP: who vanishes, who reads slowly, who is one too many."""

import json
import socket
import time
import urllib.parse
import urllib.request
from collections.abc import Iterator

import pytest

from tests.server import running_server
from tests.visitor import RefusedError
from tests.visitor import Visitor as Page

#: Each pass takes a twentieth of a second, so that this run would take minutes.
LONG = ("slow run", 4000)


@pytest.fixture(scope="module")
def server():
    with running_server(
        "-m", "tests.simulated", RECAP_MAX_NEW_TOKENS="4000", RECAP_QUEUE_LENGTH="2"
    ) as running:
        yield running.address


class Visitor:
    """A browser's way to the server, over plain sockets: join the queue, then listen."""

    def __init__(self, address: str, name: str) -> None:
        self.address, self.name = address, name
        self.where = urllib.parse.urlsplit(address)
        self.socket: socket.socket | None = None

    def post(self, path: str, data: dict) -> dict:
        request = urllib.request.Request(
            self.address + path, json.dumps(data).encode(), {"Content-Type": "application/json"}
        )
        with urllib.request.urlopen(request, timeout=30) as answer:
            return json.load(answer)

    def ask(self, prompt: str, tokens: int) -> None:
        """Run, as the page's endpoint for programs has it."""
        with urllib.request.urlopen(self.address + "/config", timeout=30) as answer:
            config = json.load(answer)
        number = next(d["id"] for d in config["dependencies"] if d["api_name"] == "decode")
        self.post(
            "/gradio_api/queue/join",
            {
                "data": [None, prompt, "autoregressive", tokens, None],
                "fn_index": number,
                "session_hash": self.name,
            },
        )
        self.socket = socket.create_connection((self.where.hostname, self.where.port), timeout=60)
        self.socket.sendall(
            f"GET /gradio_api/queue/data?session_hash={self.name} HTTP/1.1\r\n"
            f"Host: {self.where.netloc}\r\nAccept: text/event-stream\r\n\r\n".encode()
        )

    def hear(self) -> Iterator[dict]:
        """The messages as they come; values are whole at first and differences then."""
        buffer = b""
        while chunk := self.socket.recv(65536):
            buffer += chunk
            *lines, buffer = buffer.split(b"\n")
            for line in lines:
                if line.startswith(b"data:"):
                    yield json.loads(line[5:])

    def hear_text(self) -> None:
        """Listen until the answer grows."""
        seen = 0
        for message in self.hear():
            seen += message["msg"] == "process_generating"
            if seen > 8:
                return

    def finish(self) -> dict:
        """Listen to the end; the last message."""
        for message in self.hear():
            if message["msg"] in ("process_completed", "unexpected_error"):
                return message
        raise AssertionError("the server closed the stream")

    def vanish(self) -> None:
        self.socket.close()


def test_a_visitor_who_vanishes_gives_the_device_back(server):
    """The long run is ended, or the next one could not come to its end here at all."""
    gone, next_one = Visitor(server, "gone"), Visitor(server, "next")
    gone.ask(*LONG)
    gone.hear_text()
    next_one.ask("hello", 8)
    started = time.monotonic()
    gone.vanish()
    message = next_one.finish()
    print(f"the next visitor's run was over {time.monotonic() - started:.2f} s later")
    assert message["success"], message


def test_a_visitor_who_vanishes_from_the_line_leaves_it(server):
    """Who waited behind them moves up, and the line has room again."""
    first, second, third = (Visitor(server, f"line-{n}") for n in range(3))
    first.ask(*LONG)
    first.hear_text()
    second.ask(*LONG)
    third.ask("hello", 8)
    next(m for m in second.hear() if m["msg"] == "process_generating")
    next(m for m in third.hear() if m["msg"] == "process_generating")
    refused = Visitor(server, "refused")
    refused.ask("hello", 8)
    message = refused.finish()
    assert not message["success"]
    assert "Too many are waiting: 2 runs" in message["output"]["error"]
    second.vanish()
    first.vanish()
    assert third.finish()["success"]


def test_a_visitor_who_does_not_read_holds_up_nobody(server):
    """Their run goes on at its own pace while nothing of it is read, and the next one gets on."""
    slow, next_one = Visitor(server, "slow"), Visitor(server, "after")
    slow.ask("hello", 600)  # and never a byte is read
    next_one.ask("hello", 8)
    assert next_one.finish()["success"]
    slow.vanish()


def test_a_fault_reaches_a_program_in_words(server):
    visitor = Visitor(server, "program")
    visitor.ask("memory", 40)
    message = visitor.finish()
    assert not message["success"]
    assert message["output"]["error"].startswith("Out of memory.")
    visitor = Visitor(server, "program-again")
    visitor.ask("hello", 8)
    assert visitor.finish()["success"]


def test_more_tokens_than_the_host_gives_are_refused(server):
    visitor = Visitor(server, "greedy")
    visitor.ask("hello", 4001)
    assert "between 1 and 4000" in visitor.finish()["output"]["error"]


@pytest.fixture(scope="module")
def small():
    """A server that keeps two sessions."""
    with running_server("-m", "tests.simulated", RECAP_SESSIONS="2") as server:
        yield server.address


def test_calls_without_a_connection_push_no_page_out(small):
    """As `curl` makes them, each in a session of its own: more of them than sessions are kept."""
    with Page(small) as page:
        page.run(prompt="hello", limit=4)
        own = json.loads(page.export("trace"))["id"]
        program = Visitor(small, "")
        for _ in range(4):
            call = {"data": [None, "hello", "autoregressive", 4, None]}
            event = program.post("/gradio_api/call/decode", call)["event_id"]
            with urllib.request.urlopen(f"{small}/gradio_api/call/decode/{event}") as answer:
                assert b"event: complete" in answer.read()
        assert json.loads(page.export("trace"))["id"] == own


def test_who_had_to_make_room_is_told(small):
    """The session used longest ago goes; its page is not given another run for its own."""
    with Page(small) as first, Page(small) as second, Page(small) as third:
        for page in (first, second, third):
            page.run(prompt="hello", limit=4)
            assert "anew" not in page.settled()[1]
        for kind in ("trace", "replay"):
            with pytest.raises(RefusedError, match="no longer on the server"):
                first.export(kind)
        json.loads(third.export("trace"))
        first.run(prompt="hello", limit=4)
        assert "make room for others" in first.settled()[1]
        assert json.loads(first.export("trace"))["prompt"] == "hello"
        first.run(prompt="hello", limit=4)
        (cleared,) = first.call("clear", None)
        assert cleared["text"] == "The memory is empty."


def test_only_who_can_log_in_comes_in(tmp_path):
    """An account from a file; the password is on no command line."""
    accounts = tmp_path / "accounts"
    accounts.write_text("ada:lovelace\n", "utf-8")
    command = ("app.py", "--auth-file", str(accounts))
    with running_server(*command, RECAP_MODEL="tiny-random") as server:
        with pytest.raises(urllib.error.HTTPError) as refused:
            urllib.request.urlopen(server.address + "/config", timeout=30)
        assert refused.value.code == 401
        with pytest.raises(urllib.error.HTTPError, match="400"):
            _log_in(server.address, "wrong")
        assert _log_in(server.address, "lovelace") == 200


def _log_in(address, password):
    body = urllib.parse.urlencode({"username": "ada", "password": password}).encode()
    with urllib.request.urlopen(address + "/login", body, timeout=30) as answer:
        return answer.status
