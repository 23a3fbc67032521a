"""The endpoint for programs, without a server."""

import gradio as gr
import pytest
from PIL import Image

from app.api import endpoint
from recap.decoding import Run
from recap.trace import Trace


@pytest.fixture
def decode(shelf, turnstile):
    return endpoint(shelf, turnstile)


def test_text_grows_and_ends_with_the_trace(decode, target):
    expected = Run(target, target.prepare("Say something."), max_new_tokens=40).finish_all()
    updates = list(decode(None, "Say something.", max_new_tokens=40))
    assert all(expected.text.startswith(update["text"]) for update in updates)
    assert updates[-1]["text"] == expected.text
    assert Trace.from_json(updates[-1]["trace"]).token_ids == expected.token_ids


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"prompt": " "}, "prompt"),
        ({"prompt": "x", "method": "magic"}, "must be one of"),
        ({"prompt": "x", "settings": {"budget": -1}}, "budget"),
        ({"prompt": "x", "max_new_tokens": 0}, "max_new_tokens"),
    ],
)
def test_bad_requests_say_what_is_wrong(decode, arguments, words):
    with pytest.raises(gr.Error, match=words):
        list(decode(None, **arguments))


def test_a_path_on_the_server_is_no_upload(decode, tmp_path):
    """A client names only files that it has sent."""
    secret = tmp_path / "secret.png"
    Image.new("RGB", (64, 64)).save(secret)
    with pytest.raises(gr.Error, match="uploaded"):
        list(decode({"path": str(secret)}, "What is this?"))
