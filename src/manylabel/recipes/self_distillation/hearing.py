"""Which teachers are heard on a picture: those that were trained on pictures like it.

Eq. 5 of Xu et al., 2022, merges what teachers say of a picture that lies in their part of the data, ``x in X_C``. A
teacher that was trained only on pictures with one of its labels has never seen a picture without any, and what it says
of such a picture is noise; a student that learns it is ruined (docs/results.md has the numbers).

Letters in shape comments: B pictures of a batch, L labels, N pictures, T teachers of a side.
"""

from collections.abc import Sequence
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from manylabel.recipes.self_distillation.lessons import Lesson, own_pictures
from manylabel.targets import Targets
from manylabel.types import Batch, FeatureBatch, LabelSpace

__all__ = ["Hearing"]


class Hearing:
    """Says for each picture of a batch on which labels the teachers of each side are heard.

    Args:
        sides: The lessons of each side.
        targets: Of all training pictures.
        labels: All labels.
        which: What teachers were trained on, ``"own"`` pictures or ``"all"``; those are what they are heard on.

    Examples:
        >>> lessons = [Lesson("co-01", "co", ("cat", "cow"), 0), Lesson("co-02", "co", ("dog", "owl"), 1)]
        >>> targets = Targets.from_lists([[0], [1, 3]], num_labels=4)
        >>> hearing = Hearing([lessons], targets, LabelSpace(["cat", "dog", "cow", "owl"]), which="own")
        >>> batch = Batch(torch.zeros(2, 3, 8, 8), torch.zeros(2, 4), torch.ones(2, 4).bool(), torch.arange(2))
        >>> hearing(batch)[0].int()
        tensor([[1, 0, 1, 0],
                [0, 1, 0, 1]], dtype=torch.int32)
    """

    def __init__(
        self, sides: Sequence[Sequence[Lesson]], targets: Targets, labels: LabelSpace, *, which: Literal["own", "all"]
    ) -> None:
        self.own = [  # [N, T] each
            torch.from_numpy(np.stack([own_pictures(targets, labels, lesson, which=which) for lesson in side], axis=1))
            for side in sides
        ]
        self.teachers = []  # [L] each: which teacher knows a label
        for side in sides:
            teacher_of = {name: number for number, lesson in enumerate(side) for name in lesson.labels}
            self.teachers.append(torch.tensor([teacher_of[name] for name in labels]))

    def __call__(self, batch: Batch | FeatureBatch) -> list[Tensor]:
        """Return for each side where its teachers are heard, ``[B, L]``."""
        rows = batch.indices.cpu()
        return [
            own[rows][:, teachers].to(batch.targets.device)
            for own, teachers in zip(self.own, self.teachers, strict=True)
        ]
