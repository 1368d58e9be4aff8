"""Out-of-fold scores: every image is scored by a linear classifier trained on the other folds of the dataset.

The classifiers read averaged features of a frozen backbone: five folds of VOC take six seconds of CPU time. Heads on
whole maps find somewhat more errors in 9 to 35 times the time, as docs/how-to/wrong-labels.md shows.

Letters in shape comments: N images, C channels, L labels.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from manylabel.backbone import Backbone
from manylabel.classifier import Classifier
from manylabel.data import ImageDataset, stratified_folds
from manylabel.evaluation import ScoredImages
from manylabel.features import FeatureCache, fit_linear
from manylabel.heads import LinearClassifier

PENALTY = 0.3  # of squared weights, for standardised channels divided by the root of their number
STEPS = 30


@dataclass(frozen=True, eq=False)
class CrossValidated:
    """Scores of a dataset's images by models that were not trained on them.

    Args:
        scored: The scores, and the given labels.
        models: The model of each fold.
        folds: ``[N]``, the fold that each image of the dataset is in, and so its model; -1 for unreadable images.
    """

    scored: ScoredImages
    models: tuple[Classifier, ...]
    folds: NDArray[np.int64]

    def model_of(self, index: int) -> Classifier:
        """Return the model that scored an image."""
        return self.models[int(self.folds[index])]


def cross_validate(
    dataset: ImageDataset,
    backbone: Backbone,
    *,
    num_folds: int = 5,
    num_workers: int | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> CrossValidated:
    """Score every image by a linear classifier trained on the other folds.

    Args:
        dataset: The images and their labels.
        backbone: A frozen backbone; its features are cached on disk.
        num_folds: Number of cross-validation folds, stratified over the labels.
        num_workers: Number of decoding processes (default: depends on the number of cores).
        progress: Called with the number of images whose features are ready and the total.

    Raises:
        ConfigError: The backbone is not frozen, or there are fewer images than folds.

    Examples:
        >>> from manylabel import data
        >>> backbone = Backbone("test_resnet", pretrained=False, frozen=True, image_size=32)
        >>> found = cross_validate(data.scenes(20), backbone, num_folds=2, num_workers=0)
        >>> len(found.scored), len(found.models)
        (20, 2)
    """
    backbone.select((-1,))
    cache = FeatureCache(backbone, num_workers=num_workers)
    cached, features = cache.averages(dataset, progress=progress)  # [N, C]
    values, known = map(torch.from_numpy, cached.dataset.targets.dense())
    scores, folds, models = torch.empty_like(values), np.empty(len(cached), dtype=np.int64), []
    for fold, (train, test) in enumerate(stratified_folds(cached.dataset.targets, num_folds=num_folds)):
        head = fit_head(features[train], values[train], known[train])
        model = Classifier(backbone, head, dataset.labels).eval()
        with torch.inference_mode():
            scores[test] = head.linear(features[test]).sigmoid()
        folds[test] = fold
        models.append(model)
    readable = np.setdiff1d(np.arange(len(dataset)), [image.index for image in cached.bad])
    fold_of = np.full(len(dataset), -1)
    fold_of[readable] = folds
    scored = replace(ScoredImages.from_dataset(dataset, readable, scores), bad=cached.bad)
    return CrossValidated(scored, tuple(models), fold_of)


def fit_head(features: Tensor, targets: Tensor, known: Tensor) -> LinearClassifier:
    """Fit logistic regression to standardised features, as a head that reads the features as they are.

    Args:
        features: ``[N, C]``.
        targets: ``[N, L]``, 1 where a label is present.
        known: ``[N, L]``, true where that is known; the rest is ignored.

    Examples:
        >>> features = torch.tensor([[0.0], [1.0], [2.0], [3.0]])
        >>> head = fit_head(features, (features > 1).float(), features >= 0)
        >>> (head.linear(features) > 0).flatten().tolist()
        [False, False, True, True]
    """
    channels = features.shape[1]
    mean, spread = features.mean(dim=0), (features.std(dim=0) + 1e-6) * channels**0.5
    fitted = fit_linear((features - mean) / spread, targets, known, penalty=PENALTY, steps=STEPS)
    head = LinearClassifier(channels, targets.shape[1])
    with torch.no_grad():
        head.linear.weight.copy_(fitted.weight / spread)
        head.linear.bias.copy_(fitted.bias - head.linear.weight @ mean)
    return head
