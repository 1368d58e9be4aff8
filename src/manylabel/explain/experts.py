"""Which experts a Hybrid Sharing Query head listens to, label by label, and whether any is dead.

Yin et al., "Hybrid Sharing for Multi-Label Image Classification", Figure 5.

Letters in shape comments: L labels, E experts.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from matplotlib.colors import LogNorm
from matplotlib.figure import Figure
from torch import Tensor

from manylabel.classifier import Classifier
from manylabel.data import ImageDataset
from manylabel.errors import ConfigError
from manylabel.explain.explanation import COLOURS
from manylabel.explain.passes import feature_passes
from manylabel.heads.traits import as_expert_head
from manylabel.types import LabelSpace

__all__ = ["ExpertLoad", "draw_experts", "expert_load"]

_INK = "#22262b"
_DEAD_SHARE = 0.01


@dataclass(frozen=True, eq=False)
class ExpertLoad:
    """How much each label listens to each expert, on average over some pictures.

    Args:
        labels: The labels.
        loads: ``[L, E]``, each row sums to 1: the experts that all labels share first, then the label's own.
        num_shared: How many of the experts are shared.
        num_pictures: How many pictures this is the mean of.

    Examples:
        >>> load = ExpertLoad(LabelSpace(["cat", "dog"]), torch.tensor([[0.9, 0.0, 0.1], [0.5, 0.0, 0.5]]), 2, 8)
        >>> load.dead, load.average.tolist()[0], load.in_words()
        ((1,), 0.699999988079071, '1 of 3 experts is dead: no label listens to expert 2.')
    """

    labels: LabelSpace
    loads: Tensor
    num_shared: int
    num_pictures: int

    @property
    def average(self) -> Tensor:
        """The mean load of each expert over the labels, ``[E]``."""
        return self.loads.mean(dim=0)

    @property
    def dead(self) -> tuple[int, ...]:
        """The experts to which no label gives even a hundredth of an even share; counted from 0."""
        limit = _DEAD_SHARE / self.loads.shape[1]
        return tuple((self.loads.amax(dim=0) < limit).nonzero().flatten().tolist())

    def in_words(self) -> str:
        """Say whether experts are dead."""
        count = self.loads.shape[1]
        if not self.dead:
            return f"None of the {count} experts is dead: each has a label that listens to it."
        names = ", ".join(str(expert + 1) for expert in self.dead)
        verb, noun = ("is", "expert") if len(self.dead) == 1 else ("are", "experts")
        return f"{len(self.dead)} of {count} experts {verb} dead: no label listens to {noun} {names}."


@torch.no_grad()
def expert_load(model: Classifier, dataset: ImageDataset, *, layer: int = -1, limit: int = 256) -> ExpertLoad:
    """Measure to which experts the labels listen.

    Args:
        model: A classifier whose head mixes experts, such as `HybridSharingQuery`.
        dataset: The pictures to look at.
        layer: Which hybrid sharing layer.
        limit: How many pictures at most.

    Raises:
        ConfigError: The head has no experts, or no such layer.

    Examples:
        >>> from manylabel.data import scenes
        >>> from manylabel.heads import HybridSharingQuery
        >>> model = Classifier.create(
        ...     "resnet10t", head=HybridSharingQuery, labels=["cat", "dog"], pretrained=False, image_size=64,
        ...     head_settings={"width": 16, "num_shared_experts": 3},
        ... )
        >>> expert_load(model, scenes(4)).loads.shape
        torch.Size([2, 4])
    """
    head = as_expert_head(model.head)
    if head is None:
        raise ConfigError(f"{type(model.head).__name__} has no experts; train with --head hsq")
    total, count = torch.zeros(()), 0
    for batch in feature_passes(model, dataset, limit=limit):
        total = total + head.gates(batch.features, layer=layer).sum(dim=0).cpu()
        count += len(batch.names)
    own = head.num_label_experts
    return ExpertLoad(model.labels, (total / count).roll(-own, dims=1), head.num_shared_experts, count)


def draw_experts(load: ExpertLoad, *, at_most: int = 80) -> Figure:
    """Draw the load as a heat map in log colours, labels by experts, with the average as the last row.

    Args:
        load: What `expert_load` gave.
        at_most: How many labels to draw.

    Returns:
        A matplotlib figure; `page.write_drawing` saves it.

    Examples:
        >>> load = ExpertLoad(LabelSpace(["cat", "dog"]), torch.tensor([[0.9, 0.1], [0.5, 0.5]]), 1, 8)
        >>> len(draw_experts(load).axes)  # the map and its scale
        2
    """
    names = [load.labels.display(name)[:28] for name in load.labels][:at_most]
    shown = torch.cat([load.loads[:at_most], load.average[None]]).clamp(min=1e-6).numpy()
    rows, experts = shown.shape
    figure = Figure(figsize=(3.2 + 0.3 * experts, 1.6 + 0.26 * rows), layout="constrained")
    axes = figure.subplots()
    low = float(np.clip(shown.min(), 1e-6, 0.1))
    image = axes.imshow(shown, cmap=COLOURS, norm=LogNorm(low, 1), aspect="auto")
    axes.axhline(rows - 1.5, color="white", linewidth=3)
    if load.num_shared < experts:
        axes.axvline(load.num_shared - 0.5, color="white", linewidth=3)
    axes.set_yticks(range(rows), [*names, "average"], color=_INK, fontsize=9, parse_math=False)
    ticks = [str(number + 1) if number < load.num_shared else "own" for number in range(experts)]
    axes.set_xticks(range(experts), ticks, color=_INK, fontsize=8)
    axes.set_xlabel("expert", color=_INK)
    axes.tick_params(length=0)
    axes.spines[:].set_visible(False)
    scale = figure.colorbar(image, ax=axes, location="right", shrink=0.8, format="%g")
    scale.set_label("mean weight, log scale", color=_INK, fontsize=9)
    scale.outline.set_visible(False)
    return figure
