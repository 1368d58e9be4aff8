"""Calibrated scores: logits are scaled and shifted before they become probabilities.

Letters in shape comments: B images, L labels.
"""

from __future__ import annotations

import math
from statistics import median
from typing import Literal

import msgspec
import torch
from torch import Tensor

from manylabel.errors import ConfigError
from manylabel.types import LabelSpace

__all__ = ["CalibrationMethod", "ScoreCalibration"]

CalibrationMethod = Literal["temperature", "platt"]
"""One temperature for all labels (Guo et al., ICML 2017), or scale and shift for each (Platt, 1999)."""


class ScoreCalibration(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Calibration ``logit * scale + shift``, after which labels scored 70 % are right 70 % of the time.

    Args:
        method: Method that the values were fitted with.
        scale: Factor of each label's logit; one over the temperature.
        shift: Bias added afterwards.

    Raises:
        ConfigError: The numbers of scales and shifts differ, a value is not finite, or a scale is not positive.

    Examples:
        >>> ScoreCalibration("platt", scale=(0.5, 1.0), shift=(0.0, -1.0)).apply(torch.tensor([[2.0, 3.0]]))
        tensor([[1., 2.]])
    """

    method: CalibrationMethod
    scale: tuple[float, ...]
    shift: tuple[float, ...]

    def __post_init__(self) -> None:
        if len(self.scale) != len(self.shift):
            raise ConfigError(f"give as many scales as shifts, got {len(self.scale)} and {len(self.shift)}")
        if not all(map(math.isfinite, (*self.scale, *self.shift))):
            raise ConfigError("scales and shifts of a calibration must be finite, got inf or nan")
        if self.scale and min(self.scale) <= 0:
            raise ConfigError(f"scales must be above 0, or the ranking would be reversed, got {min(self.scale):.4g}")

    def apply(self, logits: Tensor) -> Tensor:
        """Return calibrated logits for logits ``[B, L]``."""
        scale = torch.tensor(self.scale, dtype=logits.dtype, device=logits.device)
        shift = torch.tensor(self.shift, dtype=logits.dtype, device=logits.device)
        return logits * scale + shift

    def for_labels(self, old: LabelSpace, new: LabelSpace) -> ScoreCalibration:
        """Return the calibration of other labels; one that was not calibrated gets the median of the others.

        Args:
            old: Labels of this calibration.
            new: Labels of the result.

        Examples:
            >>> calibration = ScoreCalibration("temperature", scale=(0.5, 0.5), shift=(0.0, 0.0))
            >>> calibration.for_labels(LabelSpace(["cat", "dog"]), LabelSpace(["dog", "tram", "cow"])).scale
            (0.5, 0.5, 0.5)
        """
        default = (median(self.scale), median(self.shift))
        known = dict(zip(old, zip(self.scale, self.shift, strict=True), strict=True))
        scale, shift = zip(*(known.get(name, default) for name in new), strict=True)
        return ScoreCalibration(self.method, scale, shift)
