"""The page: what stands where, and which event calls what."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import gradio as gr
from starlette.middleware import Middleware

from app import assets, components
from app.api import endpoint
from app.events import Events
from app.guard import Guard
from app.hosting import Host
from app.line import Turnstile
from app.logs import keep_contents_out
from app.models import ModelShelf
from app.payload import of_trace
from app.settings_form import SettingsForm
from app.state import SessionState
from app.uploads import note_uploads
from recap.drafters import METHODS

_TITLE = "RECAP visualizer"

#: Seconds between two looks of Gradio's queue for new events.
_QUEUE_LOOKS = 0.02
_QUIET = {"show_progress": "hidden", "api_visibility": "private"}
_PROMPT = "Describe this picture in detail."


@dataclass
class Ask:
    """The components of the form."""

    picture: Any
    prompt: Any
    method: Any
    limit: Any
    model: Any
    run: Any
    stop: Any
    clear: Any
    reset: Any
    notice: Any
    look: Any
    memory: Any
    form: SettingsForm

    @property
    def inputs(self) -> list[Any]:
        """What a run is made of, in the order that `Events.run` takes it."""
        return [
            self.picture, self.prompt, self.method, self.limit, self.model,
            *self.form.components,
        ]  # fmt: skip


def build(shelf: ModelShelf, turnstile: Turnstile) -> gr.Blocks:
    """The whole page around one shared model."""
    with gr.Blocks(title=_TITLE, fill_width=True, analytics_enabled=False) as page:
        state = gr.State(SessionState(), delete_callback=SessionState.stop)
        components.header()
        with gr.Row(elem_id="recap-columns", equal_height=False):
            with gr.Column(elem_id="recap-ask", scale=0, min_width=300):
                ask = _ask(shelf)
            with gr.Column(scale=1, min_width=320):
                view = components.view(_first_value())
        with gr.Tabs(elem_id="recap-tabs"):
            with gr.Tab("Race"):
                race = _race()
            with gr.Tab("Numbers"):
                components.panel("mountNumbers", elem_id="recap-numbers")
            with gr.Tab("Memory"):
                memory = components.panel("mountMemory", elem_id="recap-memory", event="lookup")
            with gr.Tab("Take away"):
                away = _take_away()
        events = Events(ask.form, shelf, turnstile)
        _wire(ask, state, view, events)
        memory.lookup(
            events.look_up, state, memory, queue=False, show_progress="hidden",
            api_visibility="private",
        )  # fmt: skip
        _wire_race(race, ask, state, events)
        _wire_away(away, ask, state, view, events)
        _wire_link(page, ask, state, events)
        gr.api(endpoint(shelf, turnstile, page), api_name="decode", concurrency_limit=None)
    # Runs stand in a line of their own (`app.line`). This one lets all of them through to it, and
    # only keeps a flood of events from being taken in at all.
    page.queue(default_concurrency_limit=None, max_size=4 * shelf.host.queue_length + 64)
    # It looks for events so often (every millisecond, except on Windows) that an idle page takes
    # a tenth of a slow core from decoding.
    page._queue.sleep_when_free = _QUEUE_LOOKS
    return page


def launch_options(host: Host) -> dict[str, Any]:
    """What `launch` needs to show the page as it is meant: scripts, styles, theme, limits."""
    keep_contents_out()
    note_uploads()
    all_files = host.uploads_mb * 1_000_000
    most = min(host.max_file_mb * 1_000_000, all_files)
    # Styles go into the head as they are: Gradio rewrites `css` and loses container queries.
    style, script = assets.style("recap.css", "page.css"), assets.script(assets.PAGE_SCRIPTS)
    return {
        "theme": _theme(),
        "head": f"<style>{style}</style><script>{script}</script>",
        "max_file_size": most,
        # Everybody in the line takes up a thread for most of the time.
        "max_threads": host.queue_length + 40,
        "state_session_capacity": host.sessions,
        "app_kwargs": {
            "middleware": [
                Middleware(Guard, max_file=most, all_files=all_files, grace=host.grace_seconds)
            ],
        },
        # Neither a record of what visitors asked, nor a view of the traffic.
        "run_history": False,
        "enable_monitoring": False,
        "footer_links": ["api"],
        "ssr_mode": False,
    }


def _theme() -> gr.themes.Base:
    """Ink on paper, in the reader's own fonts: nothing is fetched."""
    sans = ["system-ui", "-apple-system", "Segoe UI", "Roboto", "sans-serif"]
    mono = ["ui-monospace", "SF Mono", "Menlo", "Consolas", "monospace"]
    theme = gr.themes.Base(
        primary_hue="neutral", secondary_hue="neutral", neutral_hue="neutral",
        text_size="sm", spacing_size="sm", radius_size="md", font=sans, font_mono=mono,
    )  # fmt: skip
    return theme.set(
        body_background_fill="#fafaf8",
        body_background_fill_dark="#111316",
        block_background_fill_dark="#1a1d21",
        block_border_width="1px",
        block_label_background_fill="#ffffff",
        button_primary_background_fill="#17191c",
        button_primary_background_fill_hover="#3a3f45",
        button_primary_text_color="#ffffff",
        button_primary_background_fill_dark="#ebecee",
        button_primary_background_fill_hover_dark="#ffffff",
        button_primary_text_color_dark="#17191c",
        body_text_color_subdued="#565c63",
        body_text_color_subdued_dark="#a9b0b8",
        block_info_text_color="#565c63",
        block_info_text_color_dark="#a9b0b8",
    )


