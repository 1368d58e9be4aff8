"""Options, outputs and help common to all commands: one name, meaning, default and form everywhere."""

from __future__ import annotations  # those of `ml` would import torch

import json
import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from inspect import cleandoc
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.markup import escape
from rich.panel import Panel
from rich.table import Table
from rich.text import Text
from typer.core import TyperCommand, TyperGroup

import manylabel as ml
from manylabel.builtin import BUILTIN, local_model
from manylabel.engine import Engine
from manylabel.errors import ConfigError
from manylabel.progress import SafeConsole, working
from manylabel.storage import refuse_existing


def argument(metavar: str, text: str) -> Any:  # noqa: ANN401 (typer's)
    """Return a positional argument with its help."""
    return typer.Argument(metavar=metavar, help=text)


def option(metavar: str, text: str, *names: str, **settings: Any) -> Any:  # noqa: ANN401 (typer's)
    """Return an option with its help; it is named after its parameter unless `names` are given."""
    return typer.Option(*names, metavar=metavar, help=text, **settings)


def flag(name: str, text: str) -> Any:  # noqa: ANN401 (typer's)
    """Return an option without a value."""
    return typer.Option(name, help=text)


MODEL = "Model or run folder, hub name"

AsJson = Annotated[bool, flag("--json", "Print JSON.")]
Data = Annotated[str, argument("DATA", "Dataset: table, folder or FORMAT:PATH; see 'manylabel models list formats'.")]
Device = Annotated[str, option("DEVICE", "Torch device; auto: a GPU if available.")]
Draws = Annotated[int, option("INTEGER", "Bootstrap samples; 0 computes no confidence intervals.", min=0)]
Folds = Annotated[int, option("INTEGER", "Number of cross-validation folds.", min=2)]
Html = Annotated[Path | None, option("FILE", "Write an HTML report.")]
Images = Annotated[list[str], argument("IMAGES...", "Images, folders or glob patterns; - reads a list from stdin.")]
Model = Annotated[str, option("MODEL", f"{MODEL} or builtin:NAME.")]
AnyModel = Annotated[str, option("MODEL", f"{MODEL}, builtin:NAME or exported .onnx file.")]
ModelCopy = Annotated[Path | None, option("DIR", "Write a changed copy (default: change the model in place).")]
Overwrite = Annotated[bool, flag("--overwrite", "Replace existing files.")]
Seed = Annotated[int, option("INTEGER", "Random seed.")]
Workers = Annotated[
    int | None,
    option("INTEGER", "Image-decoding processes (default: half of the cores, or all if the CPU runs no model).", min=0),
]


def new_files(*paths: Path | None, overwrite: bool) -> list[Path]:
    """Return the files to write; refuse existing ones before any work is done."""
    files = [path for path in paths if path is not None]
    for path in files:
        refuse_existing(path, overwrite=overwrite)
    return files


def show_result(values: object, show: Callable[[], None], *, as_json: bool, files: Sequence[Path] = ()) -> None:
    """Print a result as JSON, or its summary and the names of the files written."""
    if as_json:
        typer.echo(json.dumps(values, indent=2, ensure_ascii=False, default=str))
        return
    show()
    report_files(files)


def report_files(files: Sequence[Path]) -> None:
    """Print the names of the files written."""
    for path in files:
        typer.echo(f"Wrote {path}")


def print_table(rows: Iterable[Sequence[str | Text]], *left: str, right: Sequence[str] = (), last: str = "") -> None:
    """Print a table.

    Args:
        rows: Cells of each row.
        left: Headers of the columns aligned to the left; none prints no headers.
        right: Headers of the columns aligned to the right.
        last: Header of one more column, aligned to the left, for rows that have one.
    """
    table = Table(box=None, header_style="bold", pad_edge=False, show_header=bool(left or right))
    for name in left:
        table.add_column(escape(name), overflow="fold")
    for name in right:
        table.add_column(escape(name), justify="right", no_wrap=True)
    if last:
        table.add_column(last)
    for row in rows:
        table.add_row(*(escape(cell) if isinstance(cell, str) else cell for cell in row))
    stdout_console().print(table)


def stdout_console() -> SafeConsole:
    """Return a console for results, without automatic highlighting."""
    return SafeConsole()


def stderr_console() -> SafeConsole:
    """Return a console for messages, which must not mix with results on standard output."""
    return SafeConsole(stderr=True, soft_wrap=True)


def open_model(model: str | Path, **settings: Any) -> Engine:  # noqa: ANN401 (those of `open_engine`)
    """Open a model for scoring images; status messages go to standard error."""
    return ml.inference.open_engine(model, notify=partial(typer.echo, err=True), **settings)


def load_data(data: str) -> ml.data.ImageDataset:
    """Load a dataset; large ones take a while."""
    load = ml.data.load  # importing it takes a moment, which is not reading
    with working(f"reading {data}"):
        return load(data)


