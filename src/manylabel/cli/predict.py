"""`manylabel predict`, `suggest` and `explain`: tags of images, what to label next, and heat maps of the evidence."""

from __future__ import annotations  # those of `ml` would import torch

import sys
import threading
import time
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from contextlib import nullcontext, suppress
from dataclasses import dataclass, field
from importlib.util import find_spec
from itertools import chain, islice
from pathlib import Path
from typing import Annotated, Literal

import typer
from rich.markup import escape

import manylabel as ml
from manylabel.builtin import DEFAULT_MODEL
from manylabel.cli import options
from manylabel.cli.options import flag, option
from manylabel.errors import ConfigError, DiskFullError, ManyLabelError, MissingExtraError, StorageError
from manylabel.image_files import EXPLAINED, list_images
from manylabel.inference import predict_stream, tag_with_ray
from manylabel.inference.engine import FEW_IMAGES
from manylabel.inference.sidecars import copy_by_tag, write_sidecar
from manylabel.page import plural
from manylabel.predictions import ImagePrediction, TagChoice, write_drawings
from manylabel.progress import ProgressBar, SafeConsole
from manylabel.tag_files import TagWriter, check_tag_file, open_output

_MOST_NAMED = 20
_BAR = 24


def predict(
    images: options.Images,
    model: options.AnyModel = DEFAULT_MODEL,
    out: Annotated[
        Path | None,
        option("FILE", "Write the tags: .jsonl, .csv, .parquet, .fiftyone.json, .label_studio.json or .cvat.xml."),
    ] = None,
    top: Annotated[int | None, option("INTEGER", "Tags per image (default: all above the threshold).", min=1)] = None,
    threshold: Annotated[
        str | None,
        option("FLOAT|tuned", "Score threshold (default: the model's tuned thresholds, else 0.5)."),
    ] = None,
    labels: Annotated[
        str | None,
        option("LABELS", "Labels to predict, trained or new, such as zebra,espresso; or a file with one per line."),
    ] = None,
    sidecar: Annotated[
        Literal["txt", "xmp"] | None, option("txt|xmp", "Write the tags of each image to a file next to it.")
    ] = None,
    copy_to: Annotated[Path | None, option("DIR", "Copy each image into one folder per tag.")] = None,
    draw: Annotated[Path | None, option("DIR", "Write each image with its tags drawn below it.")] = None,
    allow_urls: Annotated[bool, flag("--allow-urls", "Download images given as http(s) URLs.")] = False,
    resume: Annotated[bool, flag("--resume", "Resume an interrupted run: skip images already in FILE.")] = False,
    overwrite: options.Overwrite = False,
    workers: options.Workers = None,
    device: options.Device = "auto",
    executor: Annotated[Literal["local", "ray"], option("local|ray", "Run on this machine, or on a Ray cluster.")] = (
        "local"
    ),
    ray_address: Annotated[
        str | None,
        option("ADDRESS", "Address of a Ray cluster, such as auto (default: start one on this machine)."),
    ] = None,
    replicas: Annotated[int | None, option("INTEGER", "Replicas on Ray (default: one per CPU or GPU).", min=1)] = None,
) -> None:
    """Predict the tags of images.

    Unreadable images and unwritable folders never stop the run; they are listed at the end and in the output.
    Interrupted runs leave a valid FILE; continue with --resume.
    """
    if resume and out is None:
        raise ConfigError("--resume needs the file to continue; set it with --out")
    if executor != "ray" and (ray_address is not None or replicas is not None):
        raise ConfigError("--ray-address and --replicas need --executor ray")
    options.new_files(out, overwrite=resume or overwrite)
    choice = TagChoice(top, _read_threshold(threshold))
    names = list_images(images, listed=sys.stdin, allow_urls=allow_urls)
    ahead = 1 if "-" in images else FEW_IMAGES  # a piped list must be answered before its end
    first = list(islice(names, ahead))  # an empty folder is an error before anything is written
    new = _NewImages(chain(first, names))
    if labels is not None and find_spec("torch") is None:
        raise MissingExtraError('--labels needs torch and a text encoder; run: pip install "manylabel[text]"')
    asked = None if labels is None else options.read_labels(labels)
    batches: Iterator[Sequence[ImagePrediction]]
    if executor == "ray":
        batches = tag_with_ray(
            new,
            model=model,
            choice=choice,
            labels=asked,
            device=device,
            replicas=replicas,
            address=ray_address,
        )
    else:
        num_images = len(first) if len(first) < ahead else None
        engine = options.open_model(model, labels=asked, device=device, num_images=num_images)
        choice.limits(engine.spec)
        scored = predict_stream(engine, new, num_workers=workers)
        batches = (batch.tagged(choice) for batch in scored)
    writer = None
    if out is not None:  # after loading the model, whose errors must leave no file behind
        writer, new.done = open_output(out, resume=resume, overwrite=overwrite)
    steps: dict[str, Callable[[ImagePrediction], object]] = {}
    if copy_to is not None:
        steps["copy"] = lambda image: copy_by_tag(image, copy_to)
    if sidecar is not None:
        steps["write the sidecar of"] = lambda image: write_sidecar(image, sidecar, overwrite=overwrite)
    if draw is not None:
        steps["draw"] = lambda image: write_drawings([image], draw)
    results = _Results(out, writer, steps)
    total = _Total(images, new.done)
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


