"""Distillation term of the student: merged logits of all teachers, and the distance to them.

Each teacher covers a subset of the labels; their logits are merged in the order of the student's labels: rho in Eq. 5
of Xu et al., *Boosting Multi-Label Image Classification with Complementary Parallel Self-Distillation*, 2022.
Columns are matched by label name, never by the order of files.

The loss is that of the authors' code, ``1/2 ASL + 1/4 |student - co|^2 + 1/4 |student - dis|^2`` on raw logits, summed
over images and labels like their ASL; every teacher is queried on every image. ``--loss.reduction mean`` applies to
both terms. A single side (co, dis, random, whole) has the whole weight. The distance includes unknown labels, for which
teachers have predictions, too.

Letters in shape comments: B images of a batch, L labels, N images of a dataset, T teachers of a side, V views.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from manylabel.classifier import Classifier
from manylabel.errors import LabelError
from manylabel.losses import Reduction
from manylabel.recipes.self_distillation.partition import TeacherTask, image_mask
from manylabel.storage import replacing
from manylabel.targets import Targets
from manylabel.types import Batch, FeatureBatch, LabelSpace

AnyBatch = Batch | FeatureBatch


def distance(student: Tensor, teacher: Tensor, *, reduction: Reduction = "sum", mask: Tensor | None = None) -> Tensor:
    """Return the squared distance between the logits of student and teacher.

    Args:
        student: Logits ``[B, L]``.
        teacher: Logits ``[B, L]``.
        reduction: ``"sum"`` or ``"mean"`` over images and labels.
        mask: ``[B, L]``, true where the teacher is used (default: everywhere).

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
    """Mean distance of a student to the teachers of each side; a `DistillationTerm`.

    Args:
        teachers: Function from a batch to the teacher logits of each side, ``[B, L]`` each.
        weight: Weight of the distance in the loss.
        reduction: Reduction of the label loss.
        mask: Function from a batch to the mask of each side, ``[B, L]`` each (default: everywhere).

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
        """Return the distance for a batch and the student's logits ``[B, L]``."""
        answers = self.teachers(batch)
        masks: Sequence[Tensor | None] = [None] * len(answers) if self.mask is None else self.mask(batch)
        distances = [
            distance(logits, answer, reduction=self.reduction, mask=mask)
            for answer, mask in zip(answers, masks, strict=True)
        ]
        return torch.stack(distances).mean()

    def __deepcopy__(self, memo: object) -> "Distillation":
        """Return itself: the weight average copies the task, but must not copy the teachers."""
        return self


class TeacherMask:
    """Mask of the labels for which the teachers of each side are used, per image.

    Teachers trained on their own images only (X_C) are used on such images only (Eq. 5, ``x in X_C``): their
    predictions elsewhere are arbitrary and ruin the student (docs/results.md).

    Args:
        sides: Teacher tasks of each side.
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
        self.teachers = []  # [L] each: teacher of each label
        for side in sides:
            teacher_of = {name: number for number, task in enumerate(side) for name in task.labels}
            self.teachers.append(torch.tensor([teacher_of[name] for name in labels]))

    def __call__(self, batch: AnyBatch) -> list[Tensor]:
        """Return the mask of each side, ``[B, L]``."""
        rows = batch.indices.cpu()
        return [
            own[rows][:, teachers].to(batch.targets.device)
            for own, teachers in zip(self.own, self.teachers, strict=True)
        ]


def columns(own: LabelSpace, labels: LabelSpace) -> Tensor:
    """Return the positions of a teacher's labels among all labels.

    Examples:
        >>> columns(LabelSpace(["cow", "cat"]), LabelSpace(["cat", "dog", "cow"]))
        tensor([2, 0])
    """
    return torch.tensor([labels.index(name) for name in own])


def merge(parts: Sequence[Tensor], positions: Sequence[Tensor]) -> Tensor:
    """Merge the logits of teachers in the order of all labels.

    Args:
        parts: Logits of each teacher, ``[B, labels of the teacher]``.
        positions: Positions of its labels among all; see `columns`. Together they cover each label once.

    Returns:
        Logits, ``[B, L]``.

    Raises:
        LabelError: A label is missing or covered twice.

    Examples:
        >>> merge([torch.tensor([[1.0, 2.0]]), torch.tensor([[3.0]])], [torch.tensor([2, 0]), torch.tensor([1])])
        tensor([[2., 3., 1.]])
    """
    order = torch.cat(list(positions))
    back = order.argsort()
    if not torch.equal(order[back], torch.arange(len(order))):
        raise LabelError("the teachers of a partition must cover each label once; train them with self_distillation")
    merged = torch.cat(list(parts), dim=1)
    return merged[:, back.to(merged.device)]


class OnlineTeachers:
    """Frozen teachers, run on each batch.

    Args:
        sides: Loaded teachers of each side.
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
        self.positions = [[columns(teacher.labels, labels) for teacher in side] for side in sides]

    @torch.no_grad()
    def __call__(self, batch: AnyBatch) -> list[Tensor]:
        """Return the logits of each side, ``[B, L]``."""
        return [
            merge([_query(self._part(teacher, batch), batch) for teacher in side], positions)
            for side, positions in zip(self.sides, self.positions, strict=True)
        ]

    @staticmethod
    def _part(teacher: Classifier, batch: AnyBatch) -> nn.Module:
        teacher = teacher.to(batch.targets.device)
        return teacher.head if isinstance(batch, FeatureBatch) else teacher