def model_names(sources: Sequence[str]) -> list[str]:
    """Return a name per model: the last part of its path, or the whole path if that is ambiguous.

    Examples:
        >>> model_names(["runs/first", "runs/second/model", "builtin:everyday"])
        ['first', 'second', 'builtin:everyday']
        >>> model_names(["a/first", "b/first"])
        ['a/first', 'b/first']
    """
    paths = [Path(source) for source in sources]
    names = [(path.parent.name if path.name == "model" else path.name) or path.name for path in paths]
    return [name if name and names.count(name) == 1 else source for name, source in zip(names, sources, strict=True)]


def refuse_shared(model: str) -> None:
    """Refuse to change a built-in model or one from the hub cache.

    Raises:
        ConfigError: The model is shared; the message explains how to write a copy.

    Examples:
        >>> refuse_shared("builtin:everyday")
        Traceback (most recent call last):
        manylabel.errors.ConfigError: builtin:everyday is part of the package; write a changed copy with --out DIR
    """
    if model.startswith(BUILTIN):
        raise ConfigError(f"{model} is part of the package; write a changed copy with --out DIR")
    if local_model(model) is None:
        raise ConfigError(f"{model} is not a local model folder; write a changed copy with --out DIR")


def read_labels(text: str) -> list[str]:
    """Return the labels in a comma-separated list, or in a file with one per line."""
    from manylabel.data.readers.layout import read_label_list

    is_file = text.endswith((".txt", ".csv")) or os.path.isfile(text)  # noqa: PTH113 - Path.is_file fails for a long list
    return read_label_list(text if is_file else text.split(","))


class Command(TyperCommand):
    """Command with the help format of this package."""

    def format_help(self, ctx: Any, formatter: Any) -> None:  # noqa: ANN401, ARG002 (typer's: it has its own click)
        """Print the help."""
        _print_command(self, ctx)


class Group(TyperGroup):
    """Group of commands with the help format of this package."""

    def format_help(self, ctx: Any, formatter: Any) -> None:  # noqa: ANN401, ARG002 (typer's)
        """Print the help."""
        _print_command(self, ctx)


def print_help(usage: str, text: str, groups: Mapping[str, Iterable[tuple[Text, Text]]], epilog: str = "") -> None:
    """Print a help text.

    Args:
        usage: Command line in short.
        text: Summary and details, paragraphs separated by empty lines.
        groups: Rows of each group by title: option, and its description.
        epilog: Last sentence.
    """
    console = SafeConsole()
    console.print(f"Usage: {usage}", style="bold", markup=False)
    for paragraph in re.split(r"\n\s*\n", cleandoc(text).strip()):
        console.print(f"\n{' '.join(paragraph.split())}", markup=False)
    console.print()
    for title, rows in groups.items():
        table = Table.grid(padding=(0, 1))
        for row in rows:
            table.add_row(*row)
        console.print(Panel(table, title=title, title_align="left"))
    if epilog:
        console.print(epilog, markup=False, style="dim")


def option_row(option: str, text: str, *notes: str) -> tuple[Text, Text]:
    """Return a row of the help: an option, its description, and notes such as the default."""
    return Text(option, style="cyan", no_wrap=True), Text.assemble(text, (" ".join(["", *filter(None, notes)]), "dim"))


def _print_command(command: Any, ctx: Any) -> None:  # noqa: ANN401 (typer's)
    """Print the help of a command or a group."""
    params = sorted(command.get_params(ctx), key=lambda param: not param.required)
    inputs = [param for param in params if param.param_type_name == "argument"]
    options = [param for param in params if param.param_type_name == "option" and not param.hidden]
    names = [each.metavar if each.required else f"[{each.metavar}]" for each in inputs]
    names += [f"{each.opts[0]} {each.metavar}" for each in options if each.required]
    listed = command.list_commands(ctx) if isinstance(command, TyperGroup) else []
    subcommands = {name: command.get_command(ctx, name) for name in listed}
    names += ["[OPTIONS]", *(["COMMAND"] if subcommands else [])]
    groups = {
        "Arguments": [option_row(each.metavar, each.help or "", _default(each)) for each in inputs],
        "Options": [_row(each) for each in options],
        "Commands": [option_row(name, each.get_short_help_str(200)) for name, each in subcommands.items()],
    }
    shown = {title: rows for title, rows in groups.items() if rows}
    print_help(" ".join([ctx.command_path, *names]), command.help or "", shown, command.epilog or "")


def _row(option: Any) -> tuple[Text, Text]:  # noqa: ANN401 (typer's)
    names = ", ".join(sorted(option.opts, key=len))
    if option.is_flag:
        return option_row("/".join([names, *option.secondary_opts]), option.help or "")
    return option_row(f"{names} {option.metavar}", option.help or "", _default(option))


def _default(param: Any) -> str:  # noqa: ANN401 (typer's)
    if param.required:
        return "[required]"
    value = ", ".join(param.default) if isinstance(param.default, list) else param.default
    return "" if value in (None, "") else f"[default: {value}]"
