"""Help of all commands in one form: usage, summary, then options in groups with their defaults."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from inspect import cleandoc
from typing import Any

from rich.console import Console
from rich.panel import Panel
from rich.table import Table
from rich.text import Text
from typer.core import TyperCommand, TyperGroup

__all__ = ["Command", "Group", "option_row", "print_help"]


class Command(TyperCommand):
    """Command whose help has our form."""

    def format_help(self, ctx: Any, formatter: Any) -> None:  # noqa: ANN401, ARG002 (typer's: it has its own click)
        """Print the help."""
        _print_command(self, ctx)


class Group(TyperGroup):
    """Group of commands whose help has our form."""

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
    console = Console(highlight=False)
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
