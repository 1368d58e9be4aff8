"""Out-of-fold scores: every image is scored by a head trained on the other folds of the dataset.

Heads train on cached features as in `manylabel train`, but with one view per image and for half as many epochs, or
for 2 instead of 6 where these have 100 steps, and 3 for each of up to 100 labels. A linear classifier is fitted by
logistic regression instead, in seconds. docs/how-to/wrong-labels.md compares them.

Letters in shape comments: N images, C channels, L labels.
"""

import copy
import signal
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import ClassVar, Protocol

import numpy as np
import torch
from lightning import Callback, Trainer
from numpy.typing import NDArray
from torch import Tensor, nn

from manylabel.backbone import Backbone
from manylabel.classifier import Classifier
from manylabel.data import ImageDataset, stratified_folds
from manylabel.errors import RunInterruptedError
from manylabel.evaluation import ScoredImages
from manylabel.features import CachedFeatures, FeatureCache, dropped_channels, fit_linear
from manylabel.heads import HEADS, LinearClassifier
from manylabel.heads.config import build_head
from manylabel.heads.head import pooled_input, stages_of
from manylabel.recipes.loaders import CachedSets, make_loaders
from manylabel.recipes.setup import Parts, are_tags_incomplete, build_loss, is_single_label, resolve
from manylabel.settings import Probe
from manylabel.training import ClassificationTask, RunFolder, fit

PENALTY = 0.3  # of squared weights, for standardised channels divided by the root of their number
STEPS = 30


class Progress(Protocol):
    """Function that shows progress, such as `ProgressBar.update`."""

    def __call__(self, done: int, total: int, *, doing: str) -> None:
        """Show the number of items done, the total and the current work."""


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
    head: type[nn.Module] = HEADS[Probe.head],
    num_folds: int = 3,
    num_workers: int | None = None,
    progress: Progress = lambda *_, **__: None,
) -> CrossValidated:
    """Score every image by a head trained on the other folds.

    Args:
        dataset: The images and their labels.
        backbone: A frozen backbone; its features are cached on disk.
        head: Class of the head (default: that of `manylabel train`); `LinearClassifier` takes seconds.
        num_folds: Number of cross-validation folds, stratified over the labels.
        num_workers: Number of decoding processes (default: depends on the number of cores).
        progress: Called with the number of items done, the total and the current work.

    Raises:
        ConfigError: The backbone is not frozen, or there are fewer images than folds.

    Examples:
        >>> from manylabel import data
        >>> backbone = Backbone("test_resnet", pretrained=False, frozen=True, image_size=32)
        >>> found = cross_validate(data.scenes(20), backbone, head=LinearClassifier, num_folds=2, num_workers=0)
        >>> len(found.scored), len(found.models)
        (20, 2)
    """
    settings = resolve(_FoldSettings(data=dataset.name, views=1, logger="none"), Parts(head))
    backbone.select(stages_of(head, settings.head_settings))
    cache, reading = FeatureCache(backbone, num_workers=num_workers), partial(progress, doing="computing features")
    torch.manual_seed(settings.seed)
    untrained = build_head(head, backbone, num_labels=len(dataset.labels), settings=settings.head_settings)
    averages: Tensor | None = None
    if head is LinearClassifier:
        cached, averages = cache.averages(dataset, progress=reading)  # [N, C]
    else:
        plan = cache.plan(dataset, pooling=pooled_input(untrained))
        cached = cache.fill(min(plan, cache.pooled(plan, "none"), key=lambda each: each.missing), progress=reading)
    values, known = map(torch.from_numpy, cached.dataset.targets.dense())
    scores, folds, models = torch.empty_like(values), np.empty(len(cached), dtype=np.int64), []
    for fold, (train, test) in enumerate(stratified_folds(cached.dataset.targets, num_folds=num_folds)):
        if averages is None:
            watch = _StepProgress(progress, fold, num_folds)
            model = _train(cached.subset(train), backbone, copy.deepcopy(untrained), settings, watch)
            scores[test] = _score(model, cached.subset(test))
        else:
            linear = fit_head(averages[train], values[train], known[train])
            scores[test] = linear.linear(averages[test]).sigmoid().detach()
            model = Classifier(backbone, linear, dataset.labels).eval()
        folds[test] = fold
        models.append(model)
    readable = np.setdiff1d(np.arange(len(dataset)), [image.index for image in cached.bad])
    fold_of = np.full(len(dataset), -1)
    fold_of[readable] = folds
    scored = replace(ScoredImages.from_dataset(dataset, readable, scores), bad=cached.bad)
    return CrossValidated(scored, tuple(models), fold_of)


@dataclass(frozen=True, kw_only=True)
class _FoldSettings(Probe):
    """Settings of a fold."""

    FEWEST_EPOCHS: ClassVar[int] = 2  # with enough steps, as many errors are found as with 3


class _StepProgress(Callback):
    """Reports the training steps of a fold as part of those of all folds."""

    def __init__(self, progress: Progress, fold: int, num_folds: int) -> None:
        self.progress, self.fold, self.num_folds = progress, fold, num_folds

    def on_train_batch_end(self, trainer: Trainer, *_: object) -> None:
        """Report a step."""
        steps = int(trainer.num_training_batches) * (trainer.max_epochs or 1)
        done = self.fold * steps + trainer.fit_loop.total_batch_idx + 1
        self.progress(done, self.num_folds * steps, doing="training")


def _train(
    cached: CachedFeatures, backbone: Backbone, head: nn.Module, settings: Probe, watch: _StepProgress
) -> Classifier:
    """Train a head on all images, in a temporary run folder, for half as many epochs or fewer."""
    images = cached.dataset
    steps = -(-len(images) // settings.batch_size)
    enough = settings.num_epochs(steps, num_labels=len(images.labels))
    epochs = max(min(enough, Probe.FEWEST_EPOCHS // 2), -(-enough // 2))
    settings = replace(settings, epochs=epochs)
    model = Classifier(backbone, head, images.labels, single_label=is_single_label(settings, images))
    incomplete = are_tags_incomplete(images, settings.loss_settings)
    loss = build_loss(settings, single_label=model.single_label, incomplete=incomplete)
    task = ClassificationTask(head, loss, settings=settings, single_label=model.single_label)
    loaders = make_loaders(CachedSets(cached, cached.subset([0])), settings, model=model)  # validates on one image
    try:
        with TemporaryDirectory() as folder, dropped_channels(head, fraction=settings.feature_dropout):
            fit(task, loaders, run=RunFolder.open(Path(folder) / "run"), callbacks=[watch])
    except RunInterruptedError as stop:
        signal.raise_signal(stop.exit_code - 128)  # there is no run to resume: Ctrl-C is Ctrl-C
        raise
    return model.eval()


@torch.inference_mode()
def _score(model: Classifier, cached: CachedFeatures) -> Tensor:
    """Return the scores of all images, ``[N, L]``."""
    parts = np.array_split(np.arange(len(cached)), len(cached) // 256 + 1)
    return torch.cat([model.scores(model.head(cached.read(part))) for part in parts])


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
