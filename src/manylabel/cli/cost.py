"""`manylabel cost`: multiply-accumulates, parameters, time and memory of a model."""

from __future__ import annotations

import json
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

__all__ = ["cost"]


def cost(
    model: Annotated[str, typer.Argument(help="Model or run folder, hub name or builtin:NAME.")],
    batch_size: Annotated[int, typer.Option(min=1, help="Images per batch.")] = 1,
    rounds: Annotated[int, typer.Option(min=1, help="Number of timed batches.")] = 10,
    device: Annotated[str | None, typer.Option(help="Torch device, such as cuda (default: cpu).")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Count the MACs and parameters of a model, and measure its latency and memory in torch."""
    import torch  # keeps `--help` fast

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
        "  in the head": f"{found['head_parameters'] / 1e6:.2f} M",
        f"time per image, batches of {batch_size}, {place}": f"{found['milliseconds']:.1f} ms",
        "peak memory of a batch, without weights": f"{memory / 1e6:.1f} MB",
    }
    for name, value in rows.items():
        table.add_row(name, value)
    Console(highlight=False).print(table)
