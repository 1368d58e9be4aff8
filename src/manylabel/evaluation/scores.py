"""Scores of a model for the images of a dataset, together with the targets.

Letters in shape comments: N images, L labels.
"""

import logging
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from scipy.sparse import csr_array
from torch import Tensor

from manylabel.classifier import Classifier, TorchEngine
from manylabel.data import ImageDataset
from manylabel.data.loading import BadImages
from manylabel.engine import Engine, name_images, score_batch
from manylabel.errors import ConfigError, DataError, LabelError, list_choices
from manylabel.inference.pipeline import prepare_batches
from manylabel.metrics import top_labels
from manylabel.metrics.inputs import Inputs, check, where_present
from manylabel.page import plural, some
from manylabel.system import default_workers, find_device
from manylabel.types import BadImage, LabelSpace

logger = logging.getLogger(__name__)

Progress = Callable[[int, int], None]
"""Called with the number of images done and the total."""


@dataclass(frozen=True, eq=False)
class ScoredImages:
    """Scores of a model for some images, together with the targets.

    Args:
        names: Names of the images.
        scores: ``[N, L]``, probabilities, never logits.
        targets: ``[N, L]``, true where a label is present.
        known: ``[N, L]``, true where the target is known.
        labels: The labels, in the order of the columns.
        indices: ``[N]``, the positions of the images in their dataset.
        areas: ``[N, L]``, the fraction of the image covered by the largest object of a label, if available.
        thresholds: Lowest score that counts as predicted, one per label (default: 0.5 for all).
        single_label: Whether the model predicts exactly one label per image, the most confident.
        model: Name of the model in reports.
        dataset: Name of the dataset in reports.
        bad: Images of the dataset without scores, each with the reason.
        notes: Remarks for the reader of a report, such as labels that were ignored.

    Raises:
        ConfigError: The shapes differ, or the scores are not probabilities.

    Examples:
        >>> scored = ScoredImages.from_arrays([[0.9, 0.2]], [[1, 0]], labels=["cat", "dog"])
        >>> scored.names, len(scored), scored.predicted.tolist()
        (('image 0',), 1, [[True, False]])
    """

    names: tuple[str, ...]
    scores: Tensor
    targets: Tensor
    known: Tensor
    labels: LabelSpace
    indices: NDArray[np.int64]
    areas: csr_array | None = None
    thresholds: tuple[float, ...] | None = None
    single_label: bool = False
    model: str = "model"
    dataset: str = "images"
    bad: tuple[BadImage, ...] = ()
    notes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        expected = (len(self.names), len(self.labels))
        if self.scores.shape != expected:
            raise ConfigError(f"scores must be [images, labels] = {list(expected)}, got {list(self.scores.shape)}")
        check(self.scores, self.targets, self.known)
        if self.scores.numel() and not (self.scores.min() >= 0 and self.scores.max() <= 1):
            low, high = self.scores.min().item(), self.scores.max().item()
            raise ConfigError(
                f"scores must be probabilities in 0..1, got {low:.4g} to {high:.4g}; "
                "if these are logits, apply sigmoid (or softmax, for one label per image) first"
            )
        if self.thresholds is not None and len(self.thresholds) != len(self.labels):
            raise ConfigError(f"there must be {len(self.labels)} thresholds, one per label, got {len(self.thresholds)}")
        if any(map(math.isnan, self.thresholds or ())):
            raise ConfigError(f"thresholds must be numbers, but some of the {len(self.labels)} are NaN")

    def __len__(self) -> int:
        return len(self.names)

    @cached_property
    def inputs(self) -> Inputs:
        """Scores and targets as the metrics take them; no mask if all targets are known."""
        return check(self.scores, self.targets, None if self.known.all() else self.known)

    @property
    def decisions(self) -> Inputs:
        """The same with predictions, 1 or 0, in place of the scores."""
        return self.inputs._replace(scores=self.predicted.float())

    def take(self, rows: NDArray[np.int64]) -> "ScoredImages":
        """Return some of the images, in the order given.

        Examples:
            >>> scored = ScoredImages.from_arrays([[0.9], [0.2]], [[1], [0]], labels=["cat"])
            >>> scored.take(np.array([1])).names
            ('image 1',)
        """
        return replace(
            self,
            names=tuple(self.names[row] for row in rows),
            scores=self.scores[rows],
            targets=self.targets[rows],
            known=self.known[rows],
            indices=self.indices[rows],
            areas=None if self.areas is None else self.areas[rows],
        )

    def select_labels(self, names: Sequence[str]) -> "ScoredImages":
        """Return the columns of some labels, in the order given.

        Examples:
            >>> scored = ScoredImages.from_arrays([[0.9, 0.2]], [[1, 0]], labels=["cat", "dog"])
            >>> scored.select_labels(["dog"]).scores.shape
            torch.Size([1, 1])
        """
        columns = [self.labels.index(name) for name in names]
        return replace(
            self,
            scores=self.scores[:, columns],
            targets=self.targets[:, columns],
            known=self.known[:, columns],
            labels=self.labels.subset(names),
            areas=None if self.areas is None else self.areas[:, columns],
            thresholds=None if self.thresholds is None else tuple(self.thresholds[column] for column in columns),
        )

    @property
    def has_one_label_each(self) -> bool:
        """True if every image has exactly one label and all targets are known: then top-1 accuracy is defined."""
        return bool(self.known.all()) and bool((self.targets.sum(dim=1) == 1).all())

    @cached_property
    def predicted(self) -> Tensor:
        """Predictions: scores that reach their threshold, or the highest of a single-label model, ``[N, L]``."""
        if self.single_label:
            return top_labels(self.scores, 1)
        limits = 0.5 if self.thresholds is None else self.thresholds
        return self.scores >= torch.as_tensor(limits, dtype=self.scores.dtype)

    @classmethod
    def from_arrays(
        cls,
        scores: ArrayLike | Tensor,
        targets: ArrayLike | Tensor,
        *,
        labels: LabelSpace | Sequence[str],
        known: ArrayLike | Tensor | None = None,
        names: Sequence[str] | None = None,
        model: str = "model",
    ) -> "ScoredImages":
        """Combine scores of any model with targets.

        Args:
            scores: ``[N, L]``, probabilities.
            targets: ``[N, L]``, 1 where a label is present, else 0.
            labels: The labels, in the order of the columns.
            known: ``[N, L]``, true where the target is known (default: all of it).
            names: Names of the images (default: numbered).
            model: Name of the model in reports.
        """
        values = torch.as_tensor(scores, dtype=torch.float32).contiguous()
        truth = where_present(torch.as_tensor(targets))
        return cls(
            names=tuple(names if names is not None else (f"image {number}" for number in range(len(values)))),
            scores=values,
            targets=truth,
            known=torch.ones_like(truth) if known is None else torch.as_tensor(known).bool(),
            labels=labels if isinstance(labels, LabelSpace) else LabelSpace(labels),
            indices=np.arange(len(values)),
            model=model,
        )

    @classmethod
    def from_dataset(cls, dataset: ImageDataset, indices: NDArray[np.int64], scores: Tensor) -> "ScoredImages":
        """Combine scores of some images of a dataset, with the same labels, with its targets."""
        part = dataset.subset(indices)
        targets, known = part.targets.dense()
        return cls(
            names=tuple(part.images.name(position) for position in range(len(part))),
            scores=scores.contiguous(),
            targets=torch.from_numpy(targets).bool(),
            known=torch.from_numpy(known),
            labels=dataset.labels,
            indices=indices,
            areas=part.areas,
            dataset=dataset.name,
        )


