"""The command line as a person or a script uses it."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from recap.cli import main
from recap.trace import Trace
from tests.recap.process import ROOT, Done, run_recap
from tests.recap.reference import picture


@pytest.fixture
def recap(capsys):
    """Run the command line in this process: the same entry point, without the imports' time."""

    def run(*arguments: str) -> Done:
        capsys.readouterr()
        try:
            status = main(arguments)
        except SystemExit as exit:  # argparse's way out
            status = exit.code
        return Done(int(status or 0), *capsys.readouterr())

    return run


@pytest.fixture(scope="module")
def image(tmp_path_factory):
    """A real PNG on disk."""
    path = tmp_path_factory.mktemp("images") / "noise.png"
    picture(3).save(path)
    return str(path)


TINY = ("--model", "tiny-random", "--threads", "1", "--max-new-tokens", "24")


def test_run_end_to_end(image, tmp_path):
    """Text and one JSON line on stdout, the summary on stderr, a trace that loads."""
    trace_file = str(tmp_path / "trace.json")
    done = run_recap(
        "run", "--image", image, "--prompt", "hi", *TINY, "--json", "--trace", trace_file
    )
    assert done.returncode == 0, done.stderr
    last = done.stdout.rstrip("\n").rsplit("\n", 1)[-1]
    assert last.isascii()
    result = json.loads(last)
    assert set(result) == {
        "text", "token_ids", "passes", "emitted", "mat", "seconds", "model", "device", "dtype",
        "method", "finish",
    }  # fmt: skip
    assert set(result["seconds"]) == {"prefill", "draft", "verify", "commit", "observe", "total"}
    assert result["emitted"] == len(result["token_ids"]) == 24
    assert result["mat"] == pytest.approx(23 / result["passes"])
    assert (result["method"], result["finish"]) == ("recap", "length")
    for word in ("MAT", "tokens/s without prefill", "passes", "verify", "neutral"):
        assert word in done.stderr
    trace = Trace.load(trace_file)
    assert trace.token_ids == result["token_ids"]
    shown = run_recap("inspect", trace_file)
    assert shown.returncode == 0
    assert shown.stdout.count("\nStep ") == trace.passes


@pytest.mark.parametrize(
    "method", ["recap-plus", "token-recycling", "prompt-lookup", "autoregressive"]
)
def test_every_method_prints_the_same_text(recap, image, method):
    """Lossless also from here."""
    wanted = recap("run", "--image", image, "--prompt", "hi", *TINY)
    done = recap("run", "--image", image, "--prompt", "hi", *TINY, "--method", method)
    assert done.stdout == wanted.stdout


def test_a_terminal_that_knows_only_ascii(image):
    """What it cannot show is replaced; nothing fails."""
    done = run_recap("run", "--image", image, "--prompt", "hi", *TINY, PYTHONIOENCODING="ascii")
    assert done.returncode == 0, done.stderr
    assert done.stdout.isascii()


def test_a_pipe_that_closes_early_is_no_error(image):
    """`| head -c 1`."""
    command = f"{sys.executable} -m recap run --image {image} --prompt hi {' '.join(TINY)}"
    done = subprocess.run(
        f"{command} | head -c 1",
        shell=True,
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        timeout=300,
        check=False,
    )
    assert b"Traceback" not in done.stderr
    assert b"Exception" not in done.stderr


def test_budget_and_cost(recap, tmp_path):
    """Adaptive by name, measured anew; a number is a number."""
    for budget, seconds in (("adaptive", True), ("3", False)):
        file = tmp_path / f"{budget}.json"
        arguments = ("--prompt", "hi", "--budget", budget, "--measure-cost", "--trace", str(file))
        done = recap("run", *arguments, *TINY)
        assert done.returncode == 0, done.stderr
        trace = Trace.load(file)
        assert trace.settings["budget"] == (3 if budget == "3" else "adaptive")
        for step in trace.steps:
            assert (step.budget["expected_seconds"] is not None) == seconds
            assert seconds or step.budget["k"] <= 3


def test_race(recap, image):
    """A table with a row a lane, then JSON."""
    done = recap("race", "--image", image, "--prompt", "hi", *TINY, "--json")
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout.rstrip("\n").rsplit("\n", 1)[-1])
    answers = {tuple(lane["token_ids"]) for lane in result["lanes"].values()}
    assert len(answers) == 1
    assert len(result["lanes"]) == 5
    assert done.stdout.count("24/24 with") == 5


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--prompt", "hi", "--method", "medusa"], "token-recycling"),
        (["--prompt", "hi", "--budget", "999"], "budget"),
        (["--prompt", "hi", "--budget", "some"], "budget"),
        (["--prompt", "hi", "--max-new-tokens", "0"], "max_new_tokens"),
        (["--prompt", "  "], "empty"),
        (["--prompt", "hi", "--image", "none.png"], "none.png"),
        (["--prompt", "hi", "--image", "pyproject.toml"], "not a picture"),
        (["--prompt", "hi", "--model", "./nowhere"], "nowhere"),
        (["--prompt", "hi", "--threads", "0"], "threads"),
        (["--prompt", "hi", "--device", "warp"], "warp"),
        (["--prompt", "hi", "--dtype", "int3"], "dtype"),
        (["--prompt", "hi", "--max-new-tokens", "many"], "invalid int"),
        (["--prompt", "hi", "--trace", "no-such-folder/t.json"], "cannot be written"),
        ([], "--prompt"),
    ],
)
def test_bad_arguments_end_with_one_line_and_status_2(recap, arguments, words):
    """No traceback, nothing on stdout."""
    model = [] if "--model" in arguments else ["--model", "tiny-random"]
    done = recap("run", *arguments, *model)
    assert done.returncode == 2
    assert done.stdout == ""
    assert words in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1


def test_inspect_refuses_what_is_no_trace(recap, tmp_path):
    """A missing file, a text, a trace without that step."""
    (tmp_path / "x.json").write_text("{}")
    for path in (tmp_path / "none.json", tmp_path / "x.json"):
        done = recap("inspect", str(path))
        assert done.returncode == 2
        assert len(done.stderr.strip().splitlines()) == 1