@dataclass
class _Results:
    """Destination of predictions, batch by batch.

    Args:
        out: Output file, for messages.
        writer: Writer of that file.
        steps: What to do with each image, by verb; a step returns False if it left an existing file unchanged.
    """

    out: Path | None
    writer: TagWriter | None
    steps: Mapping[str, Callable[[ImagePrediction], object]]
    count: int = 0
    unchanged: int = 0
    bad: int = 0
    failures: list[str] = field(default_factory=list)

    def __enter__(self) -> None:
        self.console = SafeConsole(soft_wrap=True)

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if self.writer is not None:
            with suppress(StorageError) if kind else nullcontext():  # the first error, such as a full disk, matters
                self.writer.close()

    def take(self, images: Sequence[ImagePrediction]) -> None:
        """Output the tags of a batch."""
        for image in images:
            failures = [f"cannot read {image.name!r}: {image.error}"] if image.error else self._save(image)
            if failures:
                self.bad += 1
                self.failures += ["; ".join(failures)][: _MOST_NAMED - len(self.failures)]
            elif self.writer is None and not self.steps:
                self._show(image)
        if self.writer is not None:
            self.writer.write(images)  # last: --resume skips images in the file
        self.count += len(images)

    def _save(self, image: ImagePrediction) -> list[str]:
        """Take all steps with an image; return the errors."""
        failures = []
        for what, step in self.steps.items():
            try:
                self.unchanged += step(image) is False
            except OSError as error:
                if isinstance(error, DiskFullError):
                    raise  # all further writes would fail, too
                failures.append(f"cannot {what} {image.name!r}: {error}")
        return failures

    def _show(self, image: ImagePrediction) -> None:
        """Print the tags: bars on a terminal, else one line."""
        if not self.console.is_terminal:
            typer.echo(f"{image.name}\t" + ", ".join(f"{label} {score:.2f}" for label, score in image.tags))
            return
        self.console.print(f"[bold]{escape(image.name)}[/]")
        width = max((len(tag.label) for tag in image.tags), default=0)
        for label, score in image.tags:
            filled = round(score * _BAR)
            bar = f"[cyan]{'━' * filled}[/][dim]{'━' * (_BAR - filled)}[/]"
            self.console.print(f"  {escape(label):{width}}  {bar} {100 * score:3.0f} %")
        if not image.tags:
            self.console.print("  [dim]no score reaches its threshold; --top 3 shows the most confident labels[/]")

    def report(self, *, skipped: int) -> None:
        """Print a summary and the images that failed; exit with code 1 if all did."""
        errors = options.stderr_console()
        if self.out is not None or self.steps or self.bad:
            where = "" if self.out is None else f" to {self.out}"
            failed = f", {self.bad:,} failed" if self.bad else ""
            rest = f", {skipped:,} skipped (already done)" if skipped else ""
            errors.print(f"{plural(self.count, 'image')}{where}{failed}{rest}", markup=False)
        if self.unchanged:
            errors.print(f"{self.unchanged:,} existing sidecar files left unchanged; replace them with --overwrite")
        for failure in self.failures:
            errors.print(failure, style="yellow", markup=False)
        if self.bad > len(self.failures):
            errors.print(f"and {self.bad - len(self.failures):,} more failed", style="yellow")
        if self.bad and self.bad == self.count:
            raise typer.Exit(1)


def suggest(
    data: options.Data,
    images: Annotated[list[str], option("PATH", "Images to choose from: files, folders or patterns; repeat for more.")],
    num_images: Annotated[int, option("INTEGER", "Number of images.", "--num-images", "--n", min=1)] = 200,
    out: Annotated[
        Path | None, option("FILE", "Write the list as .csv, with an empty column tags, or as .label_studio.json.")
    ] = None,
    backbone: Annotated[str, option("NAME", "Backbone: a timm model or torchvision:NAME.")] = "offline:everyday",
    workers: options.Workers = None,
    device: options.Device = "auto",
    overwrite: options.Overwrite = False,
) -> None:
    """Suggest which images to label next, with a quick model of the labelled ones in DATA.

    Picks images that the model is uncertain about, rare labels first, and that differ from each other and from the
    labelled ones. Features are cached, so a second round takes seconds.
    """
    files = options.new_files(out, overwrite=overwrite)
    if out is not None:
        check_tag_file(out)
    dataset = options.load_data(data)
    with ProgressBar("computing features") as bar:
        found = ml.suggest(
            dataset, images, n=num_images, backbone=backbone, workers=workers, device=device, progress=bar.update
        )
    rows = [
        (str(rank), f"{uncertainty:.2f}", image.name, ", ".join(f"{tag.label} {tag.score:.2f}" for tag in image.tags))
        for rank, (image, uncertainty) in enumerate(zip(found.predictions, found.uncertainty, strict=True), 1)
    ]
    shown = rows if out is None else rows[:_MOST_NAMED]
    options.print_table(shown, "", "uncertainty", "image", "predicted")
    if len(shown) < len(rows):
        typer.echo(f"... and {len(rows) - len(shown):,} more")
    if out is not None:
        found.save(out, overwrite=overwrite)
    options.report_files(files)


