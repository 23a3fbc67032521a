"""The race with its badge; traces and replays in and out."""

import json

import pytest

from app import assets
from app.racing import Lined, Moved, Raced, RaceState
from recap.decoding import Run
from recap.race import compare
from recap.targets.images import load_image
from recap.trace import Trace
from tests.recap.reference import rounding_race

CHART_INKS = """[...document.querySelectorAll(
  '#recap-race-chart :is(.xtick text, .ytick text, .xtitle, .ytitle, .legendtext)')]
  .map((e) => getComputedStyle(e).fill)"""


def test_a_race_of_three_ends_with_the_badge(visit):
    page = visit()
    page.ask("Describe the picture.", tokens=40)
    page.page.get_by_role("tab", name="Race").click()
    page.page.click("#recap-race")
    page.page.wait_for_function(
        "document.querySelectorAll('.race-badge.good, .race-badge.bad').length === 3",
        timeout=60_000,
    )
    badges = page.page.locator(".race-badge").all_inner_texts()
    assert all("identical" in badge for badge in badges)
    texts = {
        page.page.locator(f".lane[data-lane='{name}'] .race-text").inner_text()
        for name in ("recap", "token-recycling", "autoregressive")
    }
    assert len(texts) == 1
    page.page.wait_for_selector("#recap-race-chart .js-plotly-plot .legendtext")
    for dark, ink in ((False, "rgb(86, 92, 99)"), (True, "rgb(169, 176, 184)")):
        page.page.evaluate("(dark) => document.body.classList.toggle('dark', dark)", dark)
        assert set(page.page.evaluate(CHART_INKS)) == {ink}
    assert page.page.locator(".compare .tree-svg").count() == 2
    page.page.locator(".position input").fill("5")
    assert page.page.locator(".compare .tree-svg .node").count() > 2


def test_a_first_difference_is_told(visit, traces, tmp_path):
    """Where two answers differ, the badge of the loaded trace says where and by how much."""
    trace = Trace.loads(traces[1].dumps())
    trace.identical = compare(traces[0], trace)
    difference = trace.identical["first_difference"]
    path = tmp_path / "differs.json"
    trace.save(path)
    page = visit()
    page.page.get_by_role("tab", name="Take away").click()
    page.page.locator("#recap-away input[type=file]").set_input_files(path)
    page.page.wait_for_function("Recap.page.store.serial > 0")
    page.skip()
    badge = page.page.locator(".answer .verdict.bad")
    badge.wait_for()
    words = badge.inner_text()
    assert f"first difference at token {difference['position'] + 1}:" in words
    for side in ("this", "reference"):
        assert f"{difference[side]['top2'][0]:.4f}" in words
    trace.identical = compare(trace, trace)
    same = tmp_path / "same.json"
    trace.save(same)
    serial = page.store("serial")
    page.page.locator("#recap-away input[type=file]").set_input_files(same)
    page.page.wait_for_function(f"Recap.page.store.serial > {serial}")
    page.skip()
    page.page.locator(".answer .verdict.good").wait_for()
    count = len(trace.token_ids)
    assert page.page.locator(".answer .verdict").inner_text() == f"✓ identical {count}/{count}"


def test_a_race_with_a_difference_says_so(visit, traces):
    """The race's own view tells the first difference with both log-probabilities."""
    reference, other = traces
    race = RaceState(serial=9_999_999_999_999)
    lanes = {"recap": other, "autoregressive": reference}
    race.take(Lined(lanes, dict.fromkeys(lanes, 0), False))
    for name, trace in lanes.items():
        clock = trace.prefill["seconds"]
        race.take(Moved(name, None, trace.prefill, {}, clock))
        for step in trace.steps:
            clock += sum(step.seconds.values())
            race.take(Moved(name, step, None, {}, clock))
    found = compare(reference, other)
    numbers = {"seconds": 1.0, "speedup": 1.0, "identical": found}
    same = {**numbers, "identical": compare(reference, reference)}
    finishes = {name: trace.finish for name, trace in lanes.items()}
    race.take(Raced({"recap": numbers, "autoregressive": same}, True, finishes))
    page = visit()
    page.page.wait_for_function("Recap.page.race")
    page.page.evaluate("(value) => Recap.page.race.apply(value)", race.value())
    page.page.get_by_role("button", name="Skip to the end", exact=True).click()
    badge = page.page.locator(".lane[data-lane='recap'] .race-badge.bad")
    badge.wait_for()
    for side in ("this", "reference"):
        assert f"{found['first_difference'][side]['top2'][0]:.4f}" in badge.inner_text()
    page.page.locator(".lane[data-lane='autoregressive'] .race-badge.good").wait_for()


@pytest.fixture(scope="module")
def traces():
    """The lanes of a real race that differ by rounding: autoregressive first, then RECAP."""
    lanes = {lane.name: lane.run.trace for lane in rounding_race().lanes}
    return [lanes["autoregressive"], lanes["recap"]]


