"""The first view, linked views, keys, themes and widths; what a model writes stays text."""

import json

import pytest

from app import assets
from app.exports import replay_html
from recap.trace import Trace

HOSTILE = (
    "<img src=x onerror=alert(1)>", "{{value}}", "${1+1}", "</script><script>alert(1)</script>",
    "&lt;b&gt;", "\u202eevil\u202c", "<svg/onload=alert(1)>",
)  # fmt: skip


def test_something_is_there_from_the_start(visit):
    """A bundled trace at a step with a story, captioned, and one prominent button."""
    page = visit()
    assert page.store("run.steps.length") > 3
    assert page.store("cursor") == assets.first_view().show
    assert page.page.locator(".caption").inner_text() == assets.first_view().caption
    assert not page.page.locator(".sentence").is_visible()  # one sentence, not two
    page.page.get_by_role("button", name="Run this yourself").wait_for()
    page.page.locator(".node.bonus").wait_for()


def test_views_are_linked(visit):
    """Hovering a token marks its node and the other way round; clicking opens its step."""
    page = visit()
    accepted = page.page.locator(".node.accepted").first
    accepted.hover()
    pointed = page.page.locator(".answer-text .tok.pointed")
    pointed.wait_for()
    index = int(pointed.get_attribute("data-index"))
    page.page.locator(".recap-view h2").first.hover()
    page.page.locator(f".answer-text .tok[data-index='{index}']").hover()
    page.page.locator(".node.accepted.pointed").wait_for()
    tip = page.page.locator(".tip")
    for word in ("Step", "Source", "Weight", "Probability"):
        assert word in tip.inner_text()
    last = page.store("run.tokens.length") - 1
    page.page.locator(f".answer-text .tok[data-index='{last}']").click()
    assert page.store("cursor") == page.store(f"run.tokens[{last}].step")
    page.page.locator(".inspector h3").wait_for()


def test_the_inspector_and_the_table_say_where_a_node_came_from(visit):
    page = visit()
    page.page.locator(".node.accepted").last.click()
    page.page.locator(".inspector h3").wait_for()
    text = page.page.locator(".inspector").inner_text()
    for word in ("Matched key", "Fused score", "Path score", "Popped", "specificity",
                 "concentration", "confidence", "weight", "The target at its parent"):  # fmt: skip
        assert word in text
    page.page.locator("details.table summary").click()
    rows = page.page.locator("details.table tbody tr")
    rows.first.wait_for()
    assert rows.count() == page.store("step.nodes.length")


def test_a_key_can_be_looked_up(visit):
    """What the run wrote under it, and what only the session's memory still holds."""
    page = visit()
    for prompt in ("Read the text.", "Describe the picture."):
        page.ask(prompt, tokens=12)
        page.run()
        page.finish()
        page.skip()
    page.page.get_by_role("tab", name="Memory").click()
    word = page.store("run.token(Recap.page.store.run.tokens[0].token).text")
    page.page.locator(".lookup input").fill(word)
    page.page.locator(".memory .hit").get_by_text("written").first.wait_for()
    assert page.page.locator(".memory .hit .predictions li").count() == 8
    page.page.wait_for_function("document.querySelector('.memory table tbody tr')")
    assert "of request" not in page.page.locator(".memory .hit").first.inner_text()


def test_sizes_and_what_a_step_overwrote(visit):
    """Bytes of every order, and as many keys as the step's numbers say."""
    page = visit()
    page.ask("Read the text.", tokens=12)
    page.run()
    page.finish()
    page.skip()
    page.page.get_by_role("tab", name="Memory").click()
    page.page.wait_for_function("document.querySelector('.memory table tbody tr')")
    rows = page.page.locator(".memory tbody tr")
    for row in range(rows.count()):
        cells = rows.nth(row).locator("td").all_inner_texts()
        assert cells[3].endswith("B"), cells
    # Not every step repeats a key: go to one that does.
    page.page.evaluate(
        """() => {
            const repeats = (step) => Object.values(step.writes).some(([, rows]) => rows.length);
            Recap.page.store.go(Recap.page.store.run.steps.findIndex(repeats));
        }"""
    )
    page.page.locator(".memory .overwritten summary").click()
    page.page.wait_for_function(
        """() => {
            const writes = Object.values(Recap.page.store.step.writes);
            const count = writes.reduce((sum, [, rows]) => sum + rows.length, 0);
            return count && document.querySelectorAll(".overwritten .key-words").length === count;
        }"""
    )


