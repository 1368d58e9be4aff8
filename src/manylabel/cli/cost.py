"""`manylabel cost`: multiply-accumulates, parameters, time and memory of a model."""

from __future__ import annotations

import json
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

__all__ = ["cost"]


def cost(
    model: Annotated[str, typer.Argument(help="A model's folder, builtin:NAME, or a name on the hub.")],
    batch_size: Annotated[int, typer.Option(min=1, help="Number of images per batch, for time and memory.")] = 1,
    rounds: Annotated[int, typer.Option(min=1, help="Number of timed batches.")] = 10,
    device: Annotated[str | None, typer.Option(help="Device of torch, such as cuda (default: the CPU).")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON for programs.")] = False,
) -> None:
    """Count the multiply-accumulates and parameters of a model; measure time and memory of a prediction in torch."""
    import torch  # here because `--help` must not wait for torch

    from manylabel.classifier import Classifier
    from manylabel.cost import count_macs, count_parameters, median_seconds, peak_memory
    from manylabel.system import find_device

    place = torch.device("cpu" if device is None else find_device(device))
    classifier = Classifier.from_pretrained(model).eval().to(place)
    size = classifier.input_spec.size
    images = torch.zeros(batch_size, 3, *size, device=place)

    def predict() -> None:
        classifier(images)
        if place.type == "cuda":
            torch.cuda.synchronize(place)

    with torch.inference_mode():
        seconds = median_seconds({"predict": predict}, rounds=rounds)["predict"]
        memory = peak_memory(predict)
    found = {
        "macs": count_macs(classifier, images[:1]),
        "parameters": count_parameters(classifier),
        "head_parameters": count_parameters(classifier.head),
        "milliseconds": 1000 * seconds / batch_size,
        "peak_memory_bytes": memory,
    }
    if as_json:
        settings = {"model": model, "image_size": list(size), "batch_size": batch_size, "device": str(place)}
        typer.echo(json.dumps({**settings, **found}, indent=2))
        return
    table = Table(box=None, header_style="bold", pad_edge=False, show_header=False)
    rows = {
        "image size": f"{size[0]} x {size[1]}",
        "MACs per image": f"{found['macs'] / 1e9:.3f} G",
        "parameters": f"{found['parameters'] / 1e6:.2f} M",
        "of these in the head": f"{found['head_parameters'] / 1e6:.2f} M",
        f"time per image, batches of {batch_size}, {place}": f"{found['milliseconds']:.1f} ms",
        "peak memory of a batch, without weights": f"{memory / 1e6:.1f} MB",
    }
    for name, value in rows.items():
        table.add_row(name, value)
    Console(highlight=False).print(table)
