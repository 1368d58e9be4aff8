"""Speed against accuracy over runs: ML-Decoder's Figures 5 and 6.

Ridnik et al., "ML-Decoder: Scalable and Versatile Classification Head", 2023.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Literal

import torch

from manylabel.classifier import Classifier
from manylabel.classifier.head_config import describe_head
from manylabel.cost import count_macs, median_seconds
from manylabel.errors import ManyLabelError
from manylabel.page import INK, Figure, new_figure
from manylabel.runs.plots import STROKES
from manylabel.runs.run import Run

__all__ = ["TradeoffPoint", "draw_tradeoff", "measure_tradeoff"]

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class TradeoffPoint:
    """What a run's model costs and reaches.

    Args:
        run: The run's name.
        head: The head's name.
        backbone: The backbone's name and the picture's size.
        cost: GMACs or milliseconds for one picture.
        mean_average_precision: On the held-out pictures.
    """

    run: str
    head: str
    backbone: str
    cost: float
    mean_average_precision: float


def measure_tradeoff(
    runs: Sequence[Run], *, against: Literal["macs", "time"] = "macs", rounds: int = 10
) -> list[TradeoffPoint]:
    """Measure what the models of finished runs cost, beside the mAP of their last epoch.

    Args:
        runs: The runs; those that are not finished, or whose model cannot be loaded, are left out.
        against: ``"macs"`` counts, ``"time"`` measures predictions of one picture at a time, by turns.
        rounds: How often each is timed.
    """
    models = {}
    for run in runs:
        if run.is_finished and run.mean_average_precision is not None:
            try:
                models[str(run.path)] = Classifier.load(run.model)
            except ManyLabelError as error:
                logger.warning("%s is left out: %s", run.path, error)
    done = [run for run in runs if str(run.path) in models]
    images = {name: torch.zeros(1, 3, *model.input_spec.size) for name, model in models.items()}
    if against == "macs" or not done:
        costs = {name: count_macs(model, images[name]) / 1e9 for name, model in models.items()}
    else:
        with torch.inference_mode():
            calls = {name: (lambda name=name: models[name](images[name])) for name in models}
            costs = {name: 1000 * seconds for name, seconds in median_seconds(calls, rounds=rounds).items()}
    return [
        TradeoffPoint(
            run=run.name,
            head=describe_head(models[str(run.path)].head).name,
            backbone=f"{models[str(run.path)].backbone.name}, {models[str(run.path)].input_spec.size[0]} px",
            cost=costs[str(run.path)],
            mean_average_precision=run.mean_average_precision or 0.0,
        )
        for run in done
    ]


def draw_tradeoff(points: Sequence[TradeoffPoint], *, against: Literal["macs", "time"] = "macs") -> Figure:
    """Draw mAP over cost; the same head on several backbones is one line.

    Args:
        points: What `measure_tradeoff` found.
        against: What the cost is.

    Examples:
        >>> plain = TradeoffPoint("a", "linear", "resnet10t", 1.0, 0.5)
        >>> points = [plain, TradeoffPoint("b", "csra", "resnet10t", 1.1, 0.6)]
        >>> draw_tradeoff(points).caption
        'Up and to the left is better. Points of one head are joined; each is named after its run.'
    """
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
    what = (
        "multiply-accumulates for one picture, in thousand millions" if against == "macs" else "milliseconds a picture"
    )
    axes.set(xlabel=what, ylabel="mAP, in per cent")
    axes.grid(color=INK, alpha=0.15)  # the colour of the page is for pages alone, and this may become a PNG
    axes.margins(0.15)
    axes.legend(frameon=False, fontsize=9, labelcolor="linecolor")
    return Figure(drawing, "Up and to the left is better. Points of one head are joined; each is named after its run.")
