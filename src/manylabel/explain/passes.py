"""Some pictures of a data set through a backbone, for those who ask what happens inside a head."""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from manylabel.classifier import Classifier
from manylabel.data import ImageDataset, ImageLoader, eval_transform

__all__ = ["FeaturePass", "feature_passes"]


class FeaturePass(NamedTuple):
    """A batch: its feature maps, its targets ``[B, L]``, and its pictures' names."""

    features: list[Tensor]
    targets: Tensor
    names: list[str]


@torch.no_grad()
def feature_passes(
    model: Classifier, dataset: ImageDataset, *, limit: int = 256, batch_size: int = 32
) -> Iterator[FeaturePass]:
    """Give the feature maps of some pictures of a data set, evenly from all over it.

    Args:
        model: The classifier; it is left in eval mode.
        dataset: The pictures.
        limit: How many at most.
        batch_size: How many go through the backbone at once.

    Examples:
        >>> from manylabel import heads
        >>> from manylabel.data import scenes
        >>> model = Classifier.create("resnet10t", head=heads.LinearClassifier, labels=["cat"], pretrained=False)
        >>> [len(each.names) for each in feature_passes(model, scenes(10), limit=3, batch_size=2)]
        [2, 1]
    """
    chosen = dataset.subset(np.unique(np.linspace(0, len(dataset) - 1, min(limit, len(dataset))).astype(np.int64)))
    device = next(model.parameters()).device
    model.eval()
    for batch in ImageLoader(chosen, transform=eval_transform(model.input_spec), batch_size=batch_size, on_bad="skip"):
        names = [chosen.pictures.name(index) for index in batch.indices.tolist()]
        yield FeaturePass(model.backbone(batch.images.to(device)), batch.targets, names)
