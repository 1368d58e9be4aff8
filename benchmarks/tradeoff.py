"""Cost against accuracy over finished runs, as in ML-Decoder's Figures 5 and 6: python -m benchmarks.tradeoff runs/.

Ridnik et al., "ML-Decoder: Scalable and Versatile Classification Head", 2023.
"""

import argparse
import logging
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Literal

import torch
from matplotlib.figure import Figure

from manylabel.classifier import Classifier
from manylabel.cost import count_macs, median_seconds
from manylabel.errors import ManyLabelError
from manylabel.heads.config import describe_head
from manylabel.page import INK, new_figure, write_drawing
from manylabel.runs import Run, find_runs
from manylabel.runs.report import STROKES

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class TradeoffPoint:
    """Cost and mAP of a run's model.

    Args:
        run: Name of the run.
        head: Name of the head.
        backbone: Name of the backbone, and the image size.
        cost: GMACs or milliseconds for one image.
        mean_average_precision: On the validation set.
    """

    run: str
    head: str
    backbone: str
    cost: float
    mean_average_precision: float


def measure_tradeoff(
    runs: Sequence[Run], *, against: Literal["macs", "time"] = "macs", rounds: int = 10
) -> list[TradeoffPoint]:
    """Measure the cost of the models of finished runs.

    Args:
        runs: The runs; those that are not finished, or whose model cannot be loaded, are left out.
        against: ``"macs"`` counts, ``"time"`` measures predictions of one image at a time, interleaved.
        rounds: Number of times each is measured.
    """
    models = {}
    for run in runs:
        if run.is_finished and run.mean_average_precision is not None:
            try:
                models[run.path] = Classifier.from_pretrained(run.model)
            except ManyLabelError as error:
                logger.warning("%s is left out: %s", run.path, error)
    images = {path: torch.zeros(1, 3, *model.input_spec.size) for path, model in models.items()}
    if against == "macs" or not models:
        costs = {path: count_macs(model, images[path]) / 1e9 for path, model in models.items()}
    else:
        with torch.inference_mode():
            calls = {str(path): (lambda path=path: models[path](images[path])) for path in models}
            seconds = median_seconds(calls, rounds=rounds)
        costs = {path: 1000 * seconds[str(path)] for path in models}
    return [
        TradeoffPoint(
            run=run.name,
            head=describe_head(models[run.path].head).name,
            backbone=f"{models[run.path].backbone.name}, {models[run.path].input_spec.size[0]} px",
            cost=costs[run.path],
            mean_average_precision=run.mean_average_precision or 0.0,
        )
        for run in runs
        if run.path in models
    ]


def draw_tradeoff(points: Sequence[TradeoffPoint], *, against: Literal["macs", "time"] = "macs") -> Figure:
    """Draw mAP over cost; the same head on several backbones is one line."""
    drawing, axes = new_figure(width=7.2, height=4.0)
    by_head = groupby(sorted(points, key=lambda point: (point.head, point.cost)), key=lambda point: point.head)
    for number, (head, group) in enumerate(by_head):
        line = list(group)
        colour, stroke, mark = STROKES[number % len(STROKES)]
        costs, values = [point.cost for point in line], [100 * point.mean_average_precision for point in line]
        axes.plot(costs, values, color=colour, linestyle=stroke, marker=mark, label=head)
    for point in points:
        place = (point.cost, 100 * point.mean_average_precision)
        axes.annotate(point.run, place, xytext=(6, 4), textcoords="offset points", fontsize=8, color=INK)
    axes.set(xlabel="GMACs per image" if against == "macs" else "milliseconds per image", ylabel="mAP, in per cent")
    axes.grid(color=INK, alpha=0.15)  # the colour of the page is for pages alone, and this becomes a PNG
    axes.margins(0.15)
    axes.legend(frameon=False, fontsize=9, labelcolor="linecolor")
    return drawing


def main() -> None:
    """Print the points of all runs in a folder, and draw them."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path, help="folder of runs")
    parser.add_argument("--out", type=Path, help="PNG file to draw to")
    parser.add_argument("--time", action="store_true", help="measure the time instead of counting MACs")
    arguments = parser.parse_args()
    against: Literal["macs", "time"] = "time" if arguments.time else "macs"
    points = sorted(measure_tradeoff(find_runs(arguments.folder), against=against), key=lambda point: point.cost)
    for point in points:
        print(
            f"{point.run}\t{point.head}\t{point.backbone}\t{point.cost:.3f}\t{100 * point.mean_average_precision:.2f}"
        )
    if arguments.out is not None and points:
        print(f"Wrote {write_drawing(draw_tradeoff(points, against=against), arguments.out)}")


if __name__ == "__main__":
    main()
