"""How much disk uploads may take, which of them goes first, and what a full disk leaves behind."""

import asyncio
import errno
import os
import tempfile
import time

import gradio.route_utils
import pytest
from fastapi.testclient import TestClient
from gradio.routes import App

from app.assets import examples
from app.events import GONE, checked_picture
from app.faults import DISK_FULL, explain
from app.guard import Guard
from app.hosting import Host
from app.layout import build, launch_options
from app.uploads import Uploads, note_uploads, nothing_left
from recap.errors import ImageError

#: What a file of one byte takes: a block, and one for its folder.
SMALL = 2 * 4096


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setattr("app.uploads.get_upload_folder", lambda: str(tmp_path))
    return tmp_path


@pytest.fixture
def arrive(folder):
    """A file that was last used so many seconds ago."""

    def make(name, seconds, content=b"x"):
        path = folder / f"digest-{name}-{seconds}" / name
        path.parent.mkdir()
        path.write_bytes(content)
        then = path.stat().st_mtime - seconds
        os.utime(path, (then, then))
        return path

    return make


def test_the_oldest_go_where_there_is_no_room(arrive):
    """As few as are needed, with their folders; what is still on its way counts, too."""
    uploads = Uploads()
    files = [arrive(f"{n}.png", seconds) for n, seconds in enumerate((10, 30, 20))]
    assert uploads.reserve(1, 4 * SMALL)
    assert all(path.exists() for path in files)
    assert uploads.reserve(1, 4 * SMALL)  # the first one has not arrived yet
    assert [path.exists() for path in files] == [True, False, True]
    assert not files[1].parent.exists()
    uploads.release(1)
    assert uploads.reserve(4097, 4 * SMALL)  # two blocks and a folder: one file more must go
    assert [path.exists() for path in files] == [True, False, False]


def test_what_a_job_needs_stays(arrive, folder):
    """Whatever its age; and where nothing else is left, there is no room for a while."""
    uploads = Uploads()
    oldest, other = arrive("a.png", 90), arrive("b.png", 5)
    with uploads.needed(str(oldest)), uploads.needed(oldest), uploads.needed(None):
        with uploads.needed(oldest):
            pass
        assert uploads.reserve(1, 2 * SMALL)
        assert oldest.exists()
        assert not other.exists()
        assert not uploads.reserve(1, 2 * SMALL)
        uploads.sweep(before=2**40)
        assert oldest.exists()
    assert uploads.reserve(1, 2 * SMALL)
    assert not oldest.exists()


@pytest.mark.skipif(not examples(), reason="no examples")
def test_an_example_is_nobodys_to_drop(arrive):
    """The page shows it to all; a file of its name with another content is an upload."""
    image = next(example.image for example in examples() if example.image)
    shown = arrive(image.name, 99, image.read_bytes())
    named_like_it = arrive(image.name, 98)
    uploads = Uploads()
    assert uploads.reserve(1, SMALL)  # it does not count either
    uploads.sweep(before=2**40)
    assert shown.exists()
    assert not named_like_it.exists()


def test_age_is_counted_from_the_last_use(arrive):
    """And a file that went so is nobody's any more."""
    uploads = Uploads()
    old, new = arrive("a.png", 4000), arrive("b.png", 10)
    uploads.use("session", str(old))
    uploads.sweep(before=new.stat().st_mtime - 1)
    assert not old.exists()
    assert new.exists()
    old.parent.mkdir()
    old.write_bytes(b"of somebody else, later")
    uploads.end("session")
    assert old.exists()


@pytest.mark.parametrize("name", ["", ".", "\0", "x" * 9000, "../../etc/passwd", 5, None, ["x"]])
def test_any_name_can_be_asked_for(folder, name):
    """What is no upload is not noted, and nothing breaks."""
    uploads = Uploads()
    path = f"{folder}/{name}" if isinstance(name, str) else name
    uploads.use("session", path)
    uploads.end("session")
    with uploads.needed(path):
        pass


def test_a_picture_that_went_is_asked_for_again(arrive):
    """In words; so is one whose name no disk can hold."""
    path = arrive("a.png", 1)
    path.unlink()
    for gone in (str(path), f"{path}{'x' * 9000}"):
        with pytest.raises(ImageError) as refused:
            checked_picture(gone)
        assert str(refused.value) == GONE