def explain(
    images: options.Images,
    model: Annotated[list[str], option("MODEL", f"{options.MODEL} or builtin:NAME; repeat to compare.")] = [  # noqa: B006 (typer needs a list; it is not changed)
        DEFAULT_MODEL
    ],
    label: Annotated[
        list[str] | None,
        option("LABEL", "Label to explain, known or new; repeat for more (default: the predicted ones)."),
    ] = None,
    method: Annotated[
        list[str],
        option("NAME", "Method: auto, attention, cam, grad_cam, grad_cam_plus_plus or eigen_cam; repeat for more."),
    ] = ["auto"],  # noqa: B006 (likewise)
    blocks: Annotated[str, option("BLOCKS", "Backbone blocks, such as 0,1,-1 (-1: the last), or all.")] = "-1",
    teachers: Annotated[bool, flag("--teachers", "Also show the teachers of a self-distillation run.")] = False,
    out: Annotated[
        Path | None,
        option("PATH", "PNG file, or folder for several images (default: IMAGE.explained.png in this folder)."),
    ] = None,
    overwrite: options.Overwrite = False,
) -> None:
    """Draw heat maps of the evidence for labels in images.

    The output has one row per label and one column per method and block.
    """
    targets = _targets(list(list_images(images, listed=sys.stdin)), out)
    options.new_files(*targets.values(), overwrite=overwrite)
    from manylabel.page import write_drawing

    sources, which = list(dict.fromkeys(model)), _read_blocks(blocks)

    def load(source: str) -> ml.Classifier:
        loaded = ml.Classifier.from_pretrained(source)
        is_new = label is not None and len(sources) == 1 and not all(name in loaded.labels for name in label)
        return loaded.with_labels(label) if label is not None and is_new and not teachers else loaded

    with ProgressBar("explaining images") as bar:
        models: dict[str, ml.Classifier | list[ml.Classifier]] = {}
        if teachers:
            models.update(_teachers(model))
        models.update(zip(options.model_names(sources), map(load, sources), strict=True))
        for number, (image, target) in enumerate(targets.items(), 1):
            explanations = ml.explain.explain_models(models, image, labels=label, method=method, blocks=which)
            write_drawing(ml.explain.draw_grid(explanations), target, overwrite=overwrite)
            for each in explanations:
                x, y = each.hottest()
                where = f"hottest at {100 * x:.0f} % from the left, {100 * y:.0f} % from the top"
                who = f"{each.model}: " if len(models) > 1 else ""
                typer.echo(f"{who}{each.label} {100 * each.score:.1f} %, {each.method}, block {each.block}: {where}")
            options.report_files([target])
            bar.update(number, len(targets))


def _targets(images: Sequence[str], out: Path | None) -> dict[str, Path]:
    """Return the file to write for each image; `predict` ignores these when it walks a folder."""
    if out is not None and len(images) == 1 and not out.is_dir():
        return {images[0]: out}
    if out is not None and out.suffix:
        raise ConfigError(f"--out must be a folder for {len(images)} images, got {out}")
    targets = {image: (out or Path()) / f"{Path(image).stem}{EXPLAINED}" for image in images}
    if len(set(targets.values())) < len(targets):
        raise ConfigError("several images have the same name; explain them in separate runs with different --out")
    return targets


def _teachers(sources: list[str]) -> dict[str, list[ml.Classifier]]:
    """Return the teachers of self-distillation runs by partition: co, dis, random or whole."""
    sides: dict[str, list[ml.Classifier]] = {}
    for source in sources:
        run = Path(source).parent if Path(source).name == "model" else Path(source)
        for folder in sorted((run / "teachers").glob("*/model")):
            side = f"{folder.parent.name.rpartition('-')[0]} teachers"
            sides.setdefault(side, []).append(ml.Classifier.from_pretrained(folder))
    if not sides:
        raise ConfigError(f"--teachers needs the folder of a self_distillation run, got {', '.join(sources)}")
    return sides


def _read_blocks(text: str) -> list[int] | Literal["all"]:
    if text == "all":
        return "all"
    try:
        return [int(number) for number in text.split(",")]
    except ValueError:
        raise ConfigError(f"blocks must be numbers such as 0,1,-1, or all, got {text!r}") from None