def _first_value() -> dict[str, Any] | None:
    first = assets.first_view()
    if first is None:
        return None
    return of_trace(first.trace, 0, caption=first.caption, show=first.show)


def _ask(shelf: ModelShelf) -> Ask:
    examples = assets.examples()
    first = assets.first_view()
    chosen = examples[first.example] if first and first.example is not None and examples else None
    if chosen is None and examples:
        chosen = examples[0]
    prompt = (first.trace.prompt if first else None) or (chosen.prompt if chosen else _PROMPT)
    picture = components.picture(
        value=str(chosen.image) if chosen and chosen.image else None,
        label="Picture (optional)",
        sources=["upload", "clipboard", "webcam"],
        height=190,
        elem_id="recap-picture",
        buttons=[],
    )
    look = components.notice("recap-picture-notice")
    prompt_box = gr.Textbox(
        value=prompt, label="Prompt", lines=2, max_lines=6, elem_id="recap-prompt",
        placeholder="What do you want to know?",
    )  # fmt: skip
    notice = components.notice("recap-ask-notice")
    with gr.Row(elem_classes="gap-tight"):
        run = gr.Button(
            "Run this yourself", variant="primary", elem_id="recap-run", scale=2, min_width=80
        )
        stop = gr.Button("Stop", elem_id="recap-stop", scale=1, min_width=60, interactive=False)
    if examples:
        gr.Examples(
            [
                [str(example.image) if example.image else None, example.prompt]
                for example in examples
            ],
            inputs=[picture, prompt_box],
            label="Examples",
            elem_id="recap-examples",
            examples_per_page=5,
        )
    chosen_method = first.trace.method if first else "recap"
    method = gr.Radio(
        [(known.title, name) for name, known in METHODS.items()],
        value=chosen_method,
        label="Method",
        elem_id="recap-method",
    )
    most = shelf.host.max_new_tokens
    limit = gr.Slider(
        1, most, value=min(160, most), step=1, label="Max new tokens", elem_id="recap-limit"
    )
    with gr.Accordion("Settings", open=False, elem_id="recap-settings"):
        model = gr.Dropdown(
            shelf.choices(), value=shelf.default, label="Model", elem_id="recap-model",
            allow_custom_value=shelf.open,
            info="The target: it decides every token.",
        )  # fmt: skip
        memory = components.notice("recap-memory-size")
        with gr.Row(elem_classes="gap-tight"):
            clear = gr.Button("Clear memory", size="sm", min_width=80, elem_id="recap-clear")
            reset = gr.Button("Reset settings", size="sm", min_width=80, elem_id="recap-reset")
        form = SettingsForm(chosen_method)
    return Ask(
        picture, prompt_box, method, limit, model, run, stop, clear, reset, notice, look, memory,
        form,
    )  # fmt: skip


@dataclass
class RaceTab:
    """The components of the Race tab."""

    methods: Any
    cold: Any
    start: Any
    stop: Any
    notice: Any
    lanes: Any
    chart: Any


def _race() -> RaceTab:
    with gr.Row(elem_classes="gap-tight", elem_id="recap-race-form", equal_height=False):
        methods = gr.CheckboxGroup(
            [(known.title, name) for name, known in METHODS.items()],
            value=["recap", "token-recycling", "autoregressive"],
            label="Who races", elem_id="recap-race-methods", scale=3, min_width=280,
        )  # fmt: skip
        cold = gr.Checkbox(
            False, label="Start all cold", elem_id="recap-race-cold", scale=1, min_width=160,
            info="Every lane begins with an empty memory.",
        )  # fmt: skip
        start = gr.Button("Race", elem_id="recap-race", scale=0, min_width=96)
        stop = gr.Button("Stop", elem_id="recap-race-stop", scale=0, min_width=64,
                         interactive=False)  # fmt: skip
    notice = components.notice("recap-race-notice")
    lanes = components.panel("mountRace", elem_id="recap-race-lanes")
    chart = gr.Plot(visible=False, label="Tokens over compute time", elem_id="recap-race-chart")
    return RaceTab(methods, cold, start, stop, notice, lanes, chart)