def match_labels(
    offered: Sequence[str], dataset: ImageDataset, *, model: str, common_labels: bool = False
) -> tuple[ImageDataset, list[int], list[str]]:
    """Match the labels of a dataset with those of a model.

    Args:
        offered: Labels of the model.
        dataset: The dataset.
        model: Name of the model in messages.
        common_labels: Whether to evaluate only the labels that both have (default: the model must have all).

    Returns:
        The dataset with the labels to evaluate, their positions in the model, and notes on labels that only one has.

    Raises:
        LabelError: The model lacks a label of the dataset, or with `common_labels`, all of them.

    Examples:
        >>> from manylabel.data import scenes
        >>> match_labels(["ufo", *scenes(1).labels], scenes(1), model="tagger")[2]
        ['The dataset lacks 1 label (ufo) of tagger; not evaluated.']
    """
    positions = {name: column for column, name in enumerate(offered)}
    names = [name for name in dataset.labels if name in positions]
    missing = [name for name in dataset.labels if name not in positions]
    if missing and not (common_labels and names):
        raise LabelError(
            f"{model} lacks {len(missing)} of the dataset's {len(dataset.labels)} labels, such as {missing[0]!r}; "
            f"{list_choices(missing[0], offered)}; to evaluate only the labels that both have, set common_labels "
            "(--common-labels)"
        )
    extra = [name for name in offered if name not in dataset.labels]
    notes = [
        f"{who} lacks {plural(len(labels), 'label')} ({some(labels, at_most=5)}) of {other}; not evaluated."
        for who, labels, other in ((model, missing, "the dataset"), ("The dataset", extra, model))
        if labels
    ]
    return dataset.select_labels(names) if missing else dataset, [positions[name] for name in names], notes


