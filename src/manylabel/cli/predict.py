"""`manylabel predict`: name what is in pictures, from one photo to a folder of millions."""

from __future__ import annotations

import os
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass, field
from enum import StrEnum
from itertools import chain, islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer
from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, Task, TextColumn, TimeRemainingColumn
from rich.text import Text

from manylabel.cli.engines import EngineChoice
from manylabel.errors import ConfigError, DiskFullError, ManyLabelError, StorageError
from manylabel.storage import refuse_existing

if TYPE_CHECKING:  # --help must not wait for these
    from manylabel.inference.outputs import DoneImages, TagWriter
    from manylabel.predictions import Prediction, TagChoice

__all__ = ["predict"]

_MOST_NAMED = 20
_BAR = 24


class Sidecar(StrEnum):
    """What may be written beside each picture."""

    TXT = "txt"
    XMP = "xmp"


class Executor(StrEnum):
    """Who may do the work."""

    LOCAL = "local"
    RAY = "ray"


def predict(
    paths: Annotated[
        list[str], typer.Argument(help="Pictures, folders (with all below), patterns; - reads a list from stdin.")
    ],
    model: Annotated[
        str, typer.Option(help="A model's folder, an exported .onnx file, a name on the hub, or builtin:NAME.")
    ] = "builtin:coco80",
    out: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write tags to a .jsonl or .csv file, or a .parquet folder.")
    ] = None,
    top: Annotated[int | None, typer.Option(min=1, help="Give so many tags to each picture.")] = None,
    threshold: Annotated[
        str | None, typer.Option(metavar="T|tuned", help="Give the tags that reach T, or their own tuned thresholds.")
    ] = None,
    copy_to: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Copy each picture into a folder for each of its tags.")
    ] = None,
    sidecar: Annotated[Sidecar | None, typer.Option(help="Write the tags beside each picture.")] = None,
    labels: Annotated[
        str | None, typer.Option(help="Other labels, as cat,dog or a file with one on each line, if the model can.")
    ] = None,
    allow_urls: Annotated[bool, typer.Option("--allow-urls", help="Fetch pictures given as http(s) address.")] = False,
    resume: Annotated[bool, typer.Option("--resume", help="Go on: skip the pictures that FILE has.")] = False,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace files that are there.")] = False,
    batch_size: Annotated[int, typer.Option(min=1, help="Pictures that go through the model at once.")] = 32,
    workers: Annotated[
        int | None, typer.Option(min=0, help="Processes that decode; half of the cores when left out.")
    ] = None,
    device: Annotated[str | None, typer.Option(help="Where torch runs the model, such as cuda.")] = None,
    engine: Annotated[EngineChoice, typer.Option(help="What runs the model.")] = EngineChoice.AUTO,
    executor: Annotated[
        Executor, typer.Option(help="Who does the work: this machine, or Ray, on this or many machines.")
    ] = Executor.LOCAL,
    ray_address: Annotated[
        str | None, typer.Option(help="A Ray cluster, such as auto; Ray is started here when left out.")
    ] = None,
    replicas: Annotated[
        int | None,
        typer.Option(min=1, help="Models that work at the same time on Ray; one per CPU or GPU by default."),
    ] = None,
) -> None:
    """Name what is in pictures.

    Bad pictures never stop it: they are named at the end, and in FILE. Nor does a folder that cannot be written to.
    After a kill FILE is whole; --resume goes on.
    """
    from manylabel.image_files import list_images
    from manylabel.inference.outputs import DoneImages, open_output
    from manylabel.predictions import TagChoice

    if resume and out is None:
        raise ConfigError("--resume goes on with a file; name it with --out")
    if executor is not Executor.RAY and (ray_address is not None or replicas is not None):
        raise ConfigError("--ray-address and --replicas are for Ray; give --executor ray, too")
    choice = TagChoice(top, _read_threshold(threshold))
    if out is not None:
        refuse_existing(out, overwrite=resume or overwrite)
    names = list_images(paths, listed=sys.stdin, allow_urls=allow_urls)
    first = list(islice(names, 1))  # an empty folder is an error before anything is written
    done = DoneImages([])
    skipped = Counter[bool]()

    def not_done() -> Iterator[str]:
        for name in chain(first, names):
            is_done = name in done  # of the file that is opened below
            skipped[is_done] += 1
            if not is_done:
                yield name

    opening = _Opening(model, choice, engine.value, _read_labels(labels), device, batch_size)
    with Console(stderr=True).status("Opening the model; the first time it is made ready for this machine ..."):
        new = not_done()
        batches = opening.on_ray(new, ray_address, replicas) if executor is Executor.RAY else opening.here(new, workers)
    writer, done = (None, done) if out is None else open_output(out, resume=resume, overwrite=overwrite)
    results = _Results(out, writer, copy_to, None if sidecar is None else sidecar.value, overwrite)
    with results, _progress(paths, done) as advance:
        for batch in batches:
            results.take(batch)
            advance(len(batch))
    results.report(skipped=skipped[True])


@dataclass(frozen=True)
class _Opening:
    """Opens the model, whose mistakes must show before a file of tags is made; nothing is tagged yet."""

    model: str
    choice: TagChoice
    engine: Literal["auto", "onnx", "torch"]
    labels: list[str] | None
    device: str | None
    batch_size: int

    def here(self, names: Iterator[str], workers: int | None) -> Iterator[list[Prediction]]:
        """Tag on this machine."""
        from manylabel.inference import Predictor
        from manylabel.system import default_workers

        predictor = Predictor.load(self.model, engine=self.engine, labels=self.labels, device=self.device)
        self.choice.limits(predictor.spec)
        num_workers = default_workers() if workers is None else workers
        batches = predictor.stream(names, batch_size=self.batch_size, num_workers=num_workers)
        return (batch.tagged(self.choice) for batch in batches)

    def on_ray(self, names: Iterator[str], address: str | None, replicas: int | None) -> Iterator[list[Prediction]]:
        """Tag on Ray."""
        from manylabel.inference.on_ray import tag_with_ray

        return tag_with_ray(
            names,
            model=self.model,
            choice=self.choice,
            engine=self.engine,
            labels=self.labels,
            device=self.device,
            batch_size=self.batch_size,
            replicas=replicas,
            address=address,
        )