def test_keyboard_only(visit):
    """Steps, play, help; inside the tree and the answer; one tab stop each."""
    page = visit()
    page.key("Home")
    assert page.store("cursor") == 0
    page.key("ArrowRight", "ArrowRight", "ArrowLeft")
    assert page.store("cursor") == 1
    page.key("End")
    assert page.store("cursor") == page.store("run.steps.length") - 1
    page.key("r")
    page.key("?")
    page.page.locator("dialog.help").wait_for()
    page.page.keyboard.press("Escape")
    page.page.locator("dialog.help").wait_for(state="hidden")
    page.key("Home", " ")
    page.page.wait_for_function("Recap.page.store.cursor > 1")
    page.key(" ")
    stopped = page.store("cursor")
    page.page.wait_for_timeout(500)
    assert page.store("cursor") == stopped

    page.page.evaluate(f"Recap.page.store.go({assets.first_view().show})")
    page.page.wait_for_timeout(100)
    page.page.locator(".tree-svg").focus()
    page.page.keyboard.press("Home")
    assert page.store("selected") == -1
    page.page.keyboard.press("ArrowRight")
    first = page.store("selected")
    page.page.keyboard.press("End")
    assert page.store("selected") != first
    assert page.store("cursor") == assets.first_view().show

    answer = page.page.locator(".answer-text")
    answer.focus()
    page.page.keyboard.press("Home")
    page.page.keyboard.press("ArrowRight")
    page.page.keyboard.press("ArrowRight")
    page.page.keyboard.press("Enter")
    assert page.store("cursor") == page.store("run.tokens[2].step")

    stops = page.page.evaluate(
        "[...document.querySelectorAll('.answer-text, .tree-svg, .timeline-svg')]"
        ".map((e) => e.querySelectorAll('[tabindex=\"0\"]').length)"
    )
    assert stops == [0, 0, 0]


def test_a_large_tree_has_no_overlaps_on_the_page(visit):
    """All nodes shown: no two boxes overlap, and every label lies inside its own."""
    page = visit()
    show_all = page.page.get_by_role("button", name="Show all")
    if show_all.count():
        show_all.click()
    bad = page.page.evaluate(
        """() => {
        const nodes = [...document.querySelectorAll('.recap-view .tree-svg .node')];
        const shapes = nodes.map((n) => n.querySelector('.shape, rect').getBBox());
        let bad = 0;
        shapes.forEach((a, i) => shapes.forEach((b, j) => {
          if (i < j && a.x < b.x + b.width - .1 && b.x < a.x + a.width - .1 &&
              a.y < b.y + b.height - .1 && b.y < a.y + a.height - .1) bad++;
        }));
        nodes.forEach((n, i) => {
          const label = n.querySelector('.label'), score = n.querySelector('.score');
          if (!label) return;
          const box = label.getBBox(), limit = score && score.textContent
            ? score.getBBox().x : shapes[i].x + shapes[i].width;
          if (box.x + box.width > limit + .5) bad++;
        });
        return bad;
      }"""
    )
    assert bad == 0


@pytest.mark.parametrize("width", [320, 375, 900, 1280, 2560])
def test_no_horizontal_scroll(visit, width):
    page = visit(viewport={"width": width, "height": 800})
    assert page.page.evaluate("document.documentElement.scrollWidth") <= width