def _wire_race(race: RaceTab, ask: Ask, state: gr.State, events: Events) -> None:
    _start_and_stop(
        race.start.click, "race", [race.notice, race.stop],
        (events.race, [state, *ask.inputs, race.methods, race.cold], race.lanes),
        (events.race_settled, state, [race.notice, race.chart]),
    )  # fmt: skip
    race.stop.click(events.stop, state, None, queue=False, **_QUIET)


def _start_and_stop(
    trigger: Callable[..., Any],
    kind: str,
    shown: list[Any],
    event: tuple[Any, ...],
    settled: tuple[Any, ...],
) -> None:
    """Let `trigger` start an event whose only output is what grows, and `settled` come behind it.

    That the old notice goes and Stop can be pressed (`shown`) is the browser's business: the
    server is busy with decoding.
    """
    often = {"trigger_mode": "multiple", **_QUIET}
    trigger(None, None, shown, js=f"() => Recap.began('{kind}')", **often)
    started = trigger(*event, **often)
    for behind in (started.then, started.failure):  # of these one comes, never both
        behind(None, None, shown[-1], js=f"() => Recap.ended('{kind}')", **often)
        behind(*settled, queue=False, **often)


@dataclass
class Away:
    """The components of the Take away tab."""

    exports: dict[str, Any]
    svg: Any
    link: Any
    load: Any
    notice: Any
    parcel: Any


def _take_away() -> Away:
    titles = {"trace": "Trace (JSON)", "steps": "Steps (CSV)", "replay": "Replay (HTML)"}
    components.note(
        "The run shown above, to keep or to pass on. The replay opens in any browser, without a "
        "server; a trace can be loaded here again, without a model. A link reopens the form and "
        "the step, but holds no picture."
    )
    with gr.Row(elem_classes="gap-tight", elem_id="recap-away"):
        exports = {
            kind: gr.Button(title, size="sm", min_width=120, elem_id=f"recap-export-{kind}")
            for kind, title in titles.items()
        }
        svg = gr.Button("Shown step (SVG)", size="sm", min_width=120, elem_id="recap-export-svg")
        link = gr.Button("Copy a link", size="sm", min_width=120, elem_id="recap-link")
        load = components.file_button(
            "Load a trace…", size="sm", min_width=120, file_types=[".json"], elem_id="recap-load",
        )  # fmt: skip
    notice = components.notice("recap-load-notice")
    return Away(exports, svg, link, load, notice, components.parcel())


def _wire_away(away: Away, ask: Ask, state: gr.State, view: gr.HTML, events: Events) -> None:
    # A large trace takes hundreds of MB while it is read or written.
    few = {"concurrency_limit": 2, "concurrency_id": "files"}
    for kind, button in away.exports.items():
        button.click(events.export(kind), state, away.parcel, **_QUIET, **few)
    away.svg.click(None, js="() => Recap.saveSvg()")
    away.link.click(
        events.link,
        [ask.picture, ask.prompt, ask.method, ask.limit, ask.model, *ask.form.components],
        away.parcel,
        **_QUIET,
    )
    away.load.upload(events.load_trace, [state, away.load], [view, away.notice], **_QUIET, **few)


def _wire(ask: Ask, state: gr.State, view: gr.HTML, events: Events) -> None:
    """Which event calls what."""
    for trigger in (ask.run.click, ask.prompt.submit):
        _start_and_stop(
            trigger, "run", [ask.notice, ask.run, ask.stop],
            (events.run, [state, *ask.inputs], view),
            (events.settled, state, [ask.notice, ask.memory]),
        )  # fmt: skip
    quiet = {"queue": False, **_QUIET}
    ask.stop.click(events.stop, state, None, **quiet)
    ask.picture.change(events.look, [ask.picture, ask.model], ask.look, **quiet)
    ask.clear.click(events.clear, state, ask.memory, **quiet)
    ask.reset.click(ask.form.defaults, ask.method, ask.form.components, **quiet)
    # In the browser: nothing that is changed, and no run that is started, comes in between. Only
    # what a visitor does counts: a link that sets the method brings settings of its own.
    ask.method.input(
        None, ask.method, ask.form.differing, api_visibility="private",
        js=f"(method) => ({json.dumps(ask.form.presets)})[method]",
    )  # fmt: skip


def _wire_link(page: gr.Blocks, ask: Ask, state: gr.State, events: Events) -> None:
    """Open the link in the page's address, if there is one.

    The server answers while the page is in use already, so its answer is no output of the form: the
    browser fills in what is still as it was served, at once.
    """
    served = json.dumps([component.value for component in ask.inputs])
    page.load(
        events.open_link, state, ask.notice,
        queue=False, **_QUIET,
    ).then(
        None, [ask.notice, *ask.inputs], ask.inputs, api_visibility="private",
        js=f"(notice, ...now) => Recap.openForm(notice && notice.form, now, {served})",
    )  # fmt: skip
