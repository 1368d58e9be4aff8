"""`manylabel train`: one command per recipe, one flag per setting; torch is imported only to train."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import MISSING, dataclass
from pathlib import Path
from typing import Annotated, Any, ClassVar

import typer
from rich.console import Console
from rich.panel import Panel
from rich.table import Table
from rich.text import Text
from typer.core import TyperGroup

from manylabel.errors import ConfigError, RunInterruptedError, list_choices
from manylabel.settings import PRESETS, RECIPE_SETTINGS, Field, build, read_flags, read_settings, settings_fields
from manylabel.settings.schema import info

__all__ = ["app"]

SHOWN = frozenset({"data", "out", "val", "head", "backbone", "loss", "epochs", "batch_size"})
SHOWN |= {"learning_rate", "device", "resume", "overwrite", "preset", "config", "dry_run", "help_all"}
SHOWN |= {"start_from", "augment", "partition", "k", "unseen", "encoder"}  # specific to one recipe


@dataclass(frozen=True, kw_only=True)
class RunOptions:
    """Options of the command itself, which are no settings of a recipe."""

    GROUP: ClassVar[str] = "Run"

    resume: Annotated[bool, info("Resume the run in --out, if it exists.")] = False
    overwrite: Annotated[bool, info("Replace an existing run in --out.")] = False
    preset: Annotated[str | None, info("Settings of a paper: {presets}.")] = None
    config: Annotated[
        Path | None, info("YAML file of settings, such as config.yaml of another run; flags override it.")
    ] = None
    dry_run: Annotated[bool, info("Print settings, cost and estimated time, and exit.")] = False
    help: Annotated[bool, info("Show the most common options.")] = False
    help_all: Annotated[bool, info("Show all options.")] = False


class RecipeCommands(TyperGroup):
    """One subcommand per recipe."""

    def list_commands(self, ctx: Any) -> list[str]:  # noqa: ANN401, ARG002 (typer's: it has its own copy of click)
        """Return the names of the recipes."""
        return list(RECIPE_SETTINGS)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:  # noqa: ANN401, ARG002 (typer's)
        """Return the command of a recipe; it parses its own flags, to list all errors at once."""
        if cmd_name not in RECIPE_SETTINGS:
            raise ConfigError(f"no recipe {cmd_name!r}; {list_choices(cmd_name, RECIPE_SETTINGS)}")
        single = typer.Typer(add_completion=False)
        leave = {"allow_extra_args": True, "ignore_unknown_options": True, "help_option_names": []}

        @single.command(cmd_name, help=_summary(cmd_name), context_settings=leave)
        def run(context: typer.Context) -> None:
            _run(cmd_name, context.args)

        return typer.main.get_command(single)


app = typer.Typer(cls=RecipeCommands, help="Train a model with a recipe.", no_args_is_help=True)


@app.callback()
def train() -> None:
    """Group the recipes."""


def _run(name: str, arguments: list[str]) -> None:
    kind, ours = RECIPE_SETTINGS[name], settings_fields(RunOptions)
    arguments = ["--help" if each == "-h" else each for each in arguments]
    flags = read_flags(arguments, switches=[each.name for each in _fields(name) if each.is_switch])
    options = build(RunOptions, {key: value for key, value in flags.items() if key in ours})
    if options.help or options.help_all:
        Console().print(*_help(name, everything=options.help_all), sep="\n")
        return
    given = {key: value for key, value in flags.items() if key not in ours}
    settings = read_settings(kind, given, presets=PRESETS[name], preset=options.preset, file=options.config)

    from manylabel.recipes import RECIPES, Reporter
    from manylabel.recipes.plan import plan

    recipe, console = RECIPES[name], Console(stderr=True)
    if options.dry_run:
        Console(soft_wrap=True).print(plan(recipe.setup(settings)).to_text(), highlight=False, markup=False)
        return
    try:
        recipe(settings, resume=options.resume, overwrite=options.overwrite, reporter=Reporter(console))
    except RunInterruptedError as stop:
        console.print(str(stop), style="bold yellow", highlight=False, markup=False, soft_wrap=True)
        raise typer.Exit(stop.exit_code) from stop


def _help(name: str, *, everything: bool) -> Iterable[Text | Panel]:
    """Return the help of a recipe: its summary and its options in groups, required ones first."""
    yield Text(f"manylabel train {name} --data SPEC [--out FOLDER] [OPTIONS]\n", style="bold")
    yield Text(f"{_summary(name)}\n")
    groups: dict[str, list[Field]] = {}
    for field in _fields(name):
        if field.is_flag and (everything or field.name in SHOWN) and (field.name != "preset" or PRESETS[name]):
            groups.setdefault(field.group, []).append(field)
    for group, fields in groups.items():
        table = Table.grid(padding=(0, 1))
        for field in sorted(fields, key=lambda each: each.default is not MISSING):
            default = "" if field.default in (None, MISSING) or field.is_switch else f"[{field.default}]"
            words = Text(field.help.format(presets=", ".join(PRESETS[name]), label="{label}"))
            words.append(" ".join(["", *filter(None, ["|".join(field.choices), default])]), style="dim")
            table.add_row(Text(_flag(field), style="cyan"), words)
        yield Panel(table, title=group, title_align="left")
    yield Text("Arguments of the head and the loss: --head.NAME VALUE, --loss.NAME VALUE.", style="dim")


def _flag(field: Field) -> str:
    flag = field.name.replace("_", "-")
    if field.group == RunOptions.GROUP and field.is_switch:
        return f"--{flag}"
    if field.is_switch:
        return f"--{flag}/--no-{flag}"
    return f"--{flag} {'NAME' if field.choices else field.metavar}"


def _fields(name: str) -> list[Field]:
    return [*settings_fields(RECIPE_SETTINGS[name]).values(), *settings_fields(RunOptions).values()]


def _summary(name: str) -> str:
    return (RECIPE_SETTINGS[name].__doc__ or "").partition("\n")[0]
