"""The real hub client against a hub on this machine: gated, absent, downloaded, without network."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import textwrap

from tests.recap.families import save
from tests.recap.process import ROOT
from tests.recap.targets.hub import hub

#: Loads models by name in a process of its own, since the hub client reads its settings once.
_LOADER = """
    import json, sys
    from recap.errors import ModelError
    from recap.targets import load_target

    for name in sys.stdin:
        shares = []
        def note(text, share):
            if text.startswith("Downloading"):
                shares.append(share)
        try:
            target = load_target(name.strip(), device="cpu", progress=note)
            answer = {"loaded": target.family, "name": target.name, "shares": shares}
        except ModelError as error:
            answer = {"error": str(error)}
        print(json.dumps(answer), flush=True)
"""


class Loader:
    """That process: a name in, an answer out."""

    def __init__(self, **environment: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", textwrap.dedent(_LOADER)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", **environment},
        )

    def __call__(self, name: str) -> dict:
        self.process.stdin.write(f"{name}\n")
        self.process.stdin.flush()
        return json.loads(self.process.stdout.readline())

    def close(self) -> None:
        self.process.stdin.close()
        self.process.wait(timeout=60)


def test_the_hub_client_against_a_hub(tmp_path_factory, tmp_path, capfd):
    """Gated, absent, downloaded with progress, refused; then without network: cached and not."""
    saved = save(tmp_path_factory.mktemp("saved"), "qwen2_5_vl")
    with hub(saved) as address:
        loader = Loader(HF_ENDPOINT=address, HF_HOME=str(tmp_path), HF_HUB_OFFLINE="0")
        try:
            for name in ("owner/gated-401", "owner/gated-403"):
                gated = loader(name)["error"]
                assert f"https://huggingface.co/{name}" in gated
                assert "hf auth login" in gated
            assert "There is no model owner/absent" in loader("owner/absent")["error"]
            answer = loader("owner/tiny")
            cached = tmp_path / "hub" / "models--owner--tiny"
            for status in (401, 403, 429, 503):
                copy = cached.with_name(f"models--owner--answers-{status}")
                shutil.copytree(cached, copy, symlinks=True)
                assert loader(f"owner/answers-{status}")["loaded"] == "qwen2_5_vl"
                shutil.rmtree(copy)
                message = loader(f"owner/answers-{status}")["error"]
                assert f"refused to send owner/answers-{status}" in message
                assert f"{status} " in message
                assert "Try again later" in message
        except BaseException:
            loader.close()
            raise
    try:
        assert answer["loaded"] == "qwen2_5_vl"
        assert answer["name"] == "owner/tiny"
        shares = answer["shares"]
        assert shares == sorted(shares)
        assert 0 < shares[0] < 1
        assert shares[-1] == 1.0
        assert loader("owner/tiny")["loaded"] == "qwen2_5_vl"
        message = loader("owner/other")["error"]
        assert "Hugging Face cannot be reached" in message
        assert "the folder of a copy" in message
    finally:
        loader.close()
    assert "Fetching" not in capfd.readouterr().err, "a bar beside the progress that is told"


def test_offline_mode(tmp_path):
    """It names the variable that may be the reason."""
    loader = Loader(HF_HUB_OFFLINE="1", HF_HOME=str(tmp_path))
    try:
        message = loader("Qwen/Qwen2.5-VL-7B-Instruct")["error"]
    finally:
        loader.close()
    assert "Qwen/Qwen2.5-VL-7B-Instruct is not on this machine" in message
    assert "HF_HUB_OFFLINE" in message
