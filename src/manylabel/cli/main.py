"""The `manylabel` command: its subcommands, global options and error handling."""

import logging
import sys
from typing import Annotated

import typer
from rich.console import Console
from rich.logging import RichHandler
from typer.core import TyperGroup

from manylabel import __version__
from manylabel.cli import (
    cache,
    cost,
    data,
    evaluate,
    explain,
    export,
    graph,
    listing,
    predict,
    report,
    runs,
    serve,
    train,
    tune,
    vocabulary,
)
from manylabel.errors import ManyLabelError

__all__ = ["app", "main"]

_BY_USE = (
    *("data", "train", "evaluate", "tune", "predict", "explain", "serve", "export", "compare", "report", "runs"),
    *("cache", "vocabulary", "graph", "cost", "list"),
)


class _Commands(TyperGroup):
    """Subcommands in order of typical use."""

    def list_commands(self, ctx: object) -> list[str]:  # noqa: ARG002 (typer's)
        return sorted(self.commands, key=_BY_USE.index)


app = typer.Typer(
    cls=_Commands,
    name="manylabel",
    help="Multi-label image classification: train, evaluate, explain and serve models.",
    epilog="Start with: manylabel data check SPEC, where SPEC is a dataset such as csv:labels.csv,images=photos/ or "
    "voc:VOCdevkit/VOC2012; 'manylabel list formats' lists all formats.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["-h", "--help"]},
)
for name, group in (("data", data), ("train", train), ("runs", runs), ("cache", cache)):
    app.add_typer(group.app, name=name)
for name, command in (
    ("evaluate", evaluate.evaluate),
    ("tune", tune.tune),
    ("predict", predict.predict),
    ("explain", explain.explain),
    ("serve", serve.serve),
    ("export", export.export),
    ("compare", evaluate.compare),
    ("report", report.report),
    ("vocabulary", vocabulary.vocabulary),
    ("graph", graph.graph),
    ("cost", cost.cost),
    ("list", listing.show),
):
    app.command(name)(command)


def _print_version(asked: bool) -> None:
    if asked:
        typer.echo(f"manylabel {__version__}")
        raise typer.Exit


@app.callback()
def settings(
    version: Annotated[  # noqa: ARG001 (the callback prints it)
        bool, typer.Option("--version", help="Show the version and exit.", callback=_print_version, is_eager=True)
    ] = False,
    debug: Annotated[bool, typer.Option("--debug", help="Show full tracebacks and debug logs.")] = False,
) -> None:
    """Set up logging for every command."""
    level = logging.DEBUG if debug else logging.WARNING
    handler = RichHandler(console=Console(stderr=True), show_path=debug, show_time=False)
    logging.basicConfig(level=logging.WARNING, format="%(message)s", handlers=[handler], force=True)
    logging.getLogger("manylabel").setLevel(level)


def main() -> None:
    """Run the command line; a `ManyLabelError` prints its message and exits with code 2."""
    try:
        app(prog_name="manylabel")
    except ManyLabelError as error:
        if "--debug" in sys.argv:
            raise
        Console(stderr=True, soft_wrap=True).print(f"Error: {error}", style="bold red", markup=False, highlight=False)
        sys.exit(2)
    except KeyboardInterrupt:
        sys.exit(130)
