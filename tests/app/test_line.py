"""The line in front of the accelerator: its order, what it says, and what it refuses."""

import pytest

from app.line import BusyError, Turnstile, about


def serve(turnstile):
    """Let the first of the line have its turn; its visitor."""
    ticket = turnstile._line[0]
    assert turnstile.wait(ticket, lambda: False)
    turnstile.leave(ticket)
    return ticket.visitor


def test_within_a_round_it_goes_by_arrival():
    turnstile = Turnstile()
    tickets = [turnstile.join(visitor) for visitor in "abc"]
    assert [turnstile.ahead(ticket) for ticket in tickets] == [0, 1, 2]
    assert [serve(turnstile) for _ in "abc"] == ["a", "b", "c"]


def test_who_asks_for_many_lets_others_in_between():
    """Five jobs of one visitor, then two of others: each of these is served after one of the five.

    The one that is being served stays where it is.
    """
    turnstile = Turnstile()
    many = [turnstile.join("a") for _ in range(5)]
    assert turnstile.wait(many[0], lambda: False)
    late = [turnstile.join("b"), turnstile.join("c"), turnstile.join("b")]
    assert turnstile.ahead(many[0]) == 0
    assert turnstile.ahead(late[0]) == 1
    turnstile.leave(many[0])
    assert "".join(serve(turnstile) for _ in range(7)) == "bcabaaa"


def test_strangers_count_as_different_visitors():
    turnstile = Turnstile()
    tickets = [turnstile.join() for _ in range(3)]
    assert {ticket.round for ticket in tickets} == {0}


def test_the_expected_wait_comes_from_recent_jobs(monkeypatch):
    """Nothing is promised before anything was measured; then the typical length, less what is done.

    A job that nobody wanted to the end says nothing about lengths.
    """
    now = [100.0]
    monkeypatch.setattr("app.line.time.monotonic", lambda: now[0])
    turnstile = Turnstile()
    first, second = turnstile.join(), turnstile.join()
    assert turnstile.expected(second) is None
    for ticket in (first, second):
        turnstile.leave(ticket)
    for seconds, measured in ((10, True), (12, True), (1, False), (14, True)):
        ticket = turnstile.join()
        turnstile.wait(ticket, lambda: False)
        now[0] += seconds
        turnstile.leave(ticket, measured=measured)
    assert turnstile.typical == 12
    first, second, third = (turnstile.join() for _ in range(3))
    turnstile.wait(first, lambda: False)
    now[0] += 5
    assert turnstile.expected(first) == 0
    assert turnstile.expected(second) == 12 - 5
    assert turnstile.expected(third) == 12 - 5 + 12
    now[0] += 60  # longer than ever: still no promise that it ends at once
    assert turnstile.expected(second) == 12 / 4


def test_loading_a_model_is_not_part_of_a_length(monkeypatch):
    now = [0.0]
    monkeypatch.setattr("app.line.time.monotonic", lambda: now[0])
    turnstile = Turnstile()
    ticket = turnstile.join()
    turnstile.wait(ticket, lambda: False)
    turnstile.beat(ticket, preparing=True)
    now[0] += 300
    turnstile.beat(ticket)
    now[0] += 7
    turnstile.leave(ticket)
    assert turnstile.typical == 7


def test_a_full_line_refuses_with_a_time(monkeypatch):
    """`length` may wait besides the one that is served."""
    now = [0.0]
    monkeypatch.setattr("app.line.time.monotonic", lambda: now[0])
    turnstile = Turnstile(length=2)
    tickets = [turnstile.join() for _ in range(3)]
    with pytest.raises(BusyError, match=r"2 runs are in the line already. Try again in a minute"):
        turnstile.join()
    turnstile.wait(tickets[0], lambda: False)
    now[0] += 20
    turnstile.leave(tickets[0])
    turnstile.join()
    with pytest.raises(BusyError, match="about 40 s"):
        turnstile.join()


def test_a_step_is_stuck_after_the_time_given(monkeypatch):
    """From the last sign of life, and only while it is in service."""
    now = [0.0]
    monkeypatch.setattr("app.line.time.monotonic", lambda: now[0])
    turnstile = Turnstile(stall=60)
    ticket = turnstile.join()
    now[0] += 100
    assert turnstile.stalled() is None
    turnstile.wait(ticket, lambda: False)
    now[0] += 59
    turnstile.beat(ticket)
    now[0] += 59
    assert turnstile.stalled() is None
    now[0] += 2
    assert turnstile.stalled() == 61
    turnstile.beat(ticket)
    assert turnstile.stalled() is None
    now[0] += 61
    turnstile.leave(ticket)
    assert turnstile.stalled() is None


def test_durations_in_words():
    said = {2: "a few seconds", 34: "about 35 s", 70: "about 1 min", 700: "about 12 min"}
    assert {seconds: about(seconds) for seconds in said} == said
