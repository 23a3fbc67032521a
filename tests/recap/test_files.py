"""A file is whole or as it was, also where the disk is full."""

import errno
import os
import subprocess
import sys

import pytest

from recap import cost
from recap.bench.journal import Journal
from recap.errors import RecapError
from recap.files import write_whole
from recap.options import save

_FULL_HALF_WAY = """
import resource, sys
from recap.files import write_whole
resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, 20_000))  # the system itself refuses more
try:
    write_whole(sys.argv[1], "new " * 10_000)
except OSError as error:
    print("refused:", error.strerror)
"""


@pytest.mark.parametrize("before", [None, "old"])
def test_a_disk_that_fills_up_half_way(tmp_path, before):
    """What was there stays, and nothing half-written lies beside it."""
    path = tmp_path / "trace.json"
    if before:
        path.write_text(before)
    done = subprocess.run(
        [sys.executable, "-c", _FULL_HALF_WAY, str(path)], capture_output=True, text=True
    )
    assert done.stdout.startswith("refused: "), done.stderr
    assert [p.read_text() for p in tmp_path.iterdir()] == ([before] if before else [])


def test_a_file_is_replaced_as_a_whole(tmp_path):
    """Its rights stay, a link stays a link, and a device is written to."""
    path, link = tmp_path / "a.json", tmp_path / "link.json"
    path.write_text("old")
    path.chmod(0o640)
    link.symlink_to(path)
    write_whole(link, "new")
    assert link.is_symlink()
    assert path.read_text() == "new"
    assert path.stat().st_mode & 0o777 == 0o640
    write_whole("/dev/null", "anything")
    assert not os.path.isfile("/dev/null")
    with pytest.raises(FileNotFoundError):
        write_whole(tmp_path / "none" / "a.json", "x")
    assert len(list(tmp_path.iterdir())) == 2


def _full(*arguments, **options):
    raise OSError(errno.ENOSPC, "No space left on device")


def test_the_command_line_says_so_in_one_sentence(tmp_path):
    with pytest.raises(RecapError, match=r"'a\.json' cannot be written: No space left on device\."):
        save(str(tmp_path / "a.json"), _full)


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="no device that is always full")
def test_a_benchmark_keeps_what_was_finished(tmp_path):
    """The line that did not fit is missing, and --resume is named."""
    path = tmp_path / "x.partial.jsonl"
    journal = Journal(path, {}, 3)
    journal.append(None, [])
    journal.close()
    journal._file = open("/dev/full", "a")  # noqa: SIM115  # closed by the journal
    with pytest.raises(RecapError, match=r"No space left on device.*--resume"):
        journal.append(None, [])
    journal.close()
    assert Journal(path, {}, 3, resume=True).finished == 1


def test_a_curve_that_cannot_be_kept_is_measured_again(tmp_path, monkeypatch):
    """No run fails for it."""
    monkeypatch.setenv("RECAP_CACHE", str(tmp_path))
    monkeypatch.setattr("recap.files.os.replace", _full)
    cost._write("key", {}, cost.CostCurve(((1, 0.1), (2, 0.2))))
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []
