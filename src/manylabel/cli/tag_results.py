"""Output of `manylabel predict`: a file, copies, sidecars or the terminal, and a final summary."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import nullcontext, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import typer
from rich.console import Console
from rich.markup import escape

from manylabel.errors import DiskFullError, StorageError

if TYPE_CHECKING:  # keeps --help fast
    from manylabel.predictions import ImagePrediction
    from manylabel.tag_files import TagWriter

__all__ = ["TagResults"]

_MOST_NAMED = 20
_BAR = 24


@dataclass
class TagResults:
    """Destination of predictions, batch by batch.

    Args:
        out: Output file, for messages.
        writer: Writer of that file.
        copy_to: Folder for copies by tag.
        sidecar: Kind of file to write next to each image.
        overwrite: Replace existing sidecars.
    """

    out: Path | None
    writer: TagWriter | None
    copy_to: Path | None
    sidecar: Literal["txt", "xmp"] | None
    overwrite: bool
    count: int = 0
    unchanged: int = 0
    bad: int = 0
    failures: list[str] = field(default_factory=list)

    def __enter__(self) -> None:
        self.console = Console(highlight=False, soft_wrap=True)

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if self.writer is not None:
            with suppress(StorageError) if kind else nullcontext():  # the first error, such as a full disk, matters
                self.writer.close()

    def take(self, images: Sequence[ImagePrediction]) -> None:
        """Output the tags of a batch."""
        for image in images:
            failure = self._leave(image) if image.error is None else f"cannot read {image.name!r}: {image.error}"
            if failure:
                self.bad += 1
                self.failures += [failure][: _MOST_NAMED - len(self.failures)]
        if self.writer is not None:
            self.writer.write(images)  # last: --resume skips images in the file
        elif self.copy_to is None and self.sidecar is None:
            for image in images:
                self._show(image)
        self.count += len(images)

    def _leave(self, image: ImagePrediction) -> str:
        """Copy an image and write its sidecar; return the error, empty if none."""
        steps: dict[str, Callable[[ImagePrediction], None]] = {
            "copy": self._copy,
            "write the sidecar of": self._write_sidecar,
        }
        failures = []
        for what, step in steps.items():
            try:
                step(image)
            except OSError as error:
                if isinstance(error, DiskFullError):
                    raise  # all further writes would fail, too
                failures.append(f"cannot {what} {image.name!r}: {error}")
        return "; ".join(failures)

    def _copy(self, image: ImagePrediction) -> None:
        from manylabel.inference.sidecars import copy_by_tag

        if self.copy_to is not None:
            copy_by_tag(image, self.copy_to)

    def _write_sidecar(self, image: ImagePrediction) -> None:
        from manylabel.inference.sidecars import write_sidecar

        if self.sidecar is not None and not write_sidecar(image, self.sidecar, overwrite=self.overwrite):
            self.unchanged += 1

    def _show(self, image: ImagePrediction) -> None:
        """Print the tags: bars on a terminal, else one line."""
        if image.error is not None:
            return
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
        errors = Console(stderr=True, highlight=False, soft_wrap=True)
        if self.out is not None or self.bad:
            where = "" if self.out is None else f" to {self.out}"
            failed = f", {self.bad:,} failed" if self.bad else ""
            rest = f", {skipped:,} skipped (already done)" if skipped else ""
            errors.print(f"{self.count:,} images{where}{failed}{rest}", markup=False)
        if self.unchanged:
            errors.print(f"{self.unchanged:,} existing sidecar files left unchanged; replace them with --overwrite")
        for failure in self.failures:
            errors.print(failure, style="yellow", markup=False)
        if self.bad > len(self.failures):
            errors.print(f"and {self.bad - len(self.failures):,} more failed", style="yellow")
        if self.bad and self.bad == self.count:
            raise typer.Exit(1)
