"""Load weights, tokenizer and image processor by name, with errors that say what to do.

    target = load_from_pretrained("Qwen/Qwen2.5-VL-7B-Instruct", ADAPTERS, device, dtype)

The configuration comes first: what cannot be served, or does not fit, is said before gigabytes are
fetched. A person at a terminal sees the bars of the hub client and of transformers; a program gets
`progress` calls.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from huggingface_hub import HfApi, snapshot_download
from huggingface_hub.errors import DryRunError, HfHubHTTPError, LocalEntryNotFoundError
from tqdm.auto import tqdm
from transformers import AutoConfig, PreTrainedConfig
from transformers.utils import logging

from recap.errors import ModelError, RecapError
from recap.known import Source, locate
from recap.targets.attention import TREE_ATTENTION
from recap.targets.failures import UNREACHABLE, explain, is_out_of_memory
from recap.targets.placement import place, quantization, too_large, weight_bytes

if TYPE_CHECKING:
    from recap.targets.base import Target

#: Told what is being done, and the share of it that is done: in [0, 1], None where unknown.
Progress = Callable[[str, float | None], None]
#: Files of a repository that loading needs; weights only as safetensors.
_WHICH: dict[str, Any] = {
    "allow_patterns": ["*.safetensors", "*.json", "*.jinja", "*.txt", "*.model"],
    "ignore_patterns": ["*/*"],
}
#: Seconds within which Hugging Face has to answer.
_PATIENCE = 10.0


def load_from_pretrained(
    name: str,
    adapters: Mapping[str, type[Target]],
    device: torch.device,
    dtype: torch.dtype,
    *,
    quantize: str | None = None,
    progress: Progress | None = None,
    **bounds: int | None,
) -> Target:
    """A target from a known name, a local folder or a Hugging Face id.

    `quantize` is `4bit` or `8bit`; `bounds` are `min_pixels` and `max_pixels`. Raises `ModelError`
    that says what to do, or `SettingsError`.
    """
    tell = progress or _say_nothing
    bounds = {key: value for key, value in bounds.items() if value is not None}
    source = locate(name)
    tell("Reading the configuration", None)
    if not source.is_local:
        source = _fetch(name, None, _reached, source)
    config, adapter = _configuration(name, source, adapters)
    saved_with = getattr(config, "transformers_version", None)
    refuse_bounds(name, adapter, bounds)
    fewer_bits = quantization(quantize, dtype)
    needed = _fetch(name, saved_with, weight_bytes, adapter.auto_model, config, dtype, quantize)
    placed = place(name, needed, device, dtype, quantize)
    if fewer_bits and not placed:
        placed = {"device_map": {"": device}}  # quantised weights cannot be moved afterwards
    where = source.where
    if not source.is_local:
        where = _fetch(name, saved_with, _download, where, progress)
    tell("Loading the tokenizer", None)
    parts = _fetch(name, saved_with, adapter.load_processors, where, **source.options)
    tell("Loading the weights", None)
    try:
        with _weights_told(progress):
            model, report = _fetch(
                name,
                saved_with,
                adapter.auto_model.from_pretrained,
                where,
                config=config,
                dtype=dtype,
                attn_implementation=TREE_ATTENTION,
                output_loading_info=True,
                **source.options,
                **fewer_bits,
                **placed,
            )
        if not placed:
            model = model.to(device)
    except ModelError:
        raise
    except Exception as error:
        if not is_out_of_memory(error):
            raise
        raise ModelError(too_large(name, device, dtype, needed, None, quantize)) from None
    if report["missing_keys"]:
        some = sorted(report["missing_keys"])
        raise ModelError(
            f"{name} is incomplete: {len(some)} of its weights are missing, {some[0]} first. "
            "Fetch it again."
        )
    tell("Ready", 1.0)
    return adapter(model, **parts, name=name, **bounds)


def refuse_bounds(name: str, adapter: type[Target], bounds: Mapping[str, int | None]) -> None:
    """Raise `ModelError` where a picture is bounded for a model that takes none."""
    given = [bound for bound, value in bounds.items() if value is not None]
    if given and not adapter.takes_pictures:
        raise ModelError(f"{name} reads text only: leave out {' and '.join(given)}.")


def _configuration(
    name: str, source: Source, adapters: Mapping[str, type[Target]]
) -> tuple[Any, type[Target]]:
    """(the model's configuration, its family's adapter). Raises `ModelError`."""
    try:
        config = AutoConfig.from_pretrained(source.where, **source.options)
    except Exception as error:  # see `_fetch`
        raise ModelError(explain(name, error, _saved_with(source))) from error
    adapter = adapters.get(config.model_type)
    if adapter is None:
        raise ModelError(
            f"{name} is of type {config.model_type!r}, which is not supported. "
            f"Supported: {', '.join(sorted(adapters))}."
        )
    return config, adapter


def _reached(source: Source) -> Source:
    """The repository, or its copy in the cache where Hugging Face does not answer or refuses.

    Asked once and before anything else: the client's own downloads try again for half a minute.
    """
    try:
        HfApi().model_info(source.where, timeout=_PATIENCE)
    except (*UNREACHABLE, HfHubHTTPError):
        with suppress(LocalEntryNotFoundError):
            return Source(snapshot_download(source.where, **_WHICH, local_files_only=True))
        raise  # what Hugging Face said, not that there is no copy
    return source


def _saved_with(source: Source) -> str | None:
    """The transformers version that a checkpoint names, if its configuration can be read at all."""
    try:
        raw, _ = PreTrainedConfig.get_config_dict(
            source.where, local_files_only=True, **source.options
        )
    except Exception:  # what is wrong with it is being explained already
        return None
    return raw.get("transformers_version")


def _download(repository: str, progress: Progress | None) -> str:
    """Fetch what loading needs of a repository. Returns the folder in the cache.

    Without safetensors in it the repository itself is returned: transformers knows older formats.
    """
    # Without anybody to tell, the client's own bars are left on for a person at a terminal.
    bars: dict[str, Any] = {"tqdm_class": _reporting(repository, progress)} if progress else {}
    folder = snapshot_download(repository, **_WHICH, **bars)
    return folder if any(Path(folder).glob("*.safetensors")) else repository


class _Unseen(tqdm):
    """A bar that draws nothing."""

    def __init__(self, *args: Any, **options: Any) -> None:
        options.pop("name", None)
        super().__init__(*args, **{**options, "file": io.StringIO(), "disable": False})


def _reporting(repository: str, progress: Progress) -> type[tqdm]:
    """A bar for the hub client that passes on the share of bytes that came."""
    try:
        planned = snapshot_download(repository, **_WHICH, dry_run=True, tqdm_class=_Unseen)
        total = sum(file.file_size or 0 for file in planned if file.will_download)
    except DryRunError:  # offline: what there is, is in the cache
        total = 0
    done = 0

    class Reporting(_Unseen):
        def update(self, n: float | None = 1) -> bool | None:
            nonlocal done
            drawn = super().update(n)
            # Files and bytes have bars of their own, and bytes may have two.
            if total and self.unit == "B" and self.n > done:
                done = self.n
                progress(f"Downloading {repository}", min(1.0, done / total))
            return drawn

    return Reporting


@contextmanager
def _weights_told(progress: Progress | None) -> Iterator[None]:
    """Pass on how many of the weights transformers has loaded, instead of drawing its bar."""
    if progress is None:
        yield
        return

    def tell(factory: Any, arguments: tuple[Any, ...], options: dict[str, Any]) -> Any:
        if not arguments or not hasattr(arguments[0], "__len__"):
            return factory(*arguments, **options)
        return counted(arguments[0])

    def counted(parts: Any) -> Iterator[Any]:
        for count, part in enumerate(parts, start=1):
            yield part
            progress("Loading the weights", count / len(parts))

    before = logging.set_tqdm_hook(tell)
    try:
        yield
    finally:
        logging.set_tqdm_hook(before)


def _say_nothing(text: str, share: float | None) -> None:
    """Nobody wants to know."""


def _fetch(name: str, saved_with: str | None, load: Any, *arguments: Any, **options: Any) -> Any:
    """Call one of the loaders and put its failures into words; out of memory is left as it is."""
    try:
        return load(*arguments, **options)
    except RecapError:
        raise
    except Exception as error:  # the hub client, safetensors and configs raise many kinds
        if is_out_of_memory(error):
            raise
        raise ModelError(explain(name, error, saved_with)) from error
