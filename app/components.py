"""Our Gradio components: static templates whose content is drawn by our own scripts.

Values only reach the page through `watch` and text nodes, never through a template: Gradio
evaluates templates, and what a model writes must stay text.
"""

from __future__ import annotations

import html
from typing import Any

import gradio as gr
from gradio.data_classes import FileData, ImageData


def picture(**options: Any) -> gr.Image:
    """An image input that hands over the path of the uploaded file as it is.

    The engine decodes it: it knows bombs, broken files and rotations, and says what is wrong.

    Events may set its value, but must not return an update (`gr.Image(...)`, `gr.skip()`) for it:
    Gradio would then make a new component, without what is changed here. A subclass would be no
    better, since Gradio writes a stub file beside every module that has one.
    """
    component = gr.Image(type="filepath", image_mode=None, **options)
    decoded = component.preprocess

    def preprocess(payload: ImageData | None) -> Any:
        # Gradio's own way would open the file, and fail without our words.
        return payload.path if payload is not None and payload.path else decoded(payload)

    component.preprocess = preprocess
    return component


def file_button(label: str, **options: Any) -> gr.UploadButton:
    """A button that hands over the path of the uploaded file as it is.

    Gradio's own way leaves an empty file behind at every use.
    """
    component = gr.UploadButton(label, type="filepath", file_count="single", **options)

    def preprocess(payload: FileData | None) -> str | None:
        return payload.path if payload is not None else None

    component.preprocess = preprocess
    return component


def static_html(
    template: str, mount: str, value: Any = None, *, event: str = "", **options: Any
) -> gr.HTML:
    """A component with a fixed template, filled by `Recap.<mount>(element, props, watch, send)`.

    Scripts may arrive after the component, so it waits for them. `send(data)` triggers `event`,
    whose name Gradio looks for in the script's text.
    """
    send = f"(data) => trigger('{event}', data)" if event else "null"
    return gr.HTML(
        value,
        html_template=template,
        js_on_load=(
            "(function wait() {"
            f" if (globalThis.Recap && Recap.{mount}) Recap.{mount}(element, props, watch, {send});"
            " else setTimeout(wait, 20); })();"
        ),
        apply_default_css=False,
        **options,
    )


def view(value: Any) -> gr.HTML:
    """Answer, timeline and step of one run."""
    return static_html('<div class="recap-root"></div>', "mountPage", value, elem_id="recap-view")


def notice(elem_id: str) -> gr.HTML:
    """A place for a message: {"text", "info"}."""
    return static_html(
        '<div class="recap-notice" role="alert"></div>', "mountNotice", None, elem_id=elem_id
    )


def note(text: str) -> gr.HTML:
    """A quiet sentence of our own; not for what others write."""
    return gr.HTML(html_template=f'<p class="recap-note">{html.escape(text)}</p>')


def parcel() -> gr.HTML:
    """What the browser saves as a file or copies as a link."""
    return static_html(
        '<div class="recap-copied" role="status"></div>', "mountParcel", elem_id="recap-parcel"
    )


def header() -> gr.HTML:
    """Name, one line, model, theme."""
    return static_html(
        '<div class="recap-head"><h1>RECAP</h1>'
        '<span class="line">Watch a vision-language model’s own predictions become its drafts.'
        '</span><span class="right"></span></div>',
        "mountHeader",
        elem_id="recap-header",
    )


def panel(mount: str, value: Any = None, **options: Any) -> gr.HTML:
    """A tab's content, drawn from the store or from its own value."""
    return static_html('<div class="recap-root"></div>', mount, value, **options)
