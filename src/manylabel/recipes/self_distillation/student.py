"""What a student learns from: the logits of all teachers, and its distance to them.

Teachers know a part of the labels each; merged in the order of the student's labels they know all: rho in Eq. 5 of Xu
et al., *Boosting Multi-Label Image Classification with Complementary Parallel Self-Distillation*, 2022. Columns are
found by the labels' names, never by the order of files, in which a tenth teacher may come before the second.

The loss is that of the authors' code, ``1/2 ASL + 1/4 |student - co|^2 + 1/4 |student - dis|^2`` on raw logits, summed
over images and labels as their ASL is; every teacher is asked about every image. A loss that takes the mean instead of
the sum (``--loss.reduction mean``) takes it of both terms. With one side only (co, dis, random, whole), that side has
the whole weight. The distance counts for unknown labels, too: teachers have an opinion on them.

Letters in shape comments: B images of a batch, L labels, N images of a dataset, T teachers of a side, V views.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from manylabel.classifier import Classifier
from manylabel.errors import LabelError
from manylabel.losses.multilabel import Reduction
from manylabel.recipes.self_distillation.partition import TeacherTask, image_mask
from manylabel.storage import replacing
from manylabel.targets import Targets
from manylabel.types import Batch, FeatureBatch, LabelSpace

__all__ = [
    "CachedTeachers",
    "Distillation",
    "OnlineTeachers",
    "TeacherMask",
    "columns",
    "distance",
    "merge",
    "write_logits",
]

AnyBatch = Batch | FeatureBatch


def distance(student: Tensor, teacher: Tensor, *, reduction: Reduction = "sum", mask: Tensor | None = None) -> Tensor:
    """Return the squared distance of logits to a teacher's.

    Args:
        student: ``[B, L]``.
        teacher: ``[B, L]``.
        reduction: ``"sum"`` or ``"mean"`` over images and labels.
        mask: ``[B, L]``, true where the teacher counts (default: everywhere).

    Examples:
        >>> distance(torch.tensor([[1.0, 2.0]]), torch.tensor([[0.0, 4.0]]))
        tensor(5.)
        >>> distance(torch.tensor([[1.0, 2.0]]), torch.tensor([[0.0, 4.0]]), mask=torch.tensor([[True, False]]))
        tensor(1.)
    """
    squares = (student.float() - teacher.float()) ** 2
    if mask is not None:
        squares = squares * mask
    return squares.sum() if reduction == "sum" else squares.mean()


@dataclass(frozen=True, eq=False)
class Distillation:
    """Distance of a student to its teachers, the mean over the sides; a `DistillationTerm`.

    Args:
        teachers: Returns the logits of the teachers of each side for a batch, ``[B, L]`` each.
        weight: Weight of the distance in the loss.
        reduction: That of the loss of the labels.
        mask: Returns where the teachers of each side count, ``[B, L]`` each (default: everywhere).

    Examples:
        >>> batch = Batch(torch.zeros(1, 3, 8, 8), torch.zeros(1, 1), torch.ones(1, 1).bool(), torch.zeros(1).long())
        >>> term = Distillation(lambda batch: [torch.tensor([[1.0]]), torch.tensor([[3.0]])])
        >>> term(batch, torch.tensor([[0.0]]))
        tensor(5.)
    """

    teachers: Callable[[AnyBatch], Sequence[Tensor]]
    weight: float = 0.5
    reduction: Reduction = "sum"
    mask: Callable[[AnyBatch], Sequence[Tensor]] | None = None

    def __call__(self, batch: AnyBatch, logits: Tensor) -> Tensor:
        """Return the distance for a batch whose logits are ``[B, L]``."""
        answers = self.teachers(batch)
        masks: Sequence[Tensor | None] = [None] * len(answers) if self.mask is None else self.mask(batch)
        distances = [
            distance(logits, answer, reduction=self.reduction, mask=mask)
            for answer, mask in zip(answers, masks, strict=True)
        ]
        return torch.stack(distances).mean()

    def __deepcopy__(self, memo: object) -> Distillation:
        """Stay the same: the average of a task's weights is a copy of the task, which needs no other teachers."""
        return self


class TeacherMask:
    """Returns for each image of a batch the labels on which the teachers of each side count.

    Those that were trained on their own images only (X_C) count on such images (Eq. 5, ``x in X_C``): of others they
    know nothing, and a student that learns it is ruined (docs/results.md).

    Args:
        sides: The teachers of each side.
        targets: Targets of all training images.
        labels: All labels.

    Examples:
        >>> tasks = [TeacherTask("co-01", "co", ("cat", "cow"), 0), TeacherTask("co-02", "co", ("dog", "owl"), 1)]
        >>> targets = Targets.from_lists([[0], [1, 3]], num_labels=4)
        >>> mask = TeacherMask([tasks], targets, LabelSpace(["cat", "dog", "cow", "owl"]))
        >>> batch = Batch(torch.zeros(2, 3, 8, 8), torch.zeros(2, 4), torch.ones(2, 4).bool(), torch.arange(2))
        >>> mask(batch)[0].int()
        tensor([[1, 0, 1, 0],
                [0, 1, 0, 1]], dtype=torch.int32)
    """

    def __init__(self, sides: Sequence[Sequence[TeacherTask]], targets: Targets, labels: LabelSpace) -> None:
        self.own = [  # [N, T] each
            torch.from_numpy(np.stack([image_mask(targets, labels, task, which="own") for task in side], axis=1))
            for side in sides
        ]
        self.teachers = []  # [L] each: the teacher that knows a label
        for side in sides:
            teacher_of = {name: number for number, task in enumerate(side) for name in task.labels}
            self.teachers.append(torch.tensor([teacher_of[name] for name in labels]))

    def __call__(self, batch: AnyBatch) -> list[Tensor]:
        """Return for each side where its teachers count, ``[B, L]``."""
        rows = batch.indices.cpu()
        return [
            own[rows][:, teachers].to(batch.targets.device)
            for own, teachers in zip(self.own, self.teachers, strict=True)
        ]