def score(
    model: Classifier | Engine,
    dataset: ImageDataset,
    *,
    name: str | None = None,
    batch_size: int = 32,
    num_workers: int | None = None,
    device: str | torch.device | None = None,
    common_labels: bool = False,
    max_bad_fraction: float = 0.01,
    progress: Progress | None = None,
) -> ScoredImages:
    """Score the images of a dataset with a model.

    Args:
        model: A classifier, or an engine from `open_engine`, which is faster on a CPU.
        dataset: The images and their true labels.
        name: Name of the model in reports (default: its head and backbone).
        batch_size: Images per batch.
        num_workers: Worker processes that decode images (default: half of the cores).
        device: Device to run a classifier on (default: its current one).
        common_labels: Whether to evaluate only the labels that both have (default: the model must have all).
        max_bad_fraction: Fraction of images that may be unreadable; they are skipped and listed.
        progress: Called after each batch with the number of images done and the total.

    Returns:
        Scores and targets, in the dataset's order of images and labels.

    Raises:
        LabelError: The model lacks a label of the dataset.
        BadImagesError: Too many images cannot be read.

    Examples:
        >>> from manylabel import heads
        >>> from manylabel.data import scenes
        >>> dataset = scenes(4)
        >>> model = Classifier.create("resnet10t", head=heads.LinearClassifier, labels=dataset.labels, pretrained=False)
        >>> len(score(model, dataset))
        4
    """
    if isinstance(model, Classifier):
        name = name or f"{type(model.head).__name__} on {model.backbone.name}"
        engine: Engine = TorchEngine(model, device=None if device is None else find_device(device))
    else:
        name, engine = name or "model", model
    spec = engine.spec
    dataset, columns, notes = match_labels(spec.labels.names, dataset, model=name, common_labels=common_labels)
    workers = default_workers(on_gpu=engine.on_gpu) if num_workers is None else num_workers
    bad = BadImages(len(dataset), max_bad_fraction=max_bad_fraction)
    parts, done = [], 0
    for batch in prepare_batches(name_images(dataset), spec.input_spec, batch_size=batch_size, num_workers=workers):
        part = score_batch(engine, batch)
        parts.append(part.scores[:, columns])
        bad.add([BadImage(done + image.index, image.name, image.reason) for image in part.bad])
        done += len(part)
        if progress is not None:
            progress(done, len(dataset))
    readable = np.setdiff1d(np.arange(done), [image.index for image in bad])
    if not len(readable):
        raise DataError(f"{dataset.name} has no image that can be read; run: manylabel data check DATA")
    limits = None if spec.single_label else spec.thresholds
    return replace(
        ScoredImages.from_dataset(dataset, readable, torch.from_numpy(np.concatenate(parts)[readable])),
        thresholds=None if limits is None else tuple(limits[column] for column in columns),
        single_label=spec.single_label,  # not the dataset's: the model determines how its scores were computed
        model=name,
        bad=tuple(bad),
        notes=tuple(notes),
    )
