"""The `manylabel` command: what all commands share, and the table of them."""

import logging
import sys
from typing import Annotated

import typer
from rich.console import Console
from rich.logging import RichHandler

from manylabel import __version__
from manylabel.cli import (
    benchmark,
    cache,
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

app = typer.Typer(
    name="manylabel",
    help="Name everything in a picture: train, explain and serve multi-label image classifiers.",
    epilog="Start with: manylabel data check SPEC, where SPEC is e.g. csv:labels.csv,images=photos/ or "
    "voc:VOCdevkit/VOC2012. 'manylabel list formats' shows them all.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.add_typer(data.app, name="data")
app.add_typer(train.app, name="train")
app.command()(evaluate.evaluate)
app.command()(evaluate.compare)
app.command()(predict.predict)
app.command()(serve.serve)
app.command()(tune.tune)
app.command()(export.export)
app.command()(explain.explain)
app.command()(report.report)
app.add_typer(runs.app, name="runs")
app.command("graph")(graph.graph)
app.command("list")(listing.show)
app.command("vocabulary")(vocabulary.vocabulary)
app.add_typer(cache.app, name="cache")
app.add_typer(benchmark.app, name="benchmark")


def _print_version(asked: bool) -> None:
    if asked:
        typer.echo(f"manylabel {__version__}")
        raise typer.Exit


@app.callback()
def settings(
    version: Annotated[  # noqa: ARG001 (the callback prints it)
        bool, typer.Option("--version", help="Show the version and exit.", callback=_print_version, is_eager=True)
    ] = False,
    debug: Annotated[bool, typer.Option("--debug", help="Show the whole traceback of an error, and log more.")] = False,
) -> None:
    """Set up logging for every command."""
    level = logging.DEBUG if debug else logging.WARNING
    handler = RichHandler(console=Console(stderr=True), show_path=debug, show_time=False)
    logging.basicConfig(level=logging.WARNING, format="%(message)s", handlers=[handler], force=True)
    logging.getLogger("manylabel").setLevel(level)


def main() -> None:
    """Run the command line; library errors become one red sentence and exit code 2."""
    try:
        app(prog_name="manylabel")
    except ManyLabelError as error:
        if "--debug" in sys.argv:
            raise
        Console(stderr=True, soft_wrap=True).print(f"Error: {error}", style="bold red", markup=False, highlight=False)
        sys.exit(2)
    except KeyboardInterrupt:
        sys.exit(130)
