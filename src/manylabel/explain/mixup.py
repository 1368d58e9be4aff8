"""How much a representation mixup head takes from earlier layers: alpha by label and by picture.

Eom et al., "Layover Intermediate Layer for Multi-Label Classification in Efficient Transfer Learning", Table 3. The
paper's own values are about 1e-10: at inference its mixture is the final representation, whatever helped in training.

Letters in shape comments: N pictures, S earlier stages, L labels.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from manylabel.classifier import Classifier
from manylabel.data import ImageDataset
from manylabel.errors import ConfigError
from manylabel.explain.passes import feature_passes
from manylabel.heads.traits import as_mixup_head

__all__ = ["PRACTICALLY_ZERO", "MixupScale", "mixup_scale"]

PRACTICALLY_ZERO = 1e-4
"""Below this, an earlier layer moves no score that anyone would print."""


@dataclass(frozen=True)
class MixupScale:
    """Alpha, the share that earlier layers have in what is classified.

    Args:
        by_label: For each label the mean over the pictures that show it, largest first; labels of no picture are left
            out.
        by_picture: For each picture its alpha, largest first.

    Examples:
        >>> MixupScale((("banana", 9.1e-10),), (("a.jpg", 9.1e-10),)).in_words()
        'Alpha is practically zero (at most 9.1e-10): the earlier layers add nothing to what this model says.'
    """

    by_label: tuple[tuple[str, float], ...]
    by_picture: tuple[tuple[str, float], ...]

    @property
    def largest(self) -> float:
        """The largest alpha of any picture."""
        return self.by_picture[0][1] if self.by_picture else 0.0

    def in_words(self) -> str:
        """Say what alpha means for the model."""
        if self.largest < PRACTICALLY_ZERO:
            return (
                f"Alpha is practically zero (at most {self.largest:.2g}): the earlier layers add nothing to what this "
                "model says."
            )
        label, share = self.by_label[0] if self.by_label else ("no label", 0.0)
        return (
            f"The earlier layers have a share of up to {100 * self.largest:.2g} % in a picture, most of all for "
            f"{label}, {100 * share:.2g} % on average."
        )


@torch.no_grad()
def mixup_scale(model: Classifier, dataset: ImageDataset, *, limit: int = 256) -> MixupScale:
    """Measure alpha; of several earlier stages, their sum.

    Args:
        model: A classifier whose head mixes stages, such as `RepresentationMixup`.
        dataset: The pictures to look at, with the model's labels.
        limit: How many pictures at most.

    Raises:
        ConfigError: The head mixes nothing.

    Examples:
        >>> from manylabel.data import scenes
        >>> from manylabel.heads import RepresentationMixup
        >>> dataset = scenes(4)
        >>> model = Classifier.create(
        ...     "resnet10t", head=RepresentationMixup, labels=dataset.labels, pretrained=False, image_size=64
        ... )
        >>> len(mixup_scale(model, dataset).by_picture)
        4
    """
    head = as_mixup_head(model.head)
    if head is None:
        raise ConfigError(
            f"{type(model.head).__name__} mixes no earlier layer; train with the recipe representation_mixup"
        )
    names: list[str] = []
    alphas, targets = [], []
    for batch in feature_passes(model, dataset, limit=limit):
        names += batch.names
        alphas.append(head.alpha(batch.features).sum(dim=1).double().cpu())  # [B]
        targets.append(batch.targets.double())
    alpha, present = torch.cat(alphas), torch.cat(targets)  # [N], [N, L]
    counts = present.sum(dim=0)
    means = (alpha @ present / counts.clamp(min=1)).tolist()
    by_label = [(name, mean) for name, mean, count in zip(dataset.labels, means, counts, strict=True) if count]
    by_picture = list(zip(names, alpha.tolist(), strict=True))
    return MixupScale(
        *(tuple(sorted(rows, key=lambda row: -row[1])) for rows in (by_label, by_picture)),
    )