class CachedTeachers:
    """Teacher logits computed once and read from disk.

    Args:
        files: Files of `write_logits`, one per side.
    """

    def __init__(self, files: Sequence[Path]) -> None:
        self.answers: list[NDArray[np.float32]] = [np.load(file, mmap_mode="r") for file in files]  # [V, N, L] each

    def __call__(self, batch: AnyBatch) -> list[Tensor]:
        """Return the logits of each side, ``[B, L]``."""
        views = batch.views if isinstance(batch, FeatureBatch) else None
        view = 0 if views is None else views.cpu().numpy()
        rows = batch.indices.cpu().numpy()
        return [torch.from_numpy(answers[view, rows]).to(batch.targets.device) for answers in self.answers]


@torch.inference_mode()
def write_logits(
    path: Path,
    teachers: Iterator[Classifier],
    batches: Callable[[], Iterator[AnyBatch]],
    *,
    labels: LabelSpace,
    num_views: int,
    num_images: int,
    part: Callable[[Classifier], nn.Module] = lambda teacher: teacher,
    device: str = "cpu",
    progress: Callable[[int], None] | None = None,
) -> None:
    """Compute the logits of teachers for all images, one teacher at a time, and write them: ``[V, N, L]``.

    The file is memory-mapped.

    Args:
        path: File to write; an existing file of the same shape is complete and reused.
        teachers: Teachers of one side.
        batches: Function that yields all views of all images.
        labels: All labels.
        num_views: Number of views.
        num_images: Number of images.
        part: Function that returns the part of a teacher that takes the batches (default: all of it).
        device: Device to compute on.
        progress: Called after every batch with its number of images.
    """
    shape = (num_views, num_images, len(labels))
    if path.is_file() and np.load(path, mmap_mode="r").shape == shape:
        return
    with replacing(path, overwrite=True) as temporary:
        answers = np.lib.format.open_memmap(temporary, mode="w+", dtype=np.float32, shape=shape)
        for teacher in teachers:
            positions, queried = columns(teacher.labels, labels).numpy(), part(teacher.to(device)).eval()
            for batch in batches():
                views = batch.views if isinstance(batch, FeatureBatch) else None
                view = np.zeros(len(batch), dtype=np.int64) if views is None else views.numpy()
                logits = _query(queried, batch.to(device)).float().cpu().numpy()
                answers[view[:, None], batch.indices.numpy()[:, None], positions] = logits
                if progress is not None:
                    progress(len(batch))
        answers.flush()


def _query(teacher: nn.Module, batch: AnyBatch) -> Tensor:
    logits: Tensor = teacher(batch.features if isinstance(batch, FeatureBatch) else batch.images)
    return logits
