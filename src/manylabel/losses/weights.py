"""Weights that let rare labels count as much as common ones, taken from the data."""

import numpy as np
import torch
from torch import Tensor

from manylabel.errors import ConfigError
from manylabel.targets import Targets

__all__ = ["positive_weights"]


def positive_weights(targets: Targets, *, maximum: float = 100.0) -> Tensor:
    """Return for each label how many times more often it is known to be absent than present.

    With these as the `positive_weights` of a loss, a label's present and absent pictures weigh the same in total.

    Args:
        targets: The labels of the training pictures; unknown ones are not counted.
        maximum: The largest weight: one picture in a million must not outweigh all others.

    Returns:
        ``[L]``, float32; 1 for a label that is never present or never absent, as there is nothing to weigh.

    Raises:
        ConfigError: `maximum` is not positive.

    Examples:
        >>> positive_weights(Targets.from_lists([[0], [0], [0, 1], []], num_labels=3))
        tensor([0.3333, 3.0000, 1.0000])
    """
    if not maximum > 0:
        raise ConfigError(f"maximum must be above 0, got {maximum}")
    present = targets.positives
    absent = targets.known - present
    ratios = absent / np.maximum(present, 1)
    weights = np.where((present > 0) & (absent > 0), np.minimum(ratios, maximum), 1.0)
    return torch.from_numpy(weights.astype(np.float32))
