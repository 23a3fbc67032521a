"""How this app is hosted: one frozen object, read from the environment and the command line.

    host, options = read_command_line()      # exits with one line that names what is wrong
    host.max_new_tokens, options.port

Every field of `Host` is an environment variable, `RECAP_` and its name in capitals; `python app.py
--help` lists them. Nothing heavy is imported here, so that help and mistakes come at once.
"""

from __future__ import annotations

import argparse
import os
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, NoReturn

from recap.errors import SettingsError

PREFIX = "RECAP_"


def _text(default: str, help: str, choices: tuple[str, ...] = ()) -> Any:
    return field(default=default, metadata={"help": help, "choices": choices})


def _number(default: int, low: int, high: int, help: str) -> Any:
    return field(default=default, metadata={"help": help, "range": (low, high)})


@dataclass(frozen=True)
class Host:
    """What a host decides: the model, where it runs, and what one visitor may take.

    Raises `SettingsError`, which names the variable, for a value out of range.
    """

    model: str = _text("", "Model to start with; empty: the bundled one.")
    device: str = _text("auto", "auto, cpu, cuda, cuda:1 or mps.")
    dtype: str = _text(
        "auto",
        "Number format of the weights.",
        ("auto", "float32", "bfloat16", "float16", "float64"),
    )
    quantize: str = _text("", "4bit or 8bit weights; needs bitsandbytes.", ("", "4bit", "8bit"))
    max_pixels: int = _number(
        0, 0, 64_000_000, "Pixels that the model sees of a picture; 0: as many as it likes."
    )
    max_new_tokens: int = _number(1024, 1, 32_768, "Most new tokens of one run.")
    max_prompt_tokens: int = _number(
        32_768, 16, 1_048_576, "Longest prompt in tokens, those of its picture included."
    )
    max_file_mb: int = _number(
        40, 1, 200, "Largest upload, and largest recording of one run, in MB."
    )
    uploads_mb: int = _number(
        512, 1, 1_000_000, "Disk that all uploads may take together, in MB; the oldest go."
    )
    queue_length: int = _number(32, 1, 1000, "Most runs that may wait.")
    session_mb: int = _number(
        64, 1, 65_536, "Memory that one visitor's predictions may take, in MB."
    )
    traces_mb: int = _number(
        2048, 1, 1_000_000, "Memory that the runs shown take together, in MB; the oldest go."
    )
    sessions: int = _number(128, 1, 10_000, "Visitors whose memories are kept; the oldest go.")
    grace_seconds: int = _number(
        60, 1, 86_400, "How long a visitor's session outlives its last open page."
    )
    stall_seconds: int = _number(60, 1, 3600, "From when on a step is called stuck.")
    gpu_seconds: int = _number(120, 10, 600, "Longest call on a GPU lent by ZeroGPU.")

    def __post_init__(self) -> None:
        for spec in fields(self):
            value, name = getattr(self, spec.name), variable(spec.name)
            low, high = spec.metadata.get("range", (0, 0))
            choices = spec.metadata.get("choices")
            if high and not (type(value) is int and low <= value <= high):
                raise SettingsError(name, f"must be a whole number from {low} to {high}, "
                                          f"got {value!r}")  # fmt: skip
            if choices and value not in choices:
                shown = ", ".join(choice or "(empty)" for choice in choices)
                raise SettingsError(name, f"must be one of {shown}, got {value!r}")
        if self.device not in ("auto", "cpu", "mps", "cuda") and not (
            self.device.startswith("cuda:") and self.device[5:].isdigit()
        ):
            raise SettingsError(
                variable("device"), f"must be auto, cpu, cuda, cuda:N or mps, got {self.device!r}"
            )

    @classmethod
    def from_environment(cls, environment: Mapping[str, str] | None = None) -> Host:
        """The host that the environment describes; what is not set there has its default.

        Raises `SettingsError`, which names the variable.
        """
        environment = os.environ if environment is None else environment
        given: dict[str, Any] = {}
        for spec in fields(cls):
            text = environment.get(variable(spec.name), "").strip()
            if text:
                given[spec.name] = _whole(spec.name, text) if "range" in spec.metadata else text
        return cls(**given)

    @property
    def public(self) -> bool:
        """Whether this is a Space, whose disk is not its visitors' to fill."""
        return "SPACE_ID" in os.environ

    @property
    def lends(self) -> bool:
        """Whether a GPU is lent for each call, as ZeroGPU does it."""
        return os.environ.get("SPACES_ZERO_GPU", "").lower() in ("1", "t", "true")


