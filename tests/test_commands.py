"""The README's commands are the ones that CI runs, and the others can be run as they stand."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from recap.cli import _parser

ROOT = Path(__file__).resolve().parents[1]


def fenced() -> list[str]:
    """The commands in the README's shell blocks, one a line."""
    blocks = re.findall(r"^```sh\n(.*?)^```", (ROOT / "README.md").read_text("utf-8"), re.S | re.M)
    lines = "".join(blocks).replace("\\\n", " ").splitlines()
    return [line for line in lines if line.strip() and not line.startswith("#")]


def ci() -> list[list[str]]:
    """The commands of .ci/run as words; `-q` only makes them quieter."""
    lines = (ROOT / ".ci" / "run").read_text("utf-8").splitlines()
    words = [shlex.split(line, comments=True) for line in lines if "(" not in line]
    return [[word for word in command if word != "-q"] for command in words]


def test_ci_runs_the_readmes_test_command_step_by_step():
    """The second of the two commands."""
    command = next(line for line in fenced() if "pytest" in line)
    steps = [shlex.split(step) for step in command.split("&&")]
    ran = ci()
    places = [ran.index(step) for step in steps]
    assert len(steps) == 3
    assert places == sorted(places)


def test_ci_runs_the_readmes_app_command():
    """The first: its packages are among those of the second, and the tests start `app.py`."""
    command = next(line for line in fenced() if line.endswith("app.py"))
    venv, install, start = (shlex.split(step) for step in command.split("&&"))
    assert venv in ci()
    assert install == [".venv/bin/pip", "install", "-r", "requirements.txt"]
    assert "-r requirements.txt" in (ROOT / "requirements-dev.txt").read_text("utf-8")
    assert start == [".venv/bin/python", "app.py"]
    assert '[sys.executable, *(command or ("app.py",))]' in (
        ROOT / "tests" / "server.py"
    ).read_text("utf-8")
    assert [".venv/bin/python", "-m", "tests.soak", "--sessions", "8", "--minutes", "2"] in ci()


def test_a_fork_runs_the_same():
    """GitHub's workflow has one command, and it is this script."""
    text = (ROOT / ".github" / "workflows" / "ci.yml").read_text("utf-8")
    assert re.findall(r"\brun: *(.*)", text) == ["bash .ci/run"]


@pytest.mark.parametrize("line", [line for line in fenced() if line.startswith("python -m recap ")])
def test_the_command_lines_examples_parse(line):
    """With the parser itself; the pictures that they name are there."""
    words = shlex.split(line, comments=True)[3:]
    asked = _parser().parse_args(words)
    if getattr(asked, "image", None):
        assert (ROOT / asked.image).is_file()


def test_the_lock_file_holds_what_is_asked_for():
    """Every pin of requirements.txt, each package with digests, no address of any index."""
    text = (ROOT / "requirements.lock").read_text("utf-8")
    pins = re.findall(r"^([\w-]+==[\w.]+)$", (ROOT / "requirements.txt").read_text("utf-8"), re.M)
    locked = re.findall(r"^([\w.-]+==[\w.]+)", text, re.M)
    assert len(pins) > 8
    assert set(pins) <= set(locked)
    entries = re.split(r"^(?=[\w.-]+==)", text, flags=re.M)[1:]
    assert all("--hash=sha256:" in entry for entry in entries)
    assert "://" not in text
    # Without pip's help, so that nothing is installed for it; with every package accounted for.
    words = " ".join((ROOT / "README.md").read_text("utf-8").split())
    assert "`pipx run pip-audit --strict --disable-pip -r requirements.lock`" in words
