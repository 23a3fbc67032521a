"""What a host can set, and what a Space finds in this folder."""

import os
import re
import subprocess
import sys
from dataclasses import fields

import pytest

from app.assets import ROOT
from app.hosting import Host, Options, read_command_line, variable
from app.models import ModelShelf, default_model
from recap.errors import ModelError, SettingsError

README = (ROOT / "README.md").read_text("utf-8")
REQUIREMENTS = (ROOT / "requirements.txt").read_text("utf-8")
#: Folders that are made on a machine and belong to no repository.
_OWN = {".git", ".venv", "venv", ".gradio"}


def test_every_setting_comes_from_its_variable():
    given = {"RECAP_MODEL": "some/model", "RECAP_DEVICE": "cuda:1", "RECAP_DTYPE": "bfloat16",
             "RECAP_QUANTIZE": "4bit", "RECAP_MAX_NEW_TOKENS": " 2_000 "}  # fmt: skip
    host = Host.from_environment(given)
    assert (host.model, host.device, host.dtype, host.quantize, host.max_new_tokens) == (
        "some/model", "cuda:1", "bfloat16", "4bit", 2000,
    )  # fmt: skip
    assert Host.from_environment({}) == Host()
    for spec in fields(Host):
        if "range" in spec.metadata:
            for value in spec.metadata["range"]:
                host = Host.from_environment({variable(spec.name): str(value)})
                assert getattr(host, spec.name) == value


def test_mistakes_name_their_variable():
    for spec in fields(Host):
        bad = []
        if "range" in spec.metadata:
            low, high = spec.metadata["range"]
            bad = [str(low - 1), str(high + 1), "many", "1.5"]
        elif spec.name != "model":
            bad = ["nonsense"]
        for value in bad:
            with pytest.raises(SettingsError, match=variable(spec.name)):
                Host.from_environment({variable(spec.name): value})


