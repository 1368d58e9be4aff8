"""Teachers know a part of the labels each; together, in the order of the student's labels, they know all.

rho in Eq. 5 of Xu et al., 2022. Columns are found by the labels' names, never by the order of files, in which a tenth
teacher may come before the second.

Letters in shape comments: B pictures, L labels, N pictures of a data set, V views.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from manylabel.classifier import Classifier
from manylabel.errors import LabelError
from manylabel.storage import replacing
from manylabel.types import Batch, FeatureBatch, LabelSpace

__all__ = ["CachedTeachers", "OnlineTeachers", "columns", "merge", "write_logits"]

AnyBatch = Batch | FeatureBatch


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
    """Teachers that are asked about each batch as it comes; they never change, whatever is done to the student.

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
    num_pictures: int,
    device: str = "cpu",
) -> None:
    """Ask teachers about all pictures, one teacher after the other, and write what they say: ``[V, N, L]``.

    Memory holds one teacher at a time; the file is mapped.

    Args:
        path: Where it goes; a file of as many pictures that is there is complete, and left as it is.
        teachers: Those of one side.
        batches: Gives all views of all pictures.
        labels: All labels.
        num_views: How many views there are.
        num_pictures: How many pictures there are.
        device: Where to compute.
    """
    shape = (num_views, num_pictures, len(labels))
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
    """Return a teacher's logits; of features only the head is asked, and no picture passes a backbone again."""
    module: nn.Module = teacher.head if isinstance(batch, FeatureBatch) else teacher
    logits: Tensor = module(batch.features if isinstance(batch, FeatureBatch) else batch.images)
    return logits
