"""`manylabel train`: one flag per setting of the recipe; torch is imported only to train."""

from dataclasses import MISSING, dataclass
from pathlib import Path
from typing import ClassVar

import typer
from rich.text import Text

from manylabel.cli.options import option_row, print_help
from manylabel.errors import ConfigError, RunInterruptedError, list_choices
from manylabel.progress import SafeConsole
from manylabel.schema import Field, build, read_flags, read_settings, setting, settings_fields
from manylabel.settings import PRESETS, RECIPE_SETTINGS

OWN_PARSER = {"allow_extra_args": True, "ignore_unknown_options": True, "help_option_names": []}
"""Settings of the command: it parses its own flags, which depend on the recipe, and lists all errors at once."""

SHOWN = frozenset({"data", "recipe", "out", "val", "head", "backbone", "loss", "epochs", "batch_size", "learning_rate"})
SHOWN |= {"resume", "preset", "help_all"}
SHOWN |= {"start_from", "augment", "partition", "k", "unseen", "encoder"}  # specific to one recipe


@dataclass(frozen=True, kw_only=True)
class RunOptions:
    """Options of the command itself, which are not settings of a recipe."""

    GROUP: ClassVar[str] = "Run"

    recipe: str = setting("probe", f"Training recipe: {', '.join(RECIPE_SETTINGS)}.")
    preset: str | None = setting(None, "Settings of a paper: {presets}.")
    config: Path | None = setting(None, "YAML file of settings, such as config.yaml of another run; flags override it.")
    resume: bool = setting(False, "Resume the run in --out, if it exists.")
    overwrite: bool = setting(False, "Replace an existing run in --out.")
    dry_run: bool = setting(False, "Print settings, cost and estimated time, and exit.")
    help: bool = setting(False, "Show the most common options.")
    help_all: bool = setting(False, "Show all options.")


def train(context: typer.Context) -> None:
    """Train a model on a dataset."""
    own = settings_fields(RunOptions)
    switches = {each.name for recipe in RECIPE_SETTINGS for each in _fields(recipe) if each.is_switch}
    inputs, flags = read_flags(["--help" if each == "-h" else each for each in context.args], switches=switches)
    options = build(RunOptions, {key: value for key, value in flags.items() if key in own})
    name = options.recipe
    if name not in RECIPE_SETTINGS:
        raise ConfigError(f"no recipe {name!r}; {list_choices(name, RECIPE_SETTINGS)}")
    if options.help or options.help_all or not context.args:
        _show_help(name, everything=options.help_all)
        return
    if "data" in flags or len(inputs) > 1:
        extra = "--data" if "data" in flags else inputs[1]
        raise ConfigError(f"unexpected argument {extra!r}; use: manylabel train DATA --out RUN --option VALUE")
    fields = settings_fields(RECIPE_SETTINGS[name])
    if hidden := [key for key in flags if key in fields and not fields[key].is_flag]:
        raise ConfigError(
            f"{', '.join(hidden)} can only be set in a YAML file: --config FILE, with a line '{hidden[0]}: ...'"
        )
    given = {key: value for key, value in flags.items() if key not in own} | dict(zip(["data"], inputs, strict=False))
    settings = read_settings(
        RECIPE_SETTINGS[name], given, presets=PRESETS[name], preset=options.preset, file=options.config
    )

    from manylabel.recipes import RECIPES, Reporter
    from manylabel.recipes.plan import plan

    recipe, console = RECIPES[name], SafeConsole(stderr=True)
    if options.dry_run:
        SafeConsole(soft_wrap=True).print(plan(recipe.setup(settings)).to_text(), markup=False)
        return
    try:
        recipe(settings, resume=options.resume, overwrite=options.overwrite, reporter=Reporter(console))
    except RunInterruptedError as stop:
        console.print(str(stop), style="bold yellow", highlight=False, markup=False, soft_wrap=True)
        raise typer.Exit(stop.exit_code) from stop


def _show_help(name: str, *, everything: bool) -> None:
    """Print the help of a recipe: its summary, and its options in groups."""
    groups: dict[str, list[tuple[Text, Text]]] = {}
    for field in _fields(name):
        if field.is_flag and (everything or field.name in SHOWN) and (field.name != "preset" or PRESETS[name]):
            text = field.help.format(presets=", ".join(PRESETS[name]), label="{label}")
            has_default = field.default not in (None, MISSING) and not field.is_switch
            default = f"[default: {field.default}]" if has_default else ""
            row = option_row(_flag(field), text, " | ".join(field.choices), default)
            groups.setdefault(field.group, []).append(row)
    recipe = "" if name == RunOptions.recipe else f" --recipe {name}"
    print_help(
        f"manylabel train DATA{recipe} [OPTIONS]",
        (RECIPE_SETTINGS[name].__doc__ or "").partition("Examples:")[0],
        groups,
        "Settings of the head and the loss: --head.NAME VALUE, --loss.NAME VALUE.\n"
        "config.yaml of a run lists all settings; pass a changed copy with --config.",
    )


def _flag(field: Field) -> str:
    if field.name == "data":
        return "DATA"
    flag = field.name.replace("_", "-")
    if field.is_switch:
        return f"--{flag}" if field.group == RunOptions.GROUP else f"--{flag}/--no-{flag}"
    return f"--{flag} {'NAME' if field.choices else field.metavar}"


def _fields(name: str) -> list[Field]:
    return [*settings_fields(RECIPE_SETTINGS[name]).values(), *settings_fields(RunOptions).values()]
