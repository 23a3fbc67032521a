"""Asking, streaming, stopping, and looking back while it goes on."""

from pathlib import Path

import pytest
from PIL import Image

from app import assets
from recap.decoding import Run
from recap.targets.images import load_image

TINY = "tiny-random"


def use_tiny_model(page):
    """A model that never ends by itself, so that there is time to stop it."""
    page.page.get_by_text("Settings", exact=True).click()
    box = page.page.locator("#recap-model input")
    box.fill(TINY)
    box.press("Enter")


def test_an_example_runs_to_the_end_with_the_engines_text(visit, target):
    """One click on an example, one on Run; the text is the engine's, token for token."""
    page = visit()
    example = assets.examples()[0]
    page.page.locator("#recap-examples tbody tr").first.click()
    page.page.wait_for_function(
        "(p) => document.querySelector('#recap-prompt textarea').value === p", arg=example.prompt
    )
    page.page.wait_for_timeout(500)
    page.run()
    page.finish()
    page.skip()
    request = target.prepare(example.prompt, load_image(example.image))
    expected = Run(target, request, max_new_tokens=160).finish_all()
    assert page.shown_tokens == expected.token_ids
    if "\ufffd" not in expected.text:
        assert page.answer == expected.text
    page.page.locator(".state.finished").wait_for()


def test_pictures_from_disk(visit, target, tmp_path):
    """A PNG and a JPEG from disk give what the engine gives for them."""
    source = load_image(assets.examples()[1].image)
    for name, options in (("a.png", {}), ("b.jpg", {"quality": 92})):
        path = tmp_path / name
        source.save(path, **options)
        page = visit()
        page.remove_picture()
        page.page.locator("#recap-picture input[type=file]").set_input_files(path)
        page.page.wait_for_selector(f"#recap-picture img[src*='{path.name}']")
        page.page.wait_for_timeout(300)
        page.ask("Describe the picture.")
        page.run()
        page.finish()
        request = target.prepare("Describe the picture.", load_image(path))
        expected = Run(target, request, max_new_tokens=48).finish_all()
        assert page.shown_tokens == expected.token_ids


LINK = "/?prompt=Count+them.&method=recap-plus&tokens=20&example=1&settings=%7B%22carry%22%3A0%7D"


@pytest.mark.parametrize("address", ["/", LINK], ids=["plain", "link"])
def test_what_is_changed_while_the_page_loads_stays(visit, address):
    """The server's answer to the page's own question comes late, and finds the form in use."""
    page = visit()
    server, held, late = page.page.url.rstrip("/"), [], True
    page.page.goto("about:blank")  # so that nothing of the first visit is held
    page.page.route("**/gradio_api/run/**", lambda r: held.append(r) if late else r.continue_())
    page.page.goto(server + address)
    page.page.wait_for_selector("#recap-picture img")
    page.page.wait_for_function("globalThis.Recap?.page?.parts")
    page.page.wait_for_timeout(100)  # the question is asked
    page.remove_picture()
    page.page.fill("#recap-limit input[type=number]", "33")
    page.page.locator("#recap-limit input[type=number]").blur()
    assert held
    late = False
    for question in held:
        question.continue_()
    for question in held:
        question.request.response()
    if address == LINK:  # what was left alone is the link's
        page.page.locator("#recap-ask-notice").get_by_text("Opened from a link").wait_for()
        page.page.wait_for_function(
            "document.querySelector('#recap-prompt textarea').value === 'Count them.'"
        )
    page.page.wait_for_timeout(600)
    assert page.page.locator("#recap-picture img").count() == 0
    assert page.page.input_value("#recap-limit input[type=number]") == "33"
    page.run()
    page.finish()
    assert page.store("run.about.image") is None
    assert page.store("run.about.max_new_tokens") == 33
    if address == LINK:
        assert page.store("run.about.prompt") == "Count them."
        assert page.store("run.about.method") == "recap-plus"
        assert page.store("run.about.settings.carry") == 0.0


def test_a_method_brings_its_own_settings_at_once(visit):
    """Chosen and run in one breath: no answer of the server's has to arrive in between."""
    page = visit()
    for title, carry in (("RECAP+", 0.5), ("RECAP", 0.0)):
        page.ask("Hello.", method=title, tokens=4)
        page.run()
        page.finish()
        assert page.store("run.about.settings.carry") == carry


_PICTURE_EVENT = """([name, bytes]) => {
  const data = new DataTransfer(), both = { bubbles: true, cancelable: true };
  data.items.add(new File([new Uint8Array(bytes)], 'given.png', { type: 'image/png' }));
  if (name === 'paste')
    document.body.dispatchEvent(new ClipboardEvent('paste', { clipboardData: data, ...both }));
  else
    document.querySelector('#recap-picture input[type=file]')
      .dispatchEvent(new DragEvent('drop', { dataTransfer: data, ...both }));
}"""


