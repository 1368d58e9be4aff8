"""How good a predictor is on labelled pictures."""

from __future__ import annotations

import numpy as np
import torch

from manylabel.data import ImageDataset
from manylabel.errors import DataError, ImageError
from manylabel.inference.predictor import Predictor
from manylabel.metrics import average_precision

__all__ = ["mean_average_precision"]


def mean_average_precision(predictor: Predictor, dataset: ImageDataset, *, batch_size: int = 32) -> float:
    """Return the mean average precision of a predictor over the labels of a data set.

    Args:
        predictor: The model, with all labels of the data set.
        dataset: Pictures and their labels; those that cannot be read are left out.
        batch_size: Pictures that go through the model at once.

    Raises:
        DataError: No picture can be read.
    """
    columns = [predictor.labels.index(name) for name in dataset.labels]
    kept: list[int] = []
    scores = []
    for start in range(0, len(dataset), batch_size):
        pixels = []
        for index in range(start, min(start + batch_size, len(dataset))):
            try:
                pixels.append(predictor.prepare(dataset.pictures[index]))
                kept.append(index)
            except ImageError:
                continue
        if pixels:
            scores.append(predictor.scores(np.stack(pixels))[:, columns])
    if not scores:
        raise DataError(f"{dataset.name} has no picture that can be read")
    targets, known = dataset.targets.dense(kept)
    result = average_precision(
        torch.from_numpy(np.concatenate(scores)), torch.from_numpy(targets), torch.from_numpy(known)
    )
    return float(result.mean())
