"""The `manylabel` command: its subcommands, global options and error handling."""

import logging
import sys
from collections.abc import Callable
from typing import Annotated

import typer
from rich.logging import RichHandler

from manylabel import __version__
from manylabel.cli.data import app as data
from manylabel.cli.data import graph
from manylabel.cli.evaluate import apply, compare, evaluate, tune
from manylabel.cli.models import cost, export, models, vocabulary
from manylabel.cli.options import Command, Group
from manylabel.cli.predict import explain, predict, suggest
from manylabel.cli.runs import cache, report, runs
from manylabel.cli.serve import serve
from manylabel.cli.train import OWN_PARSER, train
from manylabel.errors import ManyLabelError
from manylabel.label_text import valid_unicode
from manylabel.progress import SafeConsole
from manylabel.system import naming_extras

COMMANDS: dict[str, Callable[..., None] | typer.Typer] = {
    "data": data,
    "suggest": suggest,
    "train": train,
    "evaluate": evaluate,
    "tune": tune,
    "apply": apply,
    "predict": predict,
    "explain": explain,
    "serve": serve,
    "export": export,
    "compare": compare,
    "report": report,
    "runs": runs,
    "cache": cache,
    "vocabulary": vocabulary,
    "graph": graph,
    "cost": cost,
    "models": models,
}
"""Commands in order of typical use."""


class _Commands(Group):
    """All commands; typer would list groups last."""

    def list_commands(self, ctx: object) -> list[str]:  # noqa: ARG002 (typer's)
        return list(COMMANDS)


app = typer.Typer(
    cls=_Commands,
    name="manylabel",
    help="Multi-label image classification: train, evaluate, explain and serve models.",
    epilog="First steps:  manylabel predict holiday/       tag photos\n"
    "              manylabel data check labels.csv  check a dataset, then train",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
for name, command in COMMANDS.items():
    if isinstance(command, typer.Typer):
        app.add_typer(command, name=name, cls=Group)
    else:
        app.command(name, context_settings=OWN_PARSER if name == "train" else None)(command)
for group in (app, *(command for command in COMMANDS.values() if isinstance(command, typer.Typer))):
    for registered in group.registered_commands:
        registered.cls = Command


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
    handler = RichHandler(console=SafeConsole(stderr=True), show_path=debug, show_time=False)
    logging.basicConfig(level=logging.WARNING, format="%(message)s", handlers=[handler], force=True)
    logging.getLogger("manylabel").setLevel(level)
    logging.getLogger("onnxscript").setLevel(logging.ERROR)  # warns of what it leaves unoptimised


def main() -> None:
    """Run the command line; a `ManyLabelError` prints its message and exits with code 2."""
    try:
        with naming_extras():
            app(prog_name="manylabel")
    except (ManyLabelError, TypeError, UnicodeError) as error:
        odd = [valid_unicode(each) for each in sys.argv if each != valid_unicode(each)]
        if "--debug" in sys.argv or not (odd or isinstance(error, ManyLabelError)):
            raise
        # libraries in other languages open only paths that are valid Unicode, and raise any of these
        words = error if isinstance(error, ManyLabelError) else f"the name {odd[0]!r} is not valid UTF-8; rename it"
        SafeConsole(stderr=True, soft_wrap=True).print(f"Error: {words}", style="bold red", markup=False)
        sys.exit(2)
    except KeyboardInterrupt:
        sys.exit(130)
