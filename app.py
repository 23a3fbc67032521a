"""Open the page: `python app.py`, then visit the address that it prints.

Environment: `RECAP_MODEL` names the model to load first; `GRADIO_SERVER_NAME` and
`GRADIO_SERVER_PORT` say where to listen (127.0.0.1 and the first free port from 7860).
"""

from __future__ import annotations

import gc
import os
import signal
import threading

from app.folder import private_folder

os.environ.setdefault("GRADIO_ANALYTICS_ENABLED", "False")
# Where uploads lie; Gradio reads it when it is imported.
os.environ["GRADIO_TEMP_DIR"] = str(private_folder(os.environ.get("GRADIO_TEMP_DIR")))

from app.layout import build, launch_options
from app.models import ModelShelf, default_model
from app.runner import Turnstile

shelf, turnstile = ModelShelf(), Turnstile()
demo = build(shelf, turnstile)


def _load_first() -> None:
    """Load the first model while the page is being looked at; a run waits for it in the line."""
    ticket = turnstile.join()
    try:
        if turnstile.wait(ticket, lambda: False):
            shelf.get(default_model())
    finally:
        turnstile.leave(ticket)


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # end as with Ctrl-C: tidied up
    gc.freeze()  # the libraries' own objects need not be looked through again and again
    threading.Thread(target=_load_first, name="recap-load", daemon=True).start()
    demo.launch(**launch_options())