def test_traces_go_out_and_come_in(visit, tmp_path):
    """Trace, table, picture and replay are saved; the trace loads and scrubs without a model."""
    page = visit()
    page.ask("Describe the picture.", tokens=24)
    page.run()
    page.finish()
    page.page.get_by_role("tab", name="Take away").click()
    saved = {}
    for kind in ("trace", "steps", "replay", "svg"):
        with page.page.expect_download() as download:
            page.page.click(f"#recap-export-{kind}")
        path = tmp_path / download.value.suggested_filename
        download.value.save_as(path)
        saved[kind] = path
    trace = Trace.load(saved["trace"])
    assert trace.token_ids == page.shown_tokens
    assert saved["steps"].read_text("utf-8").count("\n") >= len(trace.steps) + 4
    svg = saved["svg"].read_text("utf-8")
    assert svg.startswith("<?xml")
    assert trace.model in svg
    assert "var(" not in svg

    other = visit()
    other.page.get_by_role("tab", name="Take away").click()
    other.page.locator("#recap-away input[type=file]").set_input_files(saved["trace"])
    other.page.wait_for_function("Recap.page.store.serial > 0")
    assert compare(trace, trace)["first_difference"] is None
    assert other.shown_tokens == trace.token_ids
    other.key("End", "ArrowLeft")
    assert other.store("cursor") == len(trace.steps) - 2

    bad = tmp_path / "bad.json"
    bad.write_text(json.dumps({"version": 99}), "utf-8")
    other.page.locator("#recap-away input[type=file]").set_input_files(bad)
    other.page.locator("#recap-load-notice").get_by_text("version 99").wait_for()
    data = json.loads(trace.dumps())
    nodes = max((step["nodes"] for step in data["steps"]), key=lambda nodes: len(nodes["token"]))
    nodes["fused"] = ["<b>"] * len(nodes["token"])
    worse = tmp_path / "worse.json"
    worse.write_text(json.dumps(data), "utf-8")
    other.page.locator("#recap-away input[type=file]").set_input_files(worse)
    other.page.locator("#recap-load-notice").get_by_text("malformed").wait_for()


def test_the_replay_opens_from_disk_with_the_network_off(chromium, tmp_path):
    from app.exports import replay_html

    trace = assets.first_view().trace
    path = tmp_path / "replay.html"
    path.write_text(replay_html(trace), "utf-8")
    context = chromium.new_context(offline=True)
    page = context.new_page()
    problems, requests = [], []
    page.on("console", lambda m: problems.append(m.text) if m.type == "error" else None)
    page.on("pageerror", lambda error: problems.append(str(error)))
    page.on("request", lambda request: requests.append(request.url))
    page.goto(path.as_uri())
    page.wait_for_selector(".tree-svg .node")
    page.keyboard.press("End")
    page.keyboard.press("ArrowLeft")
    # Not `wait_for_function`: the file's own policy forbids evaluating strings.
    page.locator(f".timeline-svg[aria-valuenow='{len(trace.steps) - 1}']").wait_for()
    page.locator(".node").nth(1).click()
    page.locator(".inspector h3").wait_for()
    assert problems == []
    assert requests == [path.as_uri()]
    context.close()


def test_a_link_reopens_prompt_settings_and_step(visit):
    page = visit("/?prompt=Count+them.&method=recap-plus&tokens=20&example=0&step=2"
                 "&settings=%7B%22width%22%3A3%7D")  # fmt: skip
    page.page.wait_for_function(
        "document.querySelector('#recap-prompt textarea').value === 'Count them.'"
    )
    page.page.locator("#recap-ask-notice").get_by_text("step 3").wait_for()
    page.run()
    page.finish()
    assert page.store("run.about.method") == "recap-plus"
    assert page.store("run.about.settings.width") == 3
    assert page.store("run.about.max_new_tokens") == 20
    if page.store("run.steps.length") > 2:
        assert page.store("cursor") == 2
    page.page.get_by_role("tab", name="Take away").click()
    page.page.click("#recap-link")
    link = page.page.locator(".recap-copied")
    link.get_by_text("http").wait_for()
    assert "prompt=Count+them." in link.inner_text()


def test_the_endpoint_for_programs(server, target):
    """What the README shows: text streams, and the trace comes back."""
    from gradio_client import Client, handle_file

    example = assets.examples()[0]
    client = Client(server, verbose=False)
    job = client.submit(
        handle_file(str(example.image)), "Describe the picture.", "recap", 24, None,
        api_name="/decode",
    )  # fmt: skip
    updates = list(job)
    request = target.prepare("Describe the picture.", load_image(example.image))
    expected = Run(target, request, max_new_tokens=24).finish_all()
    assert updates[-1]["text"] == expected.text
    assert Trace.from_json(updates[-1]["trace"]).token_ids == expected.token_ids