def test_the_columns(visit):
    """From 1280 px on Ask, Answer above Timeline, and Step side by side; below 900 px a stack."""
    page = visit(viewport={"width": 1280, "height": 800})

    def places(width):
        page.page.set_viewport_size({"width": width, "height": 800})
        page.page.wait_for_timeout(200)
        assert page.page.evaluate("document.documentElement.scrollWidth") <= width
        names = ("#recap-ask", ".panel.answer", ".panel.timeline", ".panel.step")
        return [page.page.locator(name).bounding_box() for name in names]

    for width, widest in ((1280, 360), (1440, 420), (1920, 421)):
        ask, answer, timeline, step = places(width)
        assert 290 <= ask["width"] <= 310
        assert 320 <= answer["width"] <= widest
        assert ask["x"] + ask["width"] <= answer["x"]
        assert answer["x"] == timeline["x"]
        assert answer["y"] + answer["height"] <= timeline["y"]
        assert answer["x"] + answer["width"] <= step["x"]
        assert abs(answer["y"] - step["y"]) < 2
        assert step["width"] > 540
    for width in (1100, 1000):  # beside the form, Answer and Timeline stand above the Step
        ask, answer, timeline, step = places(width)
        assert ask["x"] + ask["width"] <= answer["x"]
        assert timeline["y"] + timeline["height"] <= step["y"]
    tops = [box["y"] for box in places(899)]
    assert tops == sorted(tops)
    assert len(set(tops)) == 4


def test_dark(visit):
    """Dark by the system's wish and by the button; text keeps its contrast."""
    page = visit("/?__theme=dark", color_scheme="dark", viewport={"width": 375, "height": 800})
    assert page.page.evaluate("document.documentElement.scrollWidth") <= 375
    assert _contrasts(page, "dark") == []
    page.page.get_by_role("button", name="Switch to the light theme").click()
    assert _contrasts(page, "light") == []


def _contrasts(page, theme):
    """Visible words of ours whose contrast with what lies behind them is below 4.5."""
    page.page.wait_for_timeout(200)
    return page.page.evaluate(
        """() => {
        const rgb = (c) => {
          const canvas = document.createElement('canvas').getContext('2d');
          canvas.fillStyle = c; canvas.fillRect(0, 0, 1, 1);
          return [...canvas.getImageData(0, 0, 1, 1).data];
        };
        const lum = ([r, g, b]) => [r, g, b].map((v) => v / 255)
          .map((v) => v <= .03928 ? v / 12.92 : ((v + .055) / 1.055) ** 2.4)
          .reduce((s, v, i) => s + v * [.2126, .7152, .0722][i], 0);
        const behind = (e) => {
          let over = [];
          for (let at = e; at; at = at.parentElement) {
            const c = rgb(getComputedStyle(at).backgroundColor);
            if (c[3]) over.push(c);
            if (c[3] === 255) break;
          }
          let base = [255, 255, 255];
          for (const [r, g, b, a] of over.reverse())
            base = [r, g, b].map((v, i) => v * a / 255 + base[i] * (1 - a / 255));
          return base;
        };
        const bad = [];
        for (const e of document.querySelectorAll('.recap-view *, .recap-head *, .recap-tab *')) {
          if (!e.checkVisibility({ checkOpacity: true })) continue;
          if (e.closest('svg, :disabled')) continue;
          if (![...e.childNodes].some((n) => n.nodeType === 3 && n.data.trim())) continue;
          const both = [lum(rgb(getComputedStyle(e).color)), lum(behind(e))];
          const [a, b] = both.sort((x, y) => y - x);
          const ratio = (a + .05) / (b + .05);
          if (ratio < 4.5) bad.push(`${e.tagName}.${e.className}: ${ratio.toFixed(2)}`);
        }
        return bad;
      }"""
    )


