"""Internals of heads on a dataset: loads of experts (HSQ), weights of earlier layers (RM).

Yin et al., "Hybrid Sharing for Multi-Label Image Classification", Figure 5. Eom et al., "Layover Intermediate Layer for
Multi-Label Classification in Efficient Transfer Learning", Table 3: the paper's own alphas are about 1e-10; at
inference its mixture is the final representation.

Letters in shape comments: B images of a batch, N images in all, L labels, E experts, S earlier stages.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from matplotlib.colors import LogNorm
from matplotlib.figure import Figure
from torch import Tensor

from manylabel.classifier import Classifier
from manylabel.data import ImageDataset, ImageLoader, eval_transform
from manylabel.errors import ConfigError
from manylabel.explain.explanation import COLOURS
from manylabel.heads.head import as_expert_head, as_mixup_head
from manylabel.types import LabelSpace

PRACTICALLY_ZERO = 1e-4
"""Below this weight, an earlier layer has no visible effect on scores."""

_INK = "#22262b"
_DEAD_FRACTION = 0.01


@dataclass(frozen=True, eq=False)
class ExpertLoad:
    """Mean gate weight of each expert for each label, over some images.

    Args:
        labels: The labels.
        loads: ``[L, E]``, each row sums to 1: shared experts first, then the label's own.
        num_shared: Number of shared experts.
        num_images: Number of images averaged over.

    Examples:
        >>> load = ExpertLoad(LabelSpace(["cat", "dog"]), torch.tensor([[0.9, 0.0, 0.1], [0.5, 0.0, 0.5]]), 2, 8)
        >>> load.dead, load.average.tolist()[0], load.summary()
        ((1,), 0.699999988079071, '1 of 3 experts is dead: expert 2 has no weight for any label.')
    """

    labels: LabelSpace
    loads: Tensor
    num_shared: int
    num_images: int

    @property
    def average(self) -> Tensor:
        """Mean load of each expert over the labels, ``[E]``."""
        return self.loads.mean(dim=0)

    @property
    def dead(self) -> tuple[int, ...]:
        """Experts with less than a hundredth of a uniform load for every label; counted from 0."""
        limit = _DEAD_FRACTION / self.loads.shape[1]
        return tuple((self.loads.amax(dim=0) < limit).nonzero().flatten().tolist())

    def summary(self) -> str:
        """Return a sentence on dead experts."""
        count = self.loads.shape[1]
        if not self.dead:
            return f"None of the {count} experts is dead: each has weight for some label."
        names = ", ".join(str(expert + 1) for expert in self.dead)
        verb, noun, has = ("is", "expert", "has") if len(self.dead) == 1 else ("are", "experts", "have")
        return f"{len(self.dead)} of {count} experts {verb} dead: {noun} {names} {has} no weight for any label."


@torch.no_grad()
def expert_load(model: Classifier, dataset: ImageDataset, *, layer: int = -1, limit: int = 256) -> ExpertLoad:
    """Measure the load of each expert for each label.

    Args:
        model: A classifier whose head mixes experts, such as `HybridSharingQuery`.
        dataset: Images to average over.
        layer: Index of the hybrid sharing layer.
        limit: Maximum number of images.

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
        raise ConfigError(f"{type(model.head).__name__} has no experts; use a model trained with --head hsq")
    total, count = torch.zeros(()), 0
    for features, _, names in _feature_batches(model, dataset, limit=limit):
        total = total + head.gates(features, layer=layer).sum(dim=0).cpu()
        count += len(names)
    own = head.num_label_experts
    return ExpertLoad(model.labels, (total / count).roll(-own, dims=1), head.num_shared_experts, count)


