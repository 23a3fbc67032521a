"""The measurement of what streaming costs can be run; what it measures is no test."""

from tests.streaming_cost import measure


def test_a_round_runs_on_the_real_server():
    """The same tokens with a client on the other end and without one; all but the prefill's."""
    arms = measure(1, False, tokens=8, warm=1)["arms"]
    assert {arm: (row["runs"], row["tokens"]) for arm, row in arms.items()} == {
        "headless": (1, 7),
        "streamed": (1, 7),
    }
    assert arms["streamed"]["updates_per_run"] > 1
