"""Open the page: `python app.py`, then visit the address that it prints.

`python app.py --help` lists the options and the environment variables.
"""

from __future__ import annotations

import os
import signal
import sys
import threading

from app.folder import private_folder
from app.hosting import Host, Options, read_command_line

# Before anything heavy, so that help and mistakes come at once.
if __name__ == "__main__":
    host, options = read_command_line()
else:
    host, options = Host.from_environment(), Options()

os.environ.setdefault("GRADIO_ANALYTICS_ENABLED", "False")
# Where uploads lie; Gradio reads it when it is imported.
os.environ["GRADIO_TEMP_DIR"] = str(private_folder(os.environ.get("GRADIO_TEMP_DIR")))
if host.public:
    # A Space stands behind its platform's proxy, and nothing else can reach it: visitors have the
    # addresses that the proxy names, not all the same one. The web server reads it at its start.
    os.environ.setdefault("FORWARDED_ALLOW_IPS", "*")
if host.lends:
    import spaces  # noqa: F401  # patches torch, so it must come before it

from app.faults import explain
from app.layout import build, launch_options
from app.line import Turnstile
from app.models import ModelShelf
from recap.collector import calm_collector

shelf = ModelShelf(host=host)
turnstile = Turnstile(host.queue_length, host.stall_seconds)
demo = build(shelf, turnstile)


def _load_first() -> None:
    """Load the first model while the page is being looked at; a run waits for it in the line."""
    ticket = turnstile.join(what="the model is being loaded, which takes longer the first time")

    def note(text: str) -> None:
        turnstile.beat(ticket, preparing=bool(text))

    try:
        if turnstile.wait(ticket, lambda: False):
            shelf.get(shelf.default, note)
    except Exception as error:  # the page is up: a run tries again, and says the same
        print(f"app.py: {explain(error)}", file=sys.stderr)
    finally:
        turnstile.leave(ticket, measured=False)


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # end as with Ctrl-C: tidied up
    calm_collector()
    if host.lends:
        try:  # its weights have to be there when the first worker is forked
            shelf.get(shelf.default)
        except Exception as error:
            sys.exit(f"app.py: {explain(error)}")
    else:
        threading.Thread(target=_load_first, name="recap-load", daemon=True).start()
    demo.launch(**launch_options(host), **options.launch())