#: Every source in every state, drawn with the page's own classes; contrasts below 4.5.
_EVERY_TOKEN = """() => {
  const { h, s } = Recap, bad = [];
  const rgb = (c) => {
    const canvas = document.createElement('canvas').getContext('2d');
    canvas.fillStyle = c; canvas.fillRect(0, 0, 1, 1);
    return [...canvas.getImageData(0, 0, 1, 1).data];
  };
  const over = ([r, g, b, a], [x, y, z], alpha = 1) =>
    [[r, x], [g, y], [b, z]].map(([v, w]) => v * a * alpha / 255 + w * (1 - a * alpha / 255));
  const lum = (c) => c.slice(0, 3).map((v) => v / 255)
    .map((v) => v <= .03928 ? v / 12.92 : ((v + .055) / 1.055) ** 2.4)
    .reduce((sum, v, i) => sum + v * [.2126, .7152, .0722][i], 0);
  const check = (name, ink, ground) => {
    const [a, b] = [lum(ink), lum(ground)].sort((x, y) => y - x);
    if ((a + .05) / (b + .05) < 4.5) bad.push(`${name}: ${((a + .05) / (b + .05)).toFixed(2)}`);
  };
  const view = document.querySelector('.recap-view .answer-text');
  const paper = rgb(getComputedStyle(document.querySelector('.recap-view .panel')).backgroundColor);
  let count = 0;
  for (const [name, source] of Object.entries(Recap.SOURCES)) {
    for (const state of ['', 'now', 'later']) {
      const token = view.appendChild(h('span', { class: `tok ${source.css} ${state}` }, 'word'));
      const style = getComputedStyle(token);
      if (style.opacity !== '1') bad.push(`${name} ${state}: opacity`);
      check(`token ${name} ${state}`, rgb(style.color), over(rgb(style.backgroundColor), paper));
      token.remove();
      count++;
    }
    for (const state of ['accepted', 'rejected', 'unreached', 'bonus', 'root']) {
      const shape = s('rect', { class: 'shape' }), tab = s('path', { class: 'tab' });
      const glyph = s('text', { class: 'glyph' }, '1'), mark = s('tspan', { class: 'mark' }, '.');
      const label = s('text', { class: 'label' }, 'word', mark);
      const score = s('text', { class: 'score' }, '.5');
      const parts = [shape, tab, glyph, label, score];
      const node = s('g', { class: `node ${state} ${source.css}` }, parts);
      document.querySelector('.tree-svg').append(node);
      const fill = (e) => rgb(getComputedStyle(e).fill);
      const ground = over(fill(shape), paper);
      check(`label ${name} ${state}`, fill(label), ground);
      if (state === 'accepted' || state === 'rejected')
        check(`score ${name} ${state}`, fill(score), ground);
      const opaque = +getComputedStyle(tab).fillOpacity;
      if (state !== 'bonus' && state !== 'root')
        check(`glyph ${name} ${state}`, fill(glyph), over(fill(tab), ground, opaque));
      node.remove();
      count++;
    }
  }
  return [count, bad];
}"""


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_every_token_can_be_read_in_both_modes(visit, theme):
    """Words on all tints, in the answer and in the tree, whatever occurs in this one trace."""
    page = visit(f"/?__theme={theme}", color_scheme=theme)
    count, bad = page.page.evaluate(_EVERY_TOKEN)
    assert count == 9 * (3 + 5)
    assert bad == []


def test_nothing_moves_for_those_who_do_not_want_it(visit):
    """With reduced motion no animation runs on the page while a run goes on; without, one does."""
    running = "document.getAnimations().filter((a) => a.playState === 'running').length"
    for wish, moves in (("no-preference", True), ("reduce", False)):
        page = visit(reduced_motion=wish)
        # The look of a run that goes on, for as long as it takes to look.
        page.page.evaluate("document.querySelector('.answer .state').className = 'state running'")
        page.page.wait_for_timeout(400)
        assert (page.page.evaluate(running) > 0) is moves


def test_screen_readers_hear_one_summary_a_second(visit):
    """Ten steps in a moment are one announcement, that of the last; nothing is said meanwhile."""
    page = visit()
    page.page.wait_for_timeout(1200)  # what the first view says
    page.page.evaluate(
        """() => {
        const said = document.querySelector('.step [role=status]');
        globalThis.heard = [];
        new MutationObserver(() => heard.push(said.textContent))
          .observe(said, { childList: true, characterData: true, subtree: true });
      }"""
    )
    page.page.clock.install()
    shown = page.store("cursor")  # what was said already is not said again
    presses = 9 if shown == 10 else 10
    page.key("Home")
    for _ in range(presses):
        page.page.keyboard.press("ArrowRight")
        page.page.clock.run_for(40)
    assert page.page.evaluate("heard") == []
    for _ in range(4):  # a busy page may still have to take the keys in
        page.page.clock.run_for(500)
        if page.page.evaluate("heard.length"):
            break
    page.page.clock.run_for(500)
    assert len(page.page.evaluate("heard")) == 1
    assert page.page.evaluate("heard[0]").startswith(f"Step {presses + 1}:")