def draw_experts(load: ExpertLoad, *, at_most: int = 80) -> Figure:
    """Draw the load as a heat map in log colours, labels by experts, with the average as the last row.

    Args:
        load: Result of `expert_load`.
        at_most: Maximum number of labels to draw.

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


@dataclass(frozen=True)
class MixupScale:
    """Alpha, the weight of earlier layers in the classified mixture.

    Args:
        by_label: Mean alpha over the images of each label, largest first; labels without images are omitted.
        by_image: Alpha of each image, largest first.

    Examples:
        >>> MixupScale((("banana", 9.1e-10),), (("a.jpg", 9.1e-10),)).summary()
        'Alpha is practically zero (at most 9.1e-10): the earlier layers do not affect the predictions.'
    """

    by_label: tuple[tuple[str, float], ...]
    by_image: tuple[tuple[str, float], ...]

    @property
    def largest(self) -> float:
        """Largest alpha of any image."""
        return self.by_image[0][1] if self.by_image else 0.0

    def summary(self) -> str:
        """Return a sentence on the effect of alpha."""
        if self.largest < PRACTICALLY_ZERO:
            zero = f"Alpha is practically zero (at most {self.largest:.2g})"
            return f"{zero}: the earlier layers do not affect the predictions."
        label, mean = self.by_label[0] if self.by_label else ("no label", 0.0)
        return (
            f"The earlier layers have a weight of up to {100 * self.largest:.2g} % in an image; it is largest for "
            f"{label}, {100 * mean:.2g} % on average."
        )


@torch.no_grad()
def mixup_scale(model: Classifier, dataset: ImageDataset, *, limit: int = 256) -> MixupScale:
    """Measure alpha, summed over earlier stages if there are several.

    Args:
        model: A classifier whose head mixes stages, such as `RepresentationMixup`.
        dataset: Images to average over, with the model's labels.
        limit: Maximum number of images.

    Raises:
        ConfigError: The head does not mix stages.

    Examples:
        >>> from manylabel.data import scenes
        >>> from manylabel.heads import RepresentationMixup
        >>> dataset = scenes(4)
        >>> model = Classifier.create(
        ...     "resnet10t", head=RepresentationMixup, labels=dataset.labels, pretrained=False, image_size=64
        ... )
        >>> len(mixup_scale(model, dataset).by_image)
        4
    """
    head = as_mixup_head(model.head)
    if head is None:
        raise ConfigError(f"{type(model.head).__name__} does not mix earlier layers; train with representation_mixup")
    names: list[str] = []
    alphas, targets = [], []
    for features, truth, images in _feature_batches(model, dataset, limit=limit):
        names += images
        alphas.append(head.alpha(features).sum(dim=1).double().cpu())  # [B]
        targets.append(truth.double())
    alpha, present = torch.cat(alphas), torch.cat(targets)  # [N], [N, L]
    counts = present.sum(dim=0)
    means = (alpha @ present / counts.clamp(min=1)).tolist()
    by_label = [(name, mean) for name, mean, count in zip(dataset.labels, means, counts, strict=True) if count]
    by_image = list(zip(names, alpha.tolist(), strict=True))
    return MixupScale(*(tuple(sorted(rows, key=lambda row: -row[1])) for rows in (by_label, by_image)))


@torch.no_grad()
def _feature_batches(
    model: Classifier, dataset: ImageDataset, *, limit: int
) -> Iterator[tuple[list[Tensor], Tensor, list[str]]]:
    """Yield the feature maps, targets ``[B, L]`` and names of images sampled evenly from a dataset.

    Examples:
        >>> from manylabel import heads
        >>> from manylabel.data import scenes
        >>> model = Classifier.create("resnet10t", head=heads.LinearClassifier, labels=["cat"], pretrained=False)
        >>> [len(names) for _, _, names in _feature_batches(model, scenes(10), limit=3)]
        [3]
    """
    chosen = dataset.subset(np.unique(np.linspace(0, len(dataset) - 1, min(limit, len(dataset))).astype(np.int64)))
    device = next(model.parameters()).device
    model.eval()
    for batch in ImageLoader(chosen, transform=eval_transform(model.input_spec), batch_size=32, max_bad_fraction=1):
        names = [chosen.images.name(index) for index in batch.indices.tolist()]
        yield model.backbone(batch.images.to(device)), batch.targets, names
