"""`manylabel vocabulary`: list, add and remove the labels of a zero-shot model."""

from __future__ import annotations

import json
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from manylabel.cli.model_names import refuse_shared
from manylabel.errors import ConfigError, LabelError, list_choices

if TYPE_CHECKING:
    from manylabel.classifier import Classifier

__all__ = ["vocabulary"]


class Action(StrEnum):
    """Action to take."""

    ADD = "add"
    LIST = "list"
    REMOVE = "remove"


def vocabulary(
    model: Annotated[str, typer.Argument(help="Model or run folder of the recipe zero_shot.")],
    action: Annotated[Action, typer.Argument(help="Action to take.")],
    labels: Annotated[list[str] | None, typer.Argument(help="Labels; quote those of several words.")] = None,
    file: Annotated[
        Path | None, typer.Option("--from", metavar="FILE", help="File with more labels, one per line.")
    ] = None,
    out: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Write a changed copy (default: change MODEL in place).")
    ] = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace existing files.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """List, add or remove labels of a zero-shot model, without training."""
    from manylabel.builtin import find_model  # keeps `--help` fast
    from manylabel.classifier import Classifier, read_model

    source = find_model(model)
    found = Classifier.load(source)
    if action is Action.LIST:
        _show(found, as_json=as_json)
        return
    names = _names(labels or [], file)
    changed = _add(found, names) if action is Action.ADD else _remove(found, names)
    if out is None:
        refuse_shared(model)
    saved = read_model(source)
    folder = changed.save(
        out or source, include_backbone=saved.includes_backbone, half=saved.is_half, overwrite=overwrite or out is None
    )
    typer.echo(f"{folder} now has {len(changed.labels):,} labels ({len(changed.labels) - len(found.labels):+,}).")


def _names(labels: list[str], file: Path | None) -> list[str]:
    from manylabel.data.readers.layout import read_label_list

    if file is not None and not file.is_file():
        raise ConfigError(f"label file {file} does not exist")
    names = [*labels, *([] if file is None else read_label_list(file))]
    if not names:
        raise ConfigError("no labels given; name at least one, or pass a file with --from FILE")
    return names


def _add(model: Classifier, names: list[str]) -> Classifier:
    fresh = [name for name in dict.fromkeys(name.strip() for name in names) if name not in model.labels]
    return model.with_labels([*model.labels, *fresh])


def _remove(model: Classifier, names: list[str]) -> Classifier:
    for name in names:
        if name not in model.labels:
            raise LabelError(f"the model has no label {name!r}; {list_choices(name, model.labels)}")
    kept = [name for name in model.labels if name not in set(names)]
    if not kept:
        raise ConfigError("cannot remove all labels; a model needs at least one")
    return model.with_labels(kept)


def _show(model: Classifier, *, as_json: bool) -> None:
    trained = set(model.labels if model.text is None else model.text.trained)
    rows = [{"label": name, "trained": name in trained} for name in model.labels]
    if as_json:
        typer.echo(json.dumps(rows, indent=2, ensure_ascii=False))
        return
    table = Table(box=None, header_style="bold")
    table.add_column("label")
    table.add_column("trained on")
    for row in rows:
        table.add_row(escape(str(row["label"])), "yes" if row["trained"] else "no, from text")
    Console().print(table)
    if model.text is None:
        typer.echo("The labels cannot be changed: the model was not trained with the recipe zero_shot.")
    else:
        typer.echo(f"Text encoder: {model.text.encoder}. Add a label with: manylabel vocabulary MODEL add 'fire truck'")
