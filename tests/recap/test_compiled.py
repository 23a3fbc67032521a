"""What runs compiled computes what Python would, and needs no disk."""

from __future__ import annotations

import subprocess
import sys

from hypothesis import given
from hypothesis import strategies as st

from recap.compiled import FLOAT, kernel

NUMBERS = st.floats(-1e6, 1e6)


@kernel(FLOAT(FLOAT, FLOAT, FLOAT, FLOAT))
def _sum_of_products(a, b, c, d):
    return a * b + c * d


@given(NUMBERS, NUMBERS, NUMBERS, NUMBERS)
def test_arithmetic_is_pythons(a, b, c, d):
    """To the last digit: a product that is not rounded before it is added would decide ties."""
    assert _sum_of_products(a, b, c, d) == a * b + c * d


def test_without_room_to_keep_it_compiled_code_runs_all_the_same(tmp_path):
    """Where no file can be written, kernels are compiled in every process."""
    (tmp_path / "twice.py").write_text(
        "import resource\n"
        "from recap.compiled import INT, kernel\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))\n"
        "@kernel(INT(INT))\n"
        "def twice(x):\n"
        "    return 2 * x\n"
        "print(twice(4), sum(twice.stats.cache_hits.values()))\n"
    )
    code = f"import sys; sys.path.insert(0, {str(tmp_path)!r}); import twice"
    for _ in range(2):
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
        assert (done.stdout, done.returncode) == ("8 0\n", 0), done.stderr
        assert "Compiling" in done.stderr
    assert not list(tmp_path.glob("**/*.nbc"))
