"""Quick comparison of backbones on a dataset, to choose one before training.

Letters in shape comments: N images, C channels, L labels.
"""

from collections.abc import Callable, Sequence

import numpy as np
import torch
from torch import Tensor

from manylabel.backbone import Backbone
from manylabel.data.dataset import ImageDataset
from manylabel.features.cache import FeatureCache
from manylabel.metrics import mean_average_precision
from manylabel.seeds import private_generator

MOST_IMAGES = 1_000
FOLDS = 5
PENALTIES = (0.01, 0.1, 1.0, 10.0)  # of the squared weights, for standardised features


def compare_backbones(
    dataset: ImageDataset,
    names: Sequence[str],
    *,
    num_workers: int | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> dict[str, float]:
    """Estimate how well the features of some backbones separate the labels of a dataset.

    Ridge regression on average-pooled features of up to 1,000 random images, with the best of four penalties,
    evaluated by 5-fold cross-validation. It takes seconds after one pass of each backbone.

    Args:
        dataset: Training images.
        names: Names of backbones.
        num_workers: Number of decoding processes (default: as in `FeatureCache`).
        progress: Called with the number of finished images and of all images, for each backbone.

    Returns:
        The cross-validated mAP of each backbone, by name; NaN if no label has one.
    """
    order = private_generator("compare_backbones", 0).permutation(len(dataset))
    part = dataset.subset(np.sort(order[:MOST_IMAGES]))
    found = {}
    for name in names:
        cache = FeatureCache(Backbone(name, frozen=True, stages=(-1,)), num_workers=num_workers)
        cached, features = cache.averages(part, progress=progress)
        targets, known = map(torch.from_numpy, cached.dataset.targets.dense())
        found[name] = max(
            float(mean_average_precision(ridge_scores(features, targets, known, penalty), targets, known))
            for penalty in PENALTIES
        )
    return found


def ridge_scores(features: Tensor, targets: Tensor, known: Tensor, penalty: float) -> Tensor:
    """Return out-of-fold scores ``[N, L]`` of ridge regression; unknown labels lie between present and absent.

    Args:
        features: ``[N, C]``.
        targets: ``[N, L]``, 1 where a label is present.
        known: ``[N, L]``, False where a label is unknown.
        penalty: Factor of the squared weights, relative to the number of images.
    """
    signs = torch.where(known, 2 * targets - 1, 0).to(features)
    fold = torch.arange(len(features)) % FOLDS
    scores = torch.empty_like(signs)
    for number in range(FOLDS):
        fit, rest = fold != number, fold == number
        mean, std = features[fit].mean(0), features[fit].std(0).clamp(min=1e-3)
        inputs, bias = (features[fit] - mean) / std, signs[fit].mean(0)
        gram = inputs.T @ inputs / len(inputs) + penalty * torch.eye(inputs.shape[1]).to(inputs)  # [C, C]
        weights = torch.linalg.solve(gram, inputs.T @ (signs[fit] - bias) / len(inputs))  # [C, L]
        scores[rest] = (features[rest] - mean) / std @ weights + bias
    return scores