def test_the_tour_points_at_what_is_there(visit):
    """Five steps by keyboard alone; the browser remembers that it was seen; Escape gives back."""
    page = visit()
    guide = page.page.locator(".recap-head .guide")
    assert "fresh" in guide.get_attribute("class")
    guide.focus()
    page.page.keyboard.press("Enter")
    card = page.page.locator(".tour-card")
    for number in range(1, 6):
        assert f"{number} of 5" in card.inner_text()
        frame = page.page.locator(".tour-frame").bounding_box()
        assert frame["width"] > 20
        box = card.bounding_box()
        assert box["x"] >= 0
        assert box["y"] >= 0
        assert box["x"] + box["width"] <= 1280
        assert box["y"] + box["height"] <= 900
        page.page.keyboard.press("ArrowRight" if number < 5 else "ArrowLeft")
    assert "4 of 5" in card.inner_text()
    page.page.keyboard.press("Escape")
    assert not card.is_visible()
    assert page.page.evaluate("document.activeElement.textContent") == "What am I looking at?"
    page.page.reload()
    page.page.wait_for_function("globalThis.Recap?.page?.parts")
    assert "fresh" not in page.page.locator(".recap-head .guide").get_attribute("class")


def test_words_are_defined(visit):
    """In the help, and on the words of the inspector themselves."""
    page = visit()
    page.page.locator(".node.rejected").first.click()
    page.page.locator(".inspector h3").wait_for()
    words = page.page.locator(".inspector dt").evaluate_all(
        "(e) => e.map((d) => [d.textContent, d.title])"
    )
    assert len(words) > 5
    assert [word for word, meaning in words if not meaning] == []
    page.key("?")
    text = page.page.locator("dialog.help").inner_text()
    for word in ("token", "MAT", "bonus", "fused score", "1-token memory", "rejected", "prefill"):
        assert word in text


def test_what_a_model_writes_stays_text(visit, tmp_path):
    """Tokens spelled like markup and templates are shown letter by letter, everywhere."""
    trace = assets.first_view().trace
    data = json.loads(trace.dumps())
    for number, word in enumerate(data["vocabulary"].values()):
        word["text"] = HOSTILE[number % len(HOSTILE)]
    data["prompt"] = HOSTILE[0]
    path = tmp_path / "hostile.json"
    path.write_text(json.dumps(data), "utf-8")
    page = visit()
    asked = []
    page.page.on("dialog", lambda dialog: (asked.append(dialog.message), dialog.dismiss()))
    page.page.get_by_role("tab", name="Take away").click()
    page.page.locator("#recap-away input[type=file]").set_input_files(path)
    page.page.wait_for_function("Recap.page.store.serial > 0")
    page.page.wait_for_timeout(300)
    _assert_inert(page, asked)
    page.page.locator(".node.accepted, .node.rejected, .node.unreached").first.click()
    page.page.locator("details.table summary").click()
    page.page.get_by_label("Spaces and bytes").check()
    page.page.get_by_role("tab", name="Numbers").click()
    page.page.wait_for_timeout(300)
    _assert_inert(page, asked)
    assert HOSTILE[1] in page.page.evaluate("document.querySelector('details.table').textContent")
    # The same in the replay file, where the data lies inside a script element.
    replay = tmp_path / "hostile.html"
    replay.write_text(replay_html(Trace.load(path)), "utf-8")
    page.page.goto(replay.as_uri())
    page.page.wait_for_selector(".tree-svg .node")
    _assert_inert(page, asked)


def _assert_inert(page, asked):
    assert asked == []
    assert page.page.locator(".recap-view img, .recap-view script").count() == 0
    assert page.page.evaluate("document.querySelectorAll('svg svg').length") == 0