def columns(known: LabelSpace, labels: LabelSpace) -> Tensor:
    """Return where the labels that a teacher knows stand among all labels.

    Examples:
        >>> columns(LabelSpace(["cow", "cat"]), LabelSpace(["cat", "dog", "cow"]))
        tensor([2, 0])
    """
    return torch.tensor([labels.index(name) for name in known])


def merge(parts: Sequence[Tensor], places: Sequence[Tensor]) -> Tensor:
    """Put the logits of teachers together in the order of all labels.

    Args:
        parts: The logits of each teacher, ``[B, labels of it]``.
        places: Where its labels stand among all; see `columns`. Together they are all labels, each once.

    Returns:
        Logits, ``[B, L]``.

    Raises:
        LabelError: A label is missing or stands twice.

    Examples:
        >>> merge([torch.tensor([[1.0, 2.0]]), torch.tensor([[3.0]])], [torch.tensor([2, 0]), torch.tensor([1])])
        tensor([[2., 3., 1.]])
    """
    order = torch.cat(list(places))
    back = order.argsort()
    if not torch.equal(order[back], torch.arange(len(order))):
        raise LabelError("the teachers of a side must know every label once; train them with self_distillation")
    merged = torch.cat(list(parts), dim=1)
    return merged[:, back.to(merged.device)]


class OnlineTeachers:
    """Teachers that are asked about each batch as it comes; they never change.

    Args:
        sides: The teachers of each side, as loaded.
        labels: All labels.

    Examples:
        >>> from manylabel import heads
        >>> teacher = Classifier.create("resnet10t", head=heads.CSRA, labels=["cat", "dog"], pretrained=False)
        >>> teachers = OnlineTeachers([[teacher]], LabelSpace(["dog", "cat"]))
        >>> batch = Batch(torch.rand(2, 3, 64, 64), torch.zeros(2, 2), torch.ones(2, 2).bool(), torch.arange(2))
        >>> torch.allclose(teachers(batch)[0].flip(1), teacher(batch.images))
        True
    """

    def __init__(self, sides: Sequence[Sequence[Classifier]], labels: LabelSpace) -> None:
        self.sides = [[teacher.eval().requires_grad_(False) for teacher in side] for side in sides]
        self.places = [[columns(teacher.labels, labels) for teacher in side] for side in sides]

    @torch.no_grad()
    def __call__(self, batch: AnyBatch) -> list[Tensor]:
        """Return the logits of each side, ``[B, L]``."""
        return [
            merge([_ask(teacher.to(batch.targets.device), batch) for teacher in side], places)
            for side, places in zip(self.sides, self.places, strict=True)
        ]


class CachedTeachers:
    """Teachers that were asked once; their answers are read from disk.

    Args:
        files: What `write_logits` wrote, a file for each side.
    """

    def __init__(self, files: Sequence[Path]) -> None:
        self.answers: list[NDArray[np.float32]] = [np.load(file, mmap_mode="r") for file in files]  # [V, N, L] each

    def __call__(self, batch: AnyBatch) -> list[Tensor]:
        """Return the logits of each side, ``[B, L]``."""
        views = batch.views if isinstance(batch, FeatureBatch) else None
        view = 0 if views is None else views.cpu().numpy()
        rows = batch.indices.cpu().numpy()
        return [torch.from_numpy(answers[view, rows]).to(batch.targets.device) for answers in self.answers]


def write_logits(
    path: Path,
    teachers: Iterator[Classifier],
    batches: Callable[[], Iterator[AnyBatch]],
    *,
    labels: LabelSpace,
    num_views: int,
    num_images: int,
    device: str = "cpu",
) -> None:
    """Ask teachers about all images, one teacher after the other, and write their logits: ``[V, N, L]``.

    Memory holds one teacher at a time; the file is mapped.

    Args:
        path: The file; a file of as many images that is there is complete, and left as it is.
        teachers: Those of one side.
        batches: Gives all views of all images.
        labels: All labels.
        num_views: Number of views.
        num_images: Number of images.
        device: Device to compute on.
    """
    shape = (num_views, num_images, len(labels))
    if path.is_file() and np.load(path, mmap_mode="r").shape == shape:
        return
    with replacing(path, overwrite=True) as temporary:
        answers = np.lib.format.open_memmap(temporary, mode="w+", dtype=np.float32, shape=shape)
        for teacher in teachers:
            _write_answers(teacher.eval().to(device), batches(), answers, columns(teacher.labels, labels), device)
        answers.flush()


@torch.inference_mode()
def _write_answers(
    teacher: Classifier,
    batches: Iterator[AnyBatch],
    answers: NDArray[np.float32],
    places: Tensor,
    device: str,
) -> None:
    for batch in batches:
        views = batch.views if isinstance(batch, FeatureBatch) else None
        view = np.zeros(len(batch), dtype=np.int64) if views is None else views.numpy()
        logits = _ask(teacher, batch.to(device)).float().cpu().numpy()
        answers[view[:, None], batch.indices.numpy()[:, None], places.numpy()] = logits


def _ask(teacher: Classifier, batch: AnyBatch) -> Tensor:
    """Return a teacher's logits; of features only the head is asked, and no image passes a backbone again."""
    module: nn.Module = teacher.head if isinstance(batch, FeatureBatch) else teacher
    logits: Tensor = module(batch.features if isinstance(batch, FeatureBatch) else batch.images)
    return logits
