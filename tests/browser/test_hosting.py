"""What visitors read while they wait, when there are too many, and when something fails."""

import re

import pytest


@pytest.fixture(scope="module")
def server(simulated):
    """What is visited here: the app on a model that misbehaves."""
    return simulated


def start(page, prompt, tokens=1024):
    page.ask(prompt, method="Autoregressive", tokens=tokens)
    page.run()
    return page


def says(page, state, words):
    """Wait for a state beside the answer's title, and for words in the answer."""
    page.page.locator(".answer .state").get_by_text(state, exact=True).wait_for()
    page.page.locator(".answer .waits").get_by_text(re.compile(words)).wait_for()


def message(page):
    page.finish()
    return page.page.locator(".answer .message").inner_text()


def test_who_waits_reads_where_and_how_long(visit):
    """Position and expected wait; they move up as others stop or leave; one too many is told."""
    first = start(visit(), "hello", tokens=40)
    first.finish()  # so that there is a length to go by
    start(first, "slow run")
    first.page.wait_for_function("Recap.page.store.run.steps.length > 3")
    second, third, fourth = visit(), visit(), visit()
    start(second, "hello", tokens=8)
    says(second, "Waiting", r"1 run is before yours, a few seconds to wait\.")
    start(third, "hello", tokens=8)
    says(third, "Waiting", r"2 runs are before yours, .* to wait\.")
    fourth.ask("hello", tokens=8)
    shown = fourth.shown_tokens
    fourth.page.click("#recap-run")
    refused = fourth.page.locator("#recap-ask-notice")
    refused.get_by_text("Too many are waiting: 2 runs are in the line already").wait_for()
    assert fourth.shown_tokens == shown
    second.page.click("#recap-stop")
    says(third, "Waiting", r"1 run is before yours")
    first.page.context.close()  # the tab is closed: whoever waits gets on
    third.finish()
    assert third.store("run.end.finish") == "length"
    start(fourth, "hello", tokens=8).finish()
    fourth.page.wait_for_function(
        "!document.querySelector('#recap-ask-notice').innerText.trim()"  # once the event has ended
    )
    assert fourth.store("run.end.finish") == "length"


def test_a_stuck_step_is_told_and_the_line_recovers(visit):
    first, second = visit(), visit()
    start(first, "stuck 5", tokens=8)
    start(second, "hello", tokens=8)
    says(first, "Stuck", r"This step has taken \d+ s so far\. It cannot be interrupted")
    says(second, "Waiting", r"The first of them is stuck in one step, for \d+ s now")
    for page in (first, second):
        page.finish()
        assert page.store("run.end.finish") == "length"


@pytest.mark.parametrize(
    ("prompt", "words"),
    [
        ("prefill please", "Out of memory. Use a smaller picture"),
        ("memory please", "Out of memory. Use a smaller picture"),
        ("device please", "The device does not answer any more. The next run loads the model"),
    ],
)
def test_a_fault_is_a_sentence_and_the_next_run_works(visit, prompt, words):
    """For the visitor it happened to, and for another one who has the page open."""
    page, other = visit(), visit()
    start(page, prompt, tokens=20)
    assert message(page).startswith(words)
    page.page.locator(".state.failed").wait_for()
    assert "Traceback" not in page.page.content()
    for visitor in (page, other):
        start(visitor, "hello", tokens=8).finish()
        assert visitor.store("run.end.finish") == "length"


def test_a_race_waits_and_fails_in_words_too(visit):
    page, other = visit(), visit()
    start(other, "slow run")
    other.page.wait_for_function("Recap.page.store.run.steps.length > 3")
    page.ask("memory please", tokens=16)
    page.page.get_by_role("tab", name="Race").click()
    page.page.click("#recap-race")
    note = page.page.locator(".race-note")
    note.get_by_text("Waiting: 1 run is before yours").wait_for()
    other.page.click("#recap-stop")
    note.get_by_text("Out of memory. Use a smaller picture").wait_for()