@pytest.mark.parametrize("way", ["paste", "drop"])
def test_pictures_pasted_and_dropped(visit, target, tmp_path, way):
    """What comes with the event is what is decoded; a picture pasted over another replaces it."""
    source = load_image(assets.examples()[1].image)
    path = tmp_path / "given.png"
    source.save(path)
    page = visit()
    if way == "drop":
        page.remove_picture()
    page.page.evaluate(_PICTURE_EVENT, [way, list(path.read_bytes())])
    page.page.wait_for_selector("#recap-picture img[src*='given.png']")
    page.page.wait_for_timeout(300)
    page.ask("Describe the picture.", tokens=24)
    page.run()
    page.finish()
    request = target.prepare("Describe the picture.", load_image(path))
    assert page.shown_tokens == Run(target, request, max_new_tokens=24).finish_all().token_ids


def test_a_picture_from_the_camera(visit):
    """Chromium's own test camera: its frame is taken, shown, and decoded."""
    page = visit(permissions=["camera"])
    page.remove_picture()
    page.page.get_by_label("Capture from camera").click()
    page.page.locator("[title='grant webcam access'] button").click()
    page.page.locator("#recap-picture video").wait_for()
    page.page.wait_for_function("document.querySelector('#recap-picture video').videoWidth > 0")
    page.page.get_by_label("capture photo").click()
    page.page.wait_for_selector("#recap-picture button[aria-label='Remove Image']")
    page.page.wait_for_timeout(500)
    page.ask("Describe the picture.", tokens=8)
    page.run()
    page.finish()
    assert page.store("run.about.image.width") > 100
    assert page.store("run.end.finish") in ("length", "eos")


def test_stop_keeps_the_trace_so_far(visit, simulated):
    """Stop in mid-run: the run ends, its steps stay, and the page can run again."""
    page = visit(simulated)
    page.ask("slow run", method="Autoregressive", tokens=1024)
    page.run()
    page.page.wait_for_function("Recap.page.store.run.steps.length > 3")
    page.page.click("#recap-stop")
    page.finish()
    steps = page.store("run.steps.length")
    assert 3 < steps < 1023
    assert page.store("run.end.finish") == "cancelled"
    page.skip()
    page.page.locator(".state.stopped").wait_for()
    page.page.wait_for_function(
        f"document.querySelectorAll('.timeline-svg .bar').length === {steps}"
    )
    page.ask("Again.", tokens=8)
    page.run()
    page.finish()
    assert page.store("run.end.finish") == "length"


def test_stop_is_off_after_an_event_that_failed(visit, simulated):
    """Here because the server does not take it in, as where its queue is full."""
    from playwright.sync_api import expect

    page = visit(simulated)
    stop = page.page.locator("#recap-stop")
    page.ask("slow run", method="Autoregressive", tokens=4)
    page.page.evaluate(
        "() => { const ended = Recap.ended; Recap.endings = 0;"
        " Recap.ended = (kind) => { Recap.endings++; return ended(kind); }; }"
    )
    full = {"status": 503, "content_type": "application/json", "body": '{"detail": "full"}'}
    page.page.route("**/queue/join*", lambda route: route.fulfill(**full))
    page.page.click("#recap-run")
    page.page.wait_for_function("Recap.endings === 1")
    expect(stop).to_be_disabled()
    page.page.unroute("**/queue/join*")
    page.run()
    page.finish()
    expect(stop).to_be_disabled()
    assert page.page.evaluate("Recap.endings") == 2  # one each
    assert all("503" in problem for problem in page.problems)
    page.problems.clear()


def test_stop_works_exactly_while_its_own_run_or_race_goes_on(visit, simulated):
    """Each has a button of its own, and a newer run keeps it; a refused one takes it from none."""
    from playwright.sync_api import expect

    page = visit(simulated)
    stop, race_stop = (page.page.locator(name) for name in ("#recap-stop", "#recap-race-stop"))
    page.ask("slow run", method="Autoregressive", tokens=1024)
    expect(stop).to_be_disabled()
    page.run()
    expect(stop).to_be_enabled()
    page.ask("")
    page.page.click("#recap-run")
    expect(page.page.locator("#recap-ask-notice")).to_contain_text("prompt")
    expect(stop).to_be_enabled()
    page.ask("slow run")
    page.run()
    expect(page.page.locator("#recap-ask-notice")).to_have_text("")
    page.page.get_by_role("tab", name="Race").click()
    page.page.click("#recap-race")
    expect(stop).to_be_disabled()
    expect(race_stop).to_be_enabled()
    race_stop.click()
    expect(race_stop).to_be_disabled()
    page.run()
    expect(stop).to_be_enabled()
    stop.click()
    page.finish()
    expect(stop).to_be_disabled()
    expect(race_stop).to_be_disabled()