def test_half_an_upload_does_not_stay(folder, monkeypatch):
    """Whatever ended it; what has arrived under its own name does."""
    monkeypatch.setattr(gradio.route_utils, "NamedTemporaryFile", tempfile.NamedTemporaryFile)
    note_uploads()
    begin = gradio.route_utils.NamedTemporaryFile

    def upload():
        with nothing_left():
            half, whole = (begin(delete=False, dir=folder) for _ in range(2))
            half.write(b"half of it")
            os.rename(whole.name, folder / "whole.png")
            raise OSError(errno.ENOSPC, "No space left on device")

    with pytest.raises(OSError, match="No space"):
        upload()
    assert [path.name for path in folder.iterdir()] == ["whole.png"]
    other = begin(delete=False, dir=folder)  # outside of an upload it is anybody's
    other.close()
    assert os.path.exists(other.name)


def _ask(app, parts=3, **limits):
    """Upload through the guard; (status, words, how much of the body was read)."""
    guard = Guard(app, max_file=10**6, all_files=limits.get("all_files", 10**6), grace=1)
    scope = {
        "type": "http", "method": "POST", "path": "/gradio_api/upload",
        "headers": [(b"content-length", b"9000")],
    }  # fmt: skip
    coming = [{"type": "http.request", "more_body": n > 0} for n in reversed(range(parts))]
    sent = []

    async def receive():
        if not coming:
            await asyncio.sleep(3600)  # as a server does behind the last part
        return coming.pop(0)

    async def send(message):
        sent.append(message)

    asyncio.run(asyncio.wait_for(guard(scope, receive, send), 60))
    return sent[0]["status"], sent[1]["body"].decode(), parts - len(coming)


@pytest.mark.parametrize("reads", [1, 2, 3])
@pytest.mark.parametrize("kind", [errno.ENOSPC, errno.EDQUOT, errno.EFBIG])
def test_a_full_disk_is_told_in_words(folder, kind, reads):
    """Once all has come: a browser that still sends would not hear them, nor would more come."""

    async def full(scope, receive, send):
        for _ in range(reads):
            await receive()
        raise OSError(kind, os.strerror(kind), str(folder))

    assert _ask(full) == (507, DISK_FULL, 3)
    assert explain(OSError(kind, os.strerror(kind), str(folder))) == DISK_FULL


def test_another_error_is_left_to_the_server(folder):
    """It is no matter of room."""

    async def broken(scope, receive, send):
        raise OSError(errno.EIO, "Input/output error")

    with pytest.raises(OSError, match="Input"):
        _ask(broken)


def test_where_there_is_no_room_nothing_is_read(folder):
    """The words say what it is that takes the room."""

    async def store(scope, receive, send):
        raise AssertionError(f"it was let in: {await receive()}")

    status, words, read = _ask(store, all_files=9000)
    assert (status, read) == (507, 3)
    assert "still need" in words


def test_who_may_not_come_in_takes_nobodys_room(arrive):
    """Gradio asks for the account before it reads a byte."""

    async def refuse(scope, receive, send):
        await send({"type": "http.response.start", "status": 401})
        await send({"type": "http.response.body", "body": b"Not authenticated"})

    async def store(scope, receive, send):
        await receive()
        await send({"type": "http.response.start", "status": 200})
        await send({"type": "http.response.body", "body": b"[]"})

    path = arrive("a.png", 9)
    assert _ask(refuse, all_files=3 * SMALL)[0] == 401
    assert path.exists()
    for _ in range(3):  # each gives its room back
        assert _ask(store, all_files=2 * SMALL)[0] == 200
    assert not path.exists()


def test_the_server_tidies_up_by_itself(tmp_path, monkeypatch, shelf, turnstile):
    """In rounds, for as long as it runs; Gradio's own lists forget what is gone."""
    monkeypatch.setenv("GRADIO_TEMP_DIR", str(tmp_path))
    monkeypatch.setattr("app.guard._UPLOAD_ROUND", 0.05)
    page = build(shelf, turnstile)
    app = App.create_app(page, app_kwargs=launch_options(Host())["app_kwargs"])
    old, new = (tmp_path / name / "picture.png" for name in ("old", "new"))
    for path in (old, new):
        path.parent.mkdir()
        path.write_bytes(b"x")
        page.upload_file_set.add(str(path))
    then = time.time() - 3700
    os.utime(old, (then, then))
    with TestClient(app):
        for _ in range(600):
            if page.upload_file_set == {str(new)}:
                break
            time.sleep(0.05)
    assert page.upload_file_set == {str(new)}
    assert not old.parent.exists()
    assert new.exists()
