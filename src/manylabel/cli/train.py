"""`manylabel train`: one command per recipe, its flags made from the recipe's settings."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import MISSING, fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from typer.core import TyperGroup

from manylabel.cli.recipe_names import RECIPE_NAMES
from manylabel.errors import ConfigError, RunInterruptedError, list_choices

if TYPE_CHECKING:
    from manylabel.recipes import Recipe

__all__ = ["app"]


class RecipeCommands(TyperGroup):
    """The recipes as commands; one is loaded only when it is called, because torch takes seconds to import."""

    def list_commands(self, ctx: Any) -> list[str]:  # noqa: ANN401, ARG002 (typer's: it has its own copy of click)
        """Return the names of the recipes."""
        return list(RECIPE_NAMES)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:  # noqa: ANN401, ARG002 (typer's)
        """Return the command of a recipe, without its flags."""
        return _to_command(cmd_name, lambda: None)

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:  # noqa: ANN401, ARG002 (typer's)
        """Return the command that was called, with its flags."""
        name, *rest = args
        if name not in RECIPE_NAMES:
            raise ConfigError(f"no recipe {name!r}; {list_choices(name, RECIPE_NAMES)}")
        from manylabel.recipes import RECIPES

        return name, _to_command(name, _make_function(RECIPES[name])), rest


def _to_command(name: str, function: Callable[..., None]) -> Any:  # noqa: ANN401 (typer's own copy of click)
    single = typer.Typer(add_completion=False, rich_markup_mode="rich")
    # Flags such as --head.NAME, and mistakes, are left to us.
    leave = {"allow_extra_args": True, "ignore_unknown_options": True, "help_option_names": ["-h", "--help"]}
    single.command(name, help=RECIPE_NAMES[name], context_settings=leave)(function)
    return typer.main.get_command(single)


app = typer.Typer(cls=RecipeCommands, help="Train a model with one of the recipes.", no_args_is_help=True)


@app.callback()
def train() -> None:
    """Hold the recipes together."""


def _make_function(recipe: Recipe) -> Callable[..., None]:
    """Return a function whose signature is the recipe's settings and what all recipes share."""

    def run(context: typer.Context, **values: Any) -> None:  # noqa: ANN401 (the signature below says which)
        _run(recipe, context.args, values)

    parameters = [_keyword("context", typer.Context, inspect.Parameter.empty), *_shared(recipe), *_settings(recipe)]
    run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined] # what makes a signature ours
    run.__annotations__ = {each.name: each.annotation for each in parameters}
    return run


def _run(recipe: Recipe, extra: list[str], values: dict[str, Any]) -> None:
    from manylabel.recipes import Reporter
    from manylabel.recipes.planning import plan
    from manylabel.recipes.resolving import read_extra_flags, resolve

    chosen = {name: values.pop(name) for name in ("config", "preset", "resume", "overwrite", "dry_run")}
    flags = {name: value for name, value in values.items() if value is not None} | read_extra_flags(extra)
    settings = resolve(recipe, flags, preset=chosen["preset"], file=chosen["config"])
    console = Console(stderr=True)
    if chosen["dry_run"]:
        Console(soft_wrap=True).print(plan(settings).to_text(), highlight=False, markup=False)
        return
    try:
        recipe.run(settings, resume=chosen["resume"], overwrite=chosen["overwrite"], reporter=Reporter(console))
    except RunInterruptedError as stop:
        console.print(str(stop), style="bold yellow", highlight=False, markup=False, soft_wrap=True)
        raise typer.Exit(stop.exit_code) from stop


def _shared(recipe: Recipe) -> list[inspect.Parameter]:
    """Return the flags that are not settings."""
    names = ", ".join(recipe.presets) or "this recipe has none"
    described: Mapping[str, tuple[Any, str, Any]] = {
        "config": (Path, "Settings as YAML, such as the config.yaml of another run; flags override it.", None),
        "preset": (str, f"Settings of a paper: {names}.", None),
        "resume": (bool, "Go on with the run in the folder, if there is one.", False),
        "overwrite": (bool, "Throw away a run that is in the folder.", False),
        "dry_run": (bool, "Only print the settings, what the model costs and about how long it would take.", False),
    }
    return [
        _keyword(
            name,
            Annotated[kind if kind is bool else kind | None, typer.Option(f"--{name.replace('_', '-')}", help=text)],
            default,
        )
        for name, (kind, text, default) in described.items()
    ]


def _settings(recipe: Recipe) -> list[inspect.Parameter]:
    """Return a flag for each setting; all are texts, so that the settings can list all mistakes at once."""
    from manylabel.training.config import annotations, field_docs
    from manylabel.training.fields import describe

    docs, types = field_docs(recipe.settings), annotations(recipe.settings)
    parameters = []
    for field in fields(recipe.settings):
        if field.name.endswith("_settings"):
            continue  # --head.NAME and --loss.NAME
        flag, words = field.name.replace("_", "-"), describe(types[field.name])
        is_switch = words == "TRUE OR FALSE"
        option = typer.Option(
            f"--{flag}/--no-{flag}" if is_switch else f"--{flag}",
            help=docs[field.name],
            metavar=None if is_switch else words,
            show_default="required" if field.default is MISSING else str(field.default).lower(),
            rich_help_panel="Settings",
        )
        parameters.append(_keyword(field.name, Annotated[(bool if is_switch else str) | None, option], None))
    return parameters


def _keyword(name: str, annotation: Any, default: Any) -> inspect.Parameter:  # noqa: ANN401 (any of both)
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation)
