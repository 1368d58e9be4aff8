"""`manylabel cache`: list and remove cached features and exported models."""

from __future__ import annotations

import shutil
import time
from collections.abc import Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from manylabel.cli.options import AsJson, argument, flag, option, print_table, show_result
from manylabel.errors import ConfigError
from manylabel.inference.engine import EXPORTS
from manylabel.storage import cache_folder

if TYPE_CHECKING:  # keeps --help fast: it imports torch
    from manylabel.features import StoreInfo

__all__ = ["app"]

app = typer.Typer(help="List and remove cached features and exported models.", no_args_is_help=True)


@app.command("list")
def list_(as_json: AsJson = False) -> None:
    """List cached features and exported models, most recently used first."""
    from manylabel.features import list_stores, remove_leftovers

    remove_leftovers()
    stores = list_stores()
    show_result([{"key": store.key, **asdict(store)} for store in stores], partial(_show, stores), as_json=as_json)


@app.command("remove")
def remove(
    key: Annotated[str, argument("KEY", "Key of a feature set, or its first digits.")] = "",
    everything: Annotated[bool, flag("--all", "Remove all features and exported models.")] = False,
    older_than: Annotated[float | None, option("DAYS", "Remove entries unused for this many days.")] = None,
) -> None:
    """Remove cached features and exported models; they are recomputed when needed."""
    from manylabel.features import default_root, list_stores, remove_leftovers, remove_store

    if sum((bool(key), everything, older_than is not None)) != 1:
        raise ConfigError("nothing given to remove; give a KEY of 'manylabel cache list', --all, or --older-than DAYS")
    remove_leftovers()
    used_before = time.time() - 86400 * (older_than or 0)
    keys = [key] if key else [store.key for store in list_stores() if everything or store.used < used_before]
    removed = [remove_store(each) for each in keys]
    if everything:
        shutil.rmtree(default_root(), ignore_errors=True)  # including damaged stores and those of other versions
    exports = [] if key else [file for file in _exports() if everything or file.stat().st_mtime < used_before]
    num_bytes = sum(store.num_bytes for store in removed) + sum(file.stat().st_size for file in exports)
    for file in exports:
        file.unlink()
    rest = f" and {len(exports)} exported models" if exports else ""
    typer.echo(f"Removed {len(removed)} feature sets{rest}, {num_bytes / 1e9:.2f} GB.")


def _exports() -> list[Path]:
    """Return the models and backbones exported for onnxruntime."""
    return sorted((cache_folder() / EXPORTS).glob("*.onnx*"))


def _show(stores: Sequence[StoreInfo]) -> None:
    from manylabel.features import default_root

    rows = []
    for store in stores:
        spec = store.spec
        features = ", ".join("x".join(map(str, shape)) for shape in spec.shapes)
        numbers = (f"{store.num_images:,}", f"{store.num_bytes / 1e6:,.0f}", "now" if store.writer else _age(store))
        # half of the key fits a narrow terminal and identifies it
        rows.append((store.key[:8], spec.dataset, spec.backbone, features, str(spec.view), *numbers))
    if rows:
        print_table(rows, "key", "dataset", "backbone", "features", "view", right=("images", "MB", "used"))
    total = sum(store.num_bytes for store in stores)
    typer.echo(f"{len(stores)} feature sets, {total / 1e9:.2f} GB, in {default_root()}")
    if exports := _exports():
        size = sum(file.stat().st_size for file in exports)
        typer.echo(f"{len(exports)} exported models, {size / 1e9:.2f} GB")


def _age(store: StoreInfo) -> str:
    """Return the time since a store was last used."""
    seconds = time.time() - store.used
    for length, name in ((86400, "days"), (3600, "h")):
        if seconds >= 2 * length:
            return f"{seconds / length:.0f} {name}"
    return f"{seconds / 60:.0f} min"