@dataclass
class _Results:
    """Where tags go, and what is said at the end."""

    out: Path | None
    writer: TagWriter | None
    copy_to: Path | None
    sidecar: Literal["txt", "xmp"] | None
    overwrite: bool
    count: int = 0
    kept: int = 0
    bad: int = 0
    failures: list[str] = field(default_factory=list)

    def __enter__(self) -> None:
        self.console = Console(highlight=False, soft_wrap=True)

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if self.writer is not None:
            with suppress(StorageError) if kind else nullcontext():  # a full disk was met already
                self.writer.close()

    def take(self, pictures: Sequence[Prediction]) -> None:
        """Pass the tags of a batch on."""
        for picture in pictures:
            failure = (
                self._leave(picture) if picture.error is None else f"cannot read {picture.name!r}: {picture.error}"
            )
            if failure:
                self.bad += 1
                self.failures += [failure][: _MOST_NAMED - len(self.failures)]
        if self.writer is not None:
            self.writer.write(pictures)  # last: what is in the file is done with, also when a run goes on
        elif self.copy_to is None and self.sidecar is None:
            for picture in pictures:
                self._show(picture)
        self.count += len(pictures)

    def _leave(self, picture: Prediction) -> str:
        """Copy a picture and write its sidecar; return what went wrong, empty if nothing did."""
        steps = {"copy": self._copy, "write the sidecar of": self._write_sidecar}
        failures = []
        for what, step in steps.items():
            try:
                step(picture)
            except OSError as error:
                if isinstance(error, DiskFullError):
                    raise  # all that follow would fail, too
                failures.append(f"cannot {what} {picture.name!r}: {error}")
        return "; ".join(failures)

    def _copy(self, picture: Prediction) -> None:
        from manylabel.inference.sidecars import copy_by_tag

        if self.copy_to is not None:
            copy_by_tag(picture, self.copy_to)

    def _write_sidecar(self, picture: Prediction) -> None:
        from manylabel.inference.sidecars import write_sidecar

        if self.sidecar is not None and not write_sidecar(picture, self.sidecar, overwrite=self.overwrite):
            self.kept += 1

    def _show(self, picture: Prediction) -> None:
        """Print tags: as bars on a terminal, else as a line."""
        if picture.error is not None:
            return
        if not self.console.is_terminal:
            typer.echo(f"{picture.name}\t" + ", ".join(f"{label} {score:.2f}" for label, score in picture.tags))
            return
        self.console.print(f"[bold]{escape(picture.name)}[/]")
        width = max((len(tag.label) for tag in picture.tags), default=0)
        for label, score in picture.tags:
            filled = round(score * _BAR)
            bar = f"[cyan]{'━' * filled}[/][dim]{'━' * (_BAR - filled)}[/]"
            self.console.print(f"  {escape(label):{width}}  {bar} {100 * score:3.0f} %")
        if not picture.tags:
            self.console.print("  [dim]no tag is sure enough; --top 3 shows the best ones[/]")

    def report(self, *, skipped: int) -> None:
        """Say what was done, and name the pictures that failed; nothing but those is an error."""
        errors = Console(stderr=True, highlight=False, soft_wrap=True)
        if self.out is not None or self.bad:
            where = "" if self.out is None else f" to {self.out}"
            failed = f", {self.bad:,} failed" if self.bad else ""
            rest = f", {skipped:,} skipped, which it had" if skipped else ""
            errors.print(f"{self.count:,} images{where}{failed}{rest}", markup=False)
        if self.kept:
            errors.print(f"{self.kept:,} sidecar files were there and are left as they are; --overwrite replaces them")
        for failure in self.failures:
            errors.print(failure, style="yellow", markup=False)
        if self.bad > len(self.failures):
            errors.print(f"and {self.bad - len(self.failures):,} more that failed", style="yellow")
        if self.bad and self.bad == self.count:
            raise typer.Exit(1)


def _read_threshold(text: str | None) -> float | Literal["tuned"] | None:
    if text is None or text == "tuned":
        return text  # type: ignore[return-value] # mypy does not narrow a text by ==
    try:
        return float(text)
    except ValueError:
        raise ConfigError(f"threshold must be a number in 0..1 or 'tuned', got {text!r}") from None


def _read_labels(given: str | None) -> list[str] | None:
    """Return labels that stand in a list or in a file."""
    if given is None:
        return None
    from manylabel.data.label_list import read_label_list

    is_file = os.path.isfile(given)  # noqa: PTH113 - Path.is_file fails for a long list
    return read_label_list(given if is_file else given.split(","))


class _Speed(TextColumn):
    """Pictures per second."""

    def __init__(self) -> None:
        super().__init__("")

    def render(self, task: Task) -> Text:
        """Return the speed of the last half minute."""
        return Text("" if task.speed is None else f"{task.speed:.1f} pictures/s")


@contextmanager
def _progress(paths: Sequence[str], done: DoneImages) -> Iterator[Callable[[int], None]]:
    """Give what moves a bar on the standard error; a thread counts the pictures meanwhile."""
    columns = (TextColumn("tagging"), BarColumn(), MofNCompleteColumn(), _Speed(), TimeRemainingColumn())
    console = Console(stderr=True)
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task("", total=None)

        def count() -> None:
            from manylabel.image_files import list_images

            with suppress(ManyLabelError, OSError):
                bar.update(task, total=sum(name not in done for name in list_images(paths, allow_urls=True)))

        if "-" not in paths:
            threading.Thread(target=count, daemon=True).start()
        yield lambda number: bar.advance(task, number)
