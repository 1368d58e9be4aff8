"""`manylabel cache`: features of frozen backbones on disk, listed and removed."""

from __future__ import annotations

import json
import shutil
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from manylabel.errors import ConfigError
from manylabel.storage import cache_folder

if TYPE_CHECKING:
    from manylabel.data.feature_store import StoreInfo

__all__ = ["app"]

app = typer.Typer(help="Features of frozen backbones on disk: list and remove them.", no_args_is_help=True)


@app.command("ls")
def ls(
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON for programs.")] = False,
) -> None:
    """List the features on disk, the last used first."""
    from manylabel.data.feature_store import default_root, list_stores  # here: `--help` must not wait for torch

    stores = list_stores()
    if as_json:
        typer.echo(json.dumps([_to_dict(store) for store in stores], indent=2))
        return
    if stores:
        Console().print(_to_table(stores))
    total = sum(store.num_bytes for store in stores)
    typer.echo(f"{len(stores)} sets of features, {total / 1e9:.2f} GB, in {default_root()}")
    exports = _exported_models()
    if exports:
        size = sum(file.stat().st_size for file in exports)
        typer.echo(f"{len(exports)} exported models, {size / 1e9:.2f} GB, in {exports[0].parent}")


@app.command("rm")
def rm(
    key: Annotated[str, typer.Argument(help="Which one: its key, or the start of it.")] = "",
    everything: Annotated[
        bool, typer.Option("--all", help="Remove all, and exported backbones and models too.")
    ] = False,
    older_than: Annotated[
        float | None,
        typer.Option(help="Remove those not used for so many days; exported models, made so long ago.", metavar="DAYS"),
    ] = None,
) -> None:
    """Remove features from disk; they are computed again when they are needed."""
    from manylabel.data.feature_store import EXPORTS, default_root, list_stores, remove_store

    if sum((bool(key), everything, older_than is not None)) != 1:
        raise ConfigError("say what to remove: a KEY of 'manylabel cache ls', --all, or --older-than DAYS")
    used_before = time.time() - 86400 * (older_than or 0)
    keys = [key] if key else [store.key for store in list_stores() if everything or store.used < used_before]
    removed = [remove_store(each) for each in keys]
    if everything:
        shutil.rmtree(default_root() / EXPORTS, ignore_errors=True)
    exports = [] if key else [file for file in _exported_models() if everything or file.stat().st_mtime < used_before]
    num_bytes = sum(store.num_bytes for store in removed) + sum(file.stat().st_size for file in exports)
    for file in exports:
        file.unlink()
    rest = f" and {len(exports)} exported models" if exports else ""
    typer.echo(f"Removed {len(removed)} sets of features{rest}, {num_bytes / 1e9:.2f} GB.")


def _exported_models() -> list[Path]:
    """Return the models that predict and serve exported for onnxruntime."""
    from manylabel.inference.engine import EXPORTS

    return sorted((cache_folder() / EXPORTS).glob("*.onnx*"))


def _to_dict(store: StoreInfo) -> dict[str, object]:
    return {
        "key": store.key,
        "dataset": store.kind.dataset,
        "backbone": store.kind.backbone,
        "stages": store.kind.stages,
        "shapes": store.kind.shapes,
        "pooling": store.kind.pooling,
        "view": store.kind.view,
        "pictures": store.num_pictures,
        "bad": store.bad,
        "bytes": store.num_bytes,
        "used": store.used,
        "writer": store.writer,
        "folder": str(store.folder),
    }


def _to_table(stores: list[StoreInfo]) -> Table:
    table = Table(box=None, header_style="bold")
    for column in ("key", "data set", "backbone", "features", "view"):
        table.add_column(column, no_wrap=column in ("key", "features"))
    for column in ("pictures", "MB", "used"):
        table.add_column(column, justify="right", no_wrap=True)
    for store in stores:
        kind = store.kind
        features = ", ".join("x".join(map(str, shape)) for shape in kind.shapes)
        numbers = (f"{store.num_pictures:,}", f"{store.num_bytes / 1e6:,.0f}", "now" if store.writer else _age(store))
        # half of the key fits a narrow terminal, and is enough to name it
        words = map(escape, (kind.dataset, kind.backbone))
        table.add_row(store.key[:8], *words, features, str(kind.view), *numbers)
    return table


def _age(store: StoreInfo) -> str:
    """Return how long ago a store was used."""
    seconds = time.time() - store.used
    for length, name in ((86400, "days"), (3600, "h")):
        if seconds >= 2 * length:
            return f"{seconds / length:.0f} {name}"
    return f"{seconds / 60:.0f} min"
