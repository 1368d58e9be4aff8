"""`manylabel predict`: tags for images, from one photo to a folder of millions."""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Container, Iterable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from itertools import chain, islice
from pathlib import Path
from typing import Annotated, Literal

import typer

from manylabel.cli.tag_results import TagResults
from manylabel.errors import ConfigError, ManyLabelError
from manylabel.progress import ProgressBar
from manylabel.storage import refuse_existing

__all__ = ["predict"]


def predict(
    paths: Annotated[
        list[str],
        typer.Argument(help="Images, folders (recursive) or glob patterns; - reads a list from stdin."),
    ],
    model: Annotated[
        str, typer.Option(help="Model or run folder, .onnx file, hub name or builtin:NAME.")
    ] = "builtin:coco80",
    out: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write the tags to a .jsonl or .csv file or a .parquet folder.")
    ] = None,
    top: Annotated[
        int | None, typer.Option(min=1, help="Number of tags per image (default: all above the threshold).")
    ] = None,
    threshold: Annotated[
        str | None,
        typer.Option(
            metavar="T|tuned", help="Score threshold (default: tuned thresholds if the model has them, else 0.5)."
        ),
    ] = None,
    copy_to: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Copy each image into one folder per tag.")
    ] = None,
    sidecar: Annotated[
        Literal["txt", "xmp"] | None, typer.Option(help="Write the tags of each image to a file next to it.")
    ] = None,
    labels: Annotated[
        str | None,
        typer.Option(help="Other labels, such as cat,dog, or a file with one per line (zero-shot models only)."),
    ] = None,
    allow_urls: Annotated[bool, typer.Option("--allow-urls", help="Download images given as http(s) URLs.")] = False,
    resume: Annotated[
        bool, typer.Option("--resume", help="Resume an interrupted run: skip images already in FILE.")
    ] = False,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace existing files.")] = False,
    batch_size: Annotated[int, typer.Option(min=1, help="Images per batch.")] = 32,
    workers: Annotated[
        int | None,
        typer.Option(min=0, help="Image-decoding processes (default: half the cores, all with a GPU, at most 8)."),
    ] = None,
    device: Annotated[str | None, typer.Option(help="Torch device, such as cuda (default: cpu).")] = None,
    engine: Annotated[Literal["auto", "onnx", "torch"], typer.Option(help="Inference engine.")] = "auto",
    executor: Annotated[
        Literal["local", "ray"], typer.Option(help="Run on this machine, or on a Ray cluster.")
    ] = "local",
    ray_address: Annotated[
        str | None, typer.Option(help="Address of a Ray cluster, such as auto (default: start one on this machine).")
    ] = None,
    replicas: Annotated[
        int | None,
        typer.Option(min=1, help="Model replicas on Ray (default: one per CPU or GPU)."),
    ] = None,
) -> None:
    """Predict the tags of images.

    Unreadable images and unwritable folders never stop the run; they are listed at the end and in FILE.
    Interrupted runs leave a valid FILE; continue with --resume.
    """
    if resume and out is None:
        raise ConfigError("--resume needs the file to continue; set it with --out")
    if executor != "ray" and (ray_address is not None or replicas is not None):
        raise ConfigError("--ray-address and --replicas need --executor ray")
    if out is not None:
        refuse_existing(out, overwrite=resume or overwrite)
    from manylabel.image_files import list_images
    from manylabel.inference import Predictor
    from manylabel.inference.engine import FEW_IMAGES
    from manylabel.predictions import TagChoice
    from manylabel.system import default_workers

    choice = TagChoice(top, _read_threshold(threshold))
    names = list_images(paths, listed=sys.stdin, allow_urls=allow_urls)
    ahead = 1 if "-" in paths else FEW_IMAGES  # a piped list must be answered before its end
    first = list(islice(names, ahead))  # an empty folder is an error before anything is written
    num_images = len(first) if len(first) < ahead else None
    new = _NewImages(chain(first, names))
    asked = _read_labels(labels)
    if executor == "ray":
        from manylabel.inference import tag_with_ray

        batches = tag_with_ray(
            new,
            model=model,
            choice=choice,
            engine=engine,
            labels=asked,
            device=device,
            batch_size=batch_size,
            replicas=replicas,
            address=ray_address,
        )
    else:
        predictor = Predictor.load(
            model,
            engine=engine,
            labels=asked,
            device=device,
            num_images=num_images,
            notify=partial(typer.echo, err=True),
        )
        choice.limits(predictor.spec)
        num_workers = default_workers(on_gpu=device not in (None, "cpu")) if workers is None else workers
        scored = predictor.stream(new, batch_size=batch_size, num_workers=num_workers)
        batches = (batch.tagged(choice) for batch in scored)
    writer = None
    if out is not None:  # after loading the model, whose errors must leave no file behind
        from manylabel.tag_files import open_output

        writer, new.done = open_output(out, resume=resume, overwrite=overwrite)
    results = TagResults(out, writer, copy_to, sidecar, overwrite)
    total = _Total(paths, new.done)
    with results, ProgressBar("tagging images") as bar:
        start = time.monotonic()
        for batch in batches:
            results.take(batch)
            speed = results.count / max(time.monotonic() - start, 1e-9)
            bar.update(results.count, total.number, f"{speed:.1f} images/s")
    results.report(skipped=new.num_skipped)


class _NewImages:
    """Names of images not yet in the output file.

    Args:
        names: Names of all images.
    """

    def __init__(self, names: Iterable[str]) -> None:
        self.names = names
        self.done: Container[str] = ()
        self.num_skipped = 0

    def __iter__(self) -> Iterator[str]:
        for name in self.names:
            if name in self.done:
                self.num_skipped += 1
            else:
                yield name


class _Total:
    """Number of images to tag, counted in a thread; None until then."""

    def __init__(self, paths: Sequence[str], done: Container[str]) -> None:
        self.number: int | None = None
        if "-" not in paths:
            threading.Thread(target=self._count, args=(paths, done), daemon=True).start()

    def _count(self, paths: Sequence[str], done: Container[str]) -> None:
        from manylabel.image_files import list_images

        with suppress(ManyLabelError, OSError):
            names = list_images(paths, allow_urls=True, quiet=True)
            self.number = sum(name not in done for name in names)


def _read_threshold(text: str | None) -> float | Literal["tuned"] | None:
    if text is None or text == "tuned":
        return text  # type: ignore[return-value] # mypy does not narrow a text by ==
    try:
        return float(text)
    except ValueError:
        raise ConfigError(f"threshold must be a number in 0..1 or 'tuned', got {text!r}") from None


def _read_labels(given: str | None) -> list[str] | None:
    """Return the labels in a comma-separated list or a file."""
    if given is None:
        return None
    from manylabel.data.readers.layout import read_label_list

    is_file = os.path.isfile(given)  # noqa: PTH113 - Path.is_file fails for a long list
    return read_label_list(given if is_file else given.split(","))
