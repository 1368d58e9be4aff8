"""Time of heads by number of labels, plotted to docs/images/label-scaling.png: python benchmarks/label_scaling.py.

One image, a map of 7 x 7 positions with 2048 channels, width 256, inference, one thread, processor time. A curve ends
where one call exceeds the limit.
"""

import argparse
from collections.abc import Callable
from functools import partial
from pathlib import Path
from time import process_time

import torch
from matplotlib.figure import Figure
from torch import nn

from manylabel.cost import median_seconds, peak_memory
from manylabel.heads import MLDecoder

LABELS = (80, 250, 800, 2500, 8000, 25_000, 100_000)
HEADS: dict[str, Callable[[int], nn.Module]] = {
    "transformer decoder (self-attention)": lambda labels: MLDecoder(2048, labels, width=256, self_attention=True),
    "ML-Decoder, a query per label": lambda labels: MLDecoder(2048, labels, width=256),
    "ML-Decoder, 100 groups": lambda labels: MLDecoder(2048, labels, width=256, num_groups=min(100, labels)),
}


def measure(limit: float) -> dict[str, list[tuple[int, float, float]]]:
    """Return labels, seconds and MiB of each head, for as many labels as the limit allows."""
    features = [torch.randn(1, 2048, 7, 7)]
    curves: dict[str, list[tuple[int, float, float]]] = {name: [] for name in HEADS}
    for labels in LABELS:
        running = [name for name, points in curves.items() if all(seconds <= limit for _, seconds, _ in points)]
        calls = {name: partial(HEADS[name](labels).eval(), features) for name in running}
        with torch.inference_mode():
            rounds = 9 if labels <= 2500 else 3
            seconds = median_seconds(calls, rounds=rounds, warmup=0, clock=process_time)
            for name, call in calls.items():
                curves[name].append((labels, seconds[name], peak_memory(call) / 2**20))
                print(f"{labels:7} labels  {seconds[name] * 1e3:9.1f} ms  {curves[name][-1][2]:7.1f} MiB  {name}")
    return curves


def draw(curves: dict[str, list[tuple[int, float, float]]], path: Path) -> None:
    """Draw time and memory side by side."""
    figure = Figure(figsize=(9, 3.6), layout="constrained")
    time, memory = figure.subplots(1, 2)
    for name, points in curves.items():
        labels, seconds, mebibytes = zip(*points, strict=True)
        time.loglog(labels, [second * 1e3 for second in seconds], marker="o", markersize=4, label=name)
        memory.loglog(labels, mebibytes, marker="o", markersize=4, label=name)
    for axes, what in ((time, "milliseconds an image"), (memory, "peak memory, MiB, without weights")):
        axes.set(xlabel="labels", ylabel=what)
        axes.grid(alpha=0.3)
    time.legend(frameon=False, fontsize=8)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=90)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--limit", type=float, default=4.0, help="seconds a call may take before its curve ends")
    parser.add_argument("--output", type=Path, default=Path("docs/images/label-scaling.png"))
    arguments = parser.parse_args()
    torch.manual_seed(0)
    torch.set_num_threads(1)
    draw(measure(arguments.limit), arguments.output)