def variable(name: str) -> str:
    """The environment variable behind a field."""
    return PREFIX + name.upper()


def _whole(name: str, text: str) -> int:
    try:
        return int(text.replace("_", ""))
    except ValueError:
        raise SettingsError(variable(name), f"must be a whole number, got {text!r}") from None


@dataclass(frozen=True)
class Options:
    """The command line: where to listen, and who may come in. None leaves it to Gradio."""

    host: str | None = None
    port: int | None = None
    share: bool = False
    auth: tuple[tuple[str, str], ...] = ()

    def launch(self) -> dict[str, Any]:
        """As arguments of `launch`."""
        return {
            "server_name": self.host,
            "server_port": self.port,
            "share": self.share,
            "auth": list(self.auth) or None,
        }


def read_command_line(arguments: Sequence[str] | None = None) -> tuple[Host, Options]:
    """(host, options) of this process. Bad ones end it with one line and status 2."""
    parser = _Parser(
        prog="python app.py",
        description="Open the RECAP visualizer.",
        epilog=_variables(),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--host", help="address to listen on (default: 127.0.0.1; 0.0.0.0: all)")
    parser.add_argument(
        "--port", type=int, help="port to listen on (default: the first free one from 7860)"
    )
    parser.add_argument(
        "--share", action="store_true", help="also a public address, by way of Gradio's tunnel"
    )
    parser.add_argument(
        "--auth", action="append", default=[], metavar="USER:PASSWORD",
        help="ask visitors to log in; may be repeated. Others on this machine can read it: "
        "prefer --auth-file or RECAP_AUTH",
    )  # fmt: skip
    parser.add_argument("--auth-file", metavar="FILE", help="a file with one USER:PASSWORD a line")
    given = parser.parse_args(arguments)
    try:
        if given.port is not None and not 0 < given.port < 65_536:
            raise SettingsError("--port", f"must be from 1 to 65535, got {given.port}")
        auth = tuple(_accounts(given.auth, given.auth_file, os.environ.get("RECAP_AUTH", "")))
        return Host.from_environment(), Options(given.host, given.port, given.share, auth)
    except SettingsError as error:
        parser.error(str(error))


class _Parser(argparse.ArgumentParser):
    """Bad arguments end with one line, without the usage before it."""

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"app.py: {message} (see python app.py --help)\n")


def _accounts(given: Sequence[str], path: str | None, variables: str) -> list[tuple[str, str]]:
    """Accounts of the command line, else of the file, else of `RECAP_AUTH`."""
    source, lines = "--auth", list(given)
    if not lines and path:
        try:
            source, lines = path, Path(path).read_text("utf-8").splitlines()
        except (OSError, UnicodeDecodeError) as error:
            raise SettingsError("--auth-file", f"cannot be read ({error})") from None
        if not any(line.strip() for line in lines):
            raise SettingsError("--auth-file", f"{path} holds no account")
    if not lines and variables:
        source, lines = "RECAP_AUTH", variables.splitlines()
    accounts = []
    for line in lines:
        user, colon, password = line.strip().partition(":")
        if not line.strip():
            continue
        if not (user and colon and password):  # the line itself may be a password: never shown
            raise SettingsError(source, "must be USER:PASSWORD, one account a line")
        accounts.append((user, password))
    return accounts


def _variables() -> str:
    """The help on environment variables, from the fields themselves."""
    lines = ["environment variables:"]
    for spec in fields(Host):
        default = spec.default if spec.default != "" else "empty"
        words = f"{spec.metadata['help']} Default: {default}."
        lines.append(f"  {variable(spec.name)}")
        lines += textwrap.wrap(words, 74, initial_indent=" " * 6, subsequent_indent=" " * 6)
    lines.append("  RECAP_AUTH")
    lines.append("      Like --auth, one account a line; not in the process list.")
    lines.append("  GRADIO_SERVER_NAME, GRADIO_SERVER_PORT, GRADIO_ROOT_PATH, ...")
    lines.append("      Gradio's own; --host and --port go before them.")
    return "\n".join(lines)
