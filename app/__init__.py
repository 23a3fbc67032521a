"""The visualizer: a Gradio page on the engine's steps and traces. `recap` never imports it."""
