"""Uploads and the disk, on the real server: how much they take, who is told, what is left."""

from __future__ import annotations

import io
import json
import resource
import socket
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from PIL import Image

from app.events import GONE
from app.faults import DISK_FULL
from tests.server import Server, running_server
from tests.visitor import RefusedError, Visitor

#: All uploads together, in bytes.
MOST = 1_000_000


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    """A small disk, and a model that takes its time where the prompt says "slow"."""
    with running_server(
        "-m", "tests.simulated", RECAP_UPLOADS_MB="1", RECAP_GRACE_SECONDS="1"
    ) as running:
        yield running


def _picture() -> bytes:
    """About 280 KB that nobody else has: three fit, four do not."""
    out = io.BytesIO()
    Image.effect_noise((530, 530), 90).save(out, "PNG")
    assert MOST / 4 < len(out.getvalue()) < MOST / 3
    return out.getvalue()


def _size(server: Server) -> int:
    """Bytes of everything that came from visitors."""
    return sum(path.stat().st_size for path in _files(server) if path.stat().st_size > 200_000)


def _files(server: Server) -> list[Path]:
    return [path for path in server.folder.rglob("*") if path.is_file()]


def _loose(server: Server) -> list[Path]:
    """Files that have not arrived under their own names."""
    return [path for path in server.folder.iterdir() if path.is_file()]


def test_uploads_never_take_more_than_the_host_gives(
    server: Server, visit: Callable[[], Visitor]
) -> None:
    """The oldest go, but none that a job needs; who lost one is told at the next run."""
    one, two, other = visit(), visit(), visit()
    mine, waiting = one.upload(_picture()), two.upload(_picture())
    jobs = []
    for visitor, picture in ((one, mine), (two, waiting)):  # the second one waits for the first
        jobs.append(visitor.views(prompt="slow run", picture=picture, method="autoregressive"))
        next(jobs[-1])
    for _ in range(6):
        newest = other.upload(_picture())
        assert _size(server) <= MOST
    assert all(Path(file["path"]).exists() for file in (mine, waiting, newest))
    with pytest.raises(RefusedError, match="507 There is no room"):
        other.upload(_picture() * 2)
    for visitor, views in zip((one, two), jobs, strict=True):
        visitor.call("stop", None)
        assert [*views][-1]["status"] == "done"
    for _ in range(4):
        other.upload(_picture())
    assert not Path(mine["path"]).exists()
    with pytest.raises(RefusedError) as refused:
        one.run(prompt="hello", picture=mine, limit=2)
    assert str(refused.value) == GONE
    with pytest.raises(RefusedError) as refused:
        one.call("decode", mine, "hello", "recap", 2, None)
    assert str(refused.value) == GONE
    view = one.run(prompt="hello", picture=one.upload(_picture()), limit=2)
    assert json.loads(view["end"])["message"] is None
    assert "Traceback" not in server.output


def test_a_full_disk_while_a_picture_arrives(server: Server, visit: Callable[[], Visitor]) -> None:
    """The system itself refuses to write on: words, nothing half-written, no harm to others."""
    one, other = visit(), visit()
    kept = other.upload(_picture())
    before = {*_files(server)}
    limits = resource.prlimit(server.process.pid, resource.RLIMIT_FSIZE)
    data = _picture()
    try:
        for most in (100_000, len(data) // 2, len(data) - 1):  # the last byte does not fit, either
            resource.prlimit(server.process.pid, resource.RLIMIT_FSIZE, (most, limits[1]))
            with pytest.raises(RefusedError) as refused:
                one.upload(data)
            assert str(refused.value) == f"507 {DISK_FULL}"
        assert before >= {*_files(server)}
        assert Path(kept["path"]).exists()
        view = other.run(prompt="hello", picture=kept, limit=2)
        assert json.loads(view["end"])["message"] is None
        for kind in ("trace", "steps", "replay"):
            assert other.export(kind)
    finally:
        resource.prlimit(server.process.pid, resource.RLIMIT_FSIZE, limits)
    view = one.run(prompt="hello", picture=one.upload(_picture()), limit=2)
    assert json.loads(view["end"])["message"] is None
    assert "Error" not in server.output


def test_an_upload_that_is_broken_off_leaves_nothing(
    server: Server, visit: Callable[[], Visitor]
) -> None:
    """The visitor hangs up in the middle of it."""
    data = _picture()
    url = visit().http.base_url
    with socket.create_connection((url.host, url.port)) as line:
        head = (
            f"POST /gradio_api/upload HTTP/1.1\r\nHost: {url.host}\r\n"
            f"Content-Type: multipart/form-data; boundary=x\r\nContent-Length: {len(data)}\r\n\r\n"
            '--x\r\nContent-Disposition: form-data; name="files"; filename="a.png"\r\n\r\n'
        )
        line.sendall(head.encode() + data[: len(data) // 2])
        _until(lambda: _loose(server))
    _until(lambda: not _loose(server))
    assert "Error" not in server.output


def _until(holds: Callable[[], object]) -> None:
    """Wait for something that comes soon; a busy machine may take its time."""
    for _ in range(600):
        if holds():
            return
        time.sleep(0.1)
    raise AssertionError("it did not come about")