def test_scrubbing_during_a_run(visit, simulated):
    """Looking back neither stops the run nor is it moved by new steps; Live follows again."""
    page = visit(simulated)
    page.ask("slow run", method="Autoregressive", tokens=1024)
    page.page.get_by_label("Pace", exact=True).select_option("real")
    page.run()
    page.page.wait_for_function("Recap.page.store.frontier > 10")
    page.key("Home", "ArrowRight", "ArrowRight")
    assert page.store("cursor") == 2
    before = page.store("run.steps.length")
    page.page.wait_for_function(f"Recap.page.store.run.steps.length > {before}")
    assert page.store("run.status") == "running"
    assert page.store("cursor") == 2
    page.key("l")
    assert page.store("following")
    assert page.store("cursor") > 2
    page.page.click("#recap-stop")
    page.finish()
    assert page.store("run.end.finish") == "cancelled"


def test_two_sessions_never_see_each_others_tokens(visit, target):
    """Two tabs at once with different pictures: each gets its own answer, one waits its turn."""
    first, second = visit(), visit()
    pages = [(first, assets.examples()[0]), (second, assets.examples()[2])]
    for page, example in pages:
        page.remove_picture()
        page.page.locator("#recap-picture input[type=file]").set_input_files(example.image)
        page.page.wait_for_selector(f"#recap-picture img[src*='{example.image.name}']")
        page.page.wait_for_timeout(300)
        page.ask(example.prompt)
    for page, _ in pages:
        page.page.click("#recap-run", no_wait_after=True)
    for page, example in pages:
        page.page.wait_for_function("Recap.page.store.serial > 0")
        page.finish()
        request = target.prepare(example.prompt, load_image(example.image))
        expected = Run(target, request, max_new_tokens=48).finish_all()
        assert page.shown_tokens == expected.token_ids
        assert page.store("run.about.prompt") == example.prompt


def test_errors_stand_where_they_belong_and_the_page_stays_usable(visit, tmp_path):
    """No prompt, a text file named .png, a truncated PNG, a bomb; then an ordinary run."""
    page = visit()
    page.page.fill("#recap-prompt textarea", "   ")
    page.page.click("#recap-run")
    page.page.locator("#recap-ask-notice").get_by_text("Type a prompt first").wait_for()
    good = tmp_path / "good.png"
    Image.effect_noise((300, 300), 60).save(good)
    bad = {
        "text.png": (b"this is no picture", "not a picture"),
        "cut.png": (good.read_bytes()[:4000], "damaged"),
        "bomb.png": (_bomb(tmp_path), "too large"),
    }
    page.ask("What is this?", tokens=8)
    for name, (content, words) in bad.items():
        path = tmp_path / name
        path.write_bytes(content)
        clear = page.page.locator("#recap-picture button[aria-label='Remove Image']")
        if clear.count():
            clear.click()
        page.page.locator("#recap-picture input[type=file]").set_input_files(path)
        page.page.locator("#recap-picture-notice").get_by_text(words).wait_for()
        page.page.click("#recap-run")
        page.page.locator("#recap-ask-notice").get_by_text(words).wait_for()
    # A picture that the browser cannot show is an error of the browser's own.
    page.problems.clear()
    page.page.locator("#recap-picture button[aria-label='Remove Image']").click()
    page.page.wait_for_timeout(300)
    page.run()
    page.finish()
    assert page.store("run.end.finish") in ("length", "eos")


def _bomb(folder: Path) -> bytes:
    path = folder / "large.png"
    Image.new("1", (20_000, 10_000)).save(path)
    return path.read_bytes()


def test_a_prompt_that_is_too_long_says_so(visit):
    """The message stands in the answer, and the next run works."""
    page = visit()
    use_tiny_model(page)
    page.ask("word " * 2000, tokens=8)
    page.run()
    page.finish()
    assert "Shorten the prompt" in page.page.locator(".answer .message").inner_text()
    page.ask("Short.", tokens=8)
    page.run()
    page.finish()
    assert page.store("run.end.finish") == "length"


def test_a_model_that_is_not_there_gives_a_reason(visit):
    """The message stands in the answer, and the model before goes on working."""
    page = visit()
    page.page.get_by_text("Settings", exact=True).click()
    box = page.page.locator("#recap-model input")
    box.fill("/no/such/folder")
    box.press("Enter")
    page.ask("Hello.", tokens=8)
    page.run()
    page.finish()
    assert "no folder" in page.page.locator(".answer .message").inner_text()
    box.fill(TINY)
    box.press("Enter")
    page.run()
    page.finish()
    assert page.store("run.end.finish") == "length"
