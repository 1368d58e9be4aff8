"""`manylabel data`: look at a data set before training on it."""

import typer

__all__ = ["app"]

app = typer.Typer(help="Look at a data set before training on it.", no_args_is_help=True)