def test_help_and_readme_list_every_variable_with_its_default():
    done = subprocess.run(
        [sys.executable, "app.py", "--help"], cwd=ROOT, capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0
    words = " ".join(done.stdout.split())
    for spec in fields(Host):
        default = spec.default if spec.default != "" else "empty"
        assert f"{variable(spec.name)} {spec.metadata['help']} Default: {default}." in words
        row = f"| `{variable(spec.name)}` | {default} | {spec.metadata['help']} |"
        assert row in README, row
    for option in ("--host", "--port", "--share", "--auth", "--auth-file", "RECAP_AUTH"):
        assert option in words
        assert option in README


def test_a_bad_start_is_one_line():
    """No traceback, and it comes before anything heavy is imported."""
    done = subprocess.run(
        [sys.executable, "app.py"], cwd=ROOT, capture_output=True, text=True, timeout=60,
        env={"RECAP_STALL_SECONDS": "soon"},
    )  # fmt: skip
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1
    assert "RECAP_STALL_SECONDS: must be a whole number, got 'soon'" in done.stderr


def test_a_model_that_cannot_be_lent_out_ends_the_start_in_words(tmp_path):
    """Where GPUs are lent the weights must be there first: one sentence, no traceback."""
    stand_in = "def GPU(duration=None):\n    return lambda function: function\n"
    (tmp_path / "spaces.py").write_text(stand_in, "utf-8")
    done = subprocess.run(
        [sys.executable, "app.py"], cwd=ROOT, capture_output=True, text=True, timeout=120,
        env={**os.environ, "PYTHONPATH": str(tmp_path), "SPACES_ZERO_GPU": "true",
             "RECAP_MODEL": "no/such", "HF_HUB_OFFLINE": "1"},
    )  # fmt: skip
    assert done.returncode == 1
    assert "Traceback" not in done.stderr
    assert done.stderr.splitlines()[-1].startswith("app.py: no/such is not on this machine")


def test_the_command_line(monkeypatch, tmp_path):
    monkeypatch.delenv("RECAP_AUTH", raising=False)
    assert read_command_line([])[1] == Options()
    arguments = ["--share", "--host", "0.0.0.0", "--port", "80", "--auth", "ada:a:b"]
    assert read_command_line(arguments)[1].launch() == {
        "server_name": "0.0.0.0", "server_port": 80, "share": True, "auth": [("ada", "a:b")],
    }  # fmt: skip
    monkeypatch.setenv("RECAP_AUTH", "eve:1\n\nbob:2")
    assert read_command_line([])[1].auth == (("eve", "1"), ("bob", "2"))
    accounts = tmp_path / "accounts"
    accounts.write_text("ada:x\n", "utf-8")
    assert read_command_line(["--auth-file", str(accounts)])[1].auth == (("ada", "x"),)


@pytest.mark.parametrize(
    "arguments",
    [
        ["--auth", "secret"],
        ["--auth", ":secret"],
        ["--auth-file", "/no/such/file"],
        ["--auth-file", "/dev/null"],
        ["--port", "70000"],
        ["--port", "http"],
    ],
)
def test_a_bad_command_line_shows_no_password(capsys, arguments):
    """A file without accounts must not open the page to everybody."""
    with pytest.raises(SystemExit) as ended:
        read_command_line(arguments)
    assert ended.value.code == 2
    printed = capsys.readouterr().err
    assert arguments[0].removesuffix("-file") in printed
    assert "secret" not in printed


def test_a_space_offers_its_list_of_models_only(monkeypatch):
    """Anywhere else a person may name any model; on ZeroGPU there is the one that was loaded."""
    shelf = ModelShelf(lambda name: name, Host(model="own/model"))
    assert shelf.default == "own/model"
    assert shelf.choices()[0] == ("own/model", "own/model")
    assert shelf.get("any/other") == "any/other"
    monkeypatch.setenv("SPACE_ID", "somebody/recap")
    with pytest.raises(ModelError, match="not offered here"):
        shelf.get("another/one")
    assert shelf.get("own/model") == "own/model"
    monkeypatch.setenv("SPACES_ZERO_GPU", "true")
    assert [name for _, name in shelf.choices()] == ["own/model"]


def test_the_readme_header_is_what_a_space_needs():
    header = _header()
    assert header["sdk"] == "gradio"
    assert f"gradio=={header['sdk_version']}" in REQUIREMENTS.split()
    assert header["python_version"] == "3.11"
    assert (ROOT / header["app_file"]).is_file()
    assert header["license"] == "apache-2.0"
    assert "Apache License" in (ROOT / "LICENSE").read_text("utf-8")
    assert header["suggested_hardware"] == "cpu-basic"
    assert len(header["short_description"]) <= 60
    colours = {"red", "yellow", "green", "blue", "indigo", "purple", "pink", "gray"}
    assert {header["colorFrom"], header["colorTo"]} <= colours
    assert len(header["title"]) > 3
    assert len(header["emoji"]) == 1
    offered = {name for _, name in ModelShelf(lambda name: name).choices()}
    assert set(header["models"]) == {name for name in offered if "/" in name}
    assert all(re.fullmatch(r"[a-z-]+", tag) for tag in header["tags"])
    assert default_model() in offered


def test_requirements_are_pinned_and_come_from_the_index():
    """One version each, and nothing that only one machine has."""
    lines = [line for line in REQUIREMENTS.splitlines() if line and not line.startswith("#")]
    for line in lines:
        assert re.fullmatch(r"[a-z0-9-]+==[0-9]+(\.[0-9]+)*", line), line
    assert "spaces" not in REQUIREMENTS  # a Space that lends GPUs brings its own


def test_no_file_is_too_large_for_a_plain_repository():
    """Files above 10 MB would need another kind of storage on Hugging Face."""
    for path in ROOT.rglob("*"):
        parts = path.relative_to(ROOT).parts
        if path.is_file() and not _OWN.intersection(parts):
            assert path.stat().st_size <= 10_000_000, path


def _header():
    """The README's header: `name: value` lines and lists, which is all that it uses of YAML."""
    found, name = {}, ""
    assert README.startswith("---\n")
    for line in README[4:].partition("\n---\n")[0].splitlines():
        if line.startswith("  - "):
            found[name].append(line[4:])
        else:
            name, _, value = line.partition(":")
            found[name] = value.strip().strip('"') or []
    return found
