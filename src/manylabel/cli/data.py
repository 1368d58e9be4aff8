"""`manylabel data`: look at a data set before training on it."""

import typer

from manylabel.cli.check import check
from manylabel.cli.scenes import scenes

__all__ = ["app"]

app = typer.Typer(help="Look at a data set before training on it.", no_args_is_help=True)
app.command("check")(check)
app.command("scenes")(scenes)
