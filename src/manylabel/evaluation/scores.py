"""Scores of a model for the images of a dataset, together with the targets.

Letters in shape comments: N images, L labels.
"""

from __future__ import annotations

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
from manylabel.data.loading import BadImages, fetch_images
from manylabel.errors import ConfigError, DataError, LabelError, list_choices
from manylabel.inference.pipeline import prepare_batches
from manylabel.metrics import top_labels
from manylabel.metrics.inputs import Inputs, check, where_present
from manylabel.predictions import Engine, score_batch
from manylabel.system import default_workers, find_device
from manylabel.types import BadImage, LabelSpace

__all__ = ["LabelMatch", "ScoredImages", "match_labels", "score"]

logger = logging.getLogger(__name__)

Progress = Callable[[int, int], None]
"""Called with the number of images done, and of all."""


@dataclass(frozen=True, eq=False)
class ScoredImages:
    """Scores of a model for some images, together with the targets.

    Args:
        names: Names of the images.
        scores: ``[N, L]``, probabilities, never logits.
        targets: ``[N, L]``, true where a label is present.
        known: ``[N, L]``, true where it is known whether a label is present.
        labels: The labels, in the order of the columns.
        indices: ``[N]``, the positions of the images in their dataset.
        areas: ``[N, L]``, the fraction of the image that the largest object of a label covers, where the data have it.
        thresholds: Score from which on a label is predicted, one per label (default: 0.5 for all).
        single_label: Whether the model predicts exactly one label per image, the most confident, whatever its score.
        model: Name of the model in reports.
        dataset: Name of the dataset in reports.
        bad: Images of the dataset without scores, and why.
        notes: What a reader of a report should know, such as labels that were left out.

    Raises:
        ConfigError: The shapes differ, or the scores or thresholds are no probabilities.

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
            raise ConfigError(f"give one threshold for each of {len(self.labels)} labels, got {len(self.thresholds)}")
        wrong = [limit for limit in self.thresholds or () if math.isnan(limit)]
        if wrong:
            raise ConfigError(f"thresholds must be numbers, but {len(wrong)} of {len(self.labels)} are NaN")

    def __len__(self) -> int:
        return len(self.names)

    @cached_property
    def inputs(self) -> Inputs:
        """Scores and targets as the metrics take them; no mask where all is known."""
        return check(self.scores, self.targets, None if self.known.all() else self.known)

    @property
    def decisions(self) -> Inputs:
        """As `inputs`, with 1 for what is predicted and 0 for the rest in place of the scores."""
        return self.inputs._replace(scores=self.predicted.float())

    def take(self, rows: NDArray[np.int64]) -> ScoredImages:
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

    @property
    def has_one_label_each(self) -> bool:
        """True where every image has exactly one label, and all is known: then top-1 accuracy is defined."""
        return bool(self.known.all()) and bool((self.targets.sum(dim=1) == 1).all())

    @cached_property
    def predicted(self) -> Tensor:
        """True where a score reaches its threshold, or is a single-label model's highest, ``[N, L]``."""
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
    ) -> ScoredImages:
        """Combine scores from anywhere with targets.

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
    def from_dataset(
        cls,
        dataset: ImageDataset,
        indices: NDArray[np.int64],
        scores: Tensor,
        *,
        thresholds: tuple[float, ...] | None,
        single_label: bool,
        model: str,
        bad: Sequence[BadImage],
        notes: Sequence[str],
    ) -> ScoredImages:
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
            thresholds=thresholds,
            single_label=single_label,
            model=model,
            dataset=dataset.name,
            bad=tuple(bad),
            notes=tuple(notes),
        )


@dataclass(frozen=True)
class LabelMatch:
    """Labels that a dataset and a model share.

    Args:
        names: The labels, in the order of the dataset.
        columns: Their positions in the model.
        notes: Sentences about labels that only one of them has.
    """

    names: tuple[str, ...]
    columns: tuple[int, ...]
    notes: tuple[str, ...]


def match_labels(offered: Sequence[str], wanted: LabelSpace, *, model: str, common_labels: bool = False) -> LabelMatch:
    """Match the labels of a dataset with those of a model.

    Args:
        offered: The labels that the model has.
        wanted: The labels of the dataset.
        model: Name of the model in messages.
        common_labels: Whether to evaluate only the labels that both have (default: the model must have all).

    Raises:
        LabelError: The model lacks a label of the dataset, or with `common_labels`, all of them.

    Examples:
        >>> match_labels(["dog", "cat", "cow"], LabelSpace(["cat", "dog"]), model="tagger").columns
        (1, 0)
    """
    places = {name: column for column, name in enumerate(offered)}
    names = tuple(name for name in wanted if name in places)
    missing = [name for name in wanted if name not in places]
    if missing and not (common_labels and names):
        raise LabelError(
            f"{model} lacks {len(missing)} of the dataset's {len(wanted)} labels, such as {missing[0]!r}; "
            f"{list_choices(missing[0], offered)}; to evaluate only the labels that both have, ask for common labels "
            "(--common-labels)"
        )
    notes = []
    if missing:
        notes.append(f"The model lacks {_listed(missing)} of the dataset; not evaluated.")
    if len(names) < len(places):
        extra = [name for name in offered if name not in wanted]
        notes.append(f"The dataset lacks {_listed(extra)} of the model; not evaluated.")
    return LabelMatch(names, tuple(places[name] for name in names), tuple(notes))


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
        model: A classifier, trained or not, or an engine of `open_engine`, which is faster on a CPU.
        dataset: The images and their true labels.
        name: Name of the model in reports (default: its head and backbone).
        batch_size: Number of images that go through the model at once.
        num_workers: Processes that decode images beside the main one (default: half of the cores).
        device: Device that a classifier runs on (default: where it is).
        common_labels: Whether to evaluate only the labels that both have; otherwise all of the dataset are needed.
        max_bad_fraction: Fraction of images that may be unreadable; they are left out and listed.
        progress: Called after each batch with the number of images done, and of all.

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
    match = match_labels(spec.labels.names, dataset.labels, model=name, common_labels=common_labels)
    if len(match.names) < len(dataset.labels):
        dataset = dataset.select_labels(match.names)
    workers = default_workers() if num_workers is None else num_workers
    images = fetch_images(dataset)
    parts = []
    bad = BadImages(len(dataset), max_bad_fraction=max_bad_fraction)
    done = 0
    for batch in prepare_batches(images, spec.input_spec, batch_size=batch_size, num_workers=workers):
        part = score_batch(engine, batch)
        parts.append(part.scores[:, match.columns])
        bad.add([BadImage(done + image.index, image.name, image.reason) for image in part.bad])
        done += len(part)
        if progress is not None:
            progress(done, len(dataset))
    readable = np.setdiff1d(np.arange(done), [image.index for image in bad])
    if not len(readable):
        raise DataError(f"{dataset.name} has no image that can be read; run: manylabel data check DATA")
    limits = None if spec.single_label else spec.thresholds
    return ScoredImages.from_dataset(
        dataset,
        readable,
        torch.from_numpy(np.concatenate(parts)[readable]),
        thresholds=None if limits is None else tuple(limits[column] for column in match.columns),
        single_label=spec.single_label,  # not the data's: the model decides how its scores were made
        model=name,
        bad=list(bad),
        notes=match.notes,
    )


def _listed(names: Sequence[str], *, at_most: int = 5) -> str:
    """Return how many labels these are, and the first few."""
    more = ", ..." if len(names) > at_most else ""
    return f"{len(names)} label{'' if len(names) == 1 else 's'} ({', '.join(names[:at_most])}{more})"
