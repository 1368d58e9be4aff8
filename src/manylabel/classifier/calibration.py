"""Calibrated scores: logits are stretched and moved before they become probabilities.

Letters in shape comments: B pictures, L labels.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from statistics import median
from typing import Any, Literal

import torch
from torch import Tensor

from manylabel.errors import ConfigError
from manylabel.types import LabelSpace

__all__ = ["CalibrationMethod", "ScoreCalibration"]

CalibrationMethod = Literal["temperature", "platt"]
"""One number for all labels (Guo et al., ICML 2017), or two for each (Platt, 1999)."""


@dataclass(frozen=True)
class ScoreCalibration:
    """What makes a score of 70 % be right 70 % of the time: ``logit * scale + shift``.

    Args:
        method: How the numbers were found.
        scale: What each label's logit is multiplied with; one over the temperature.
        shift: What is then added to it.

    Raises:
        ConfigError: There are not as many scales as shifts, or a scale would turn the order of pictures round.

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
        if self.scale and not min(self.scale) > 0:
            raise ConfigError(f"scales must be above 0, or scores would turn round, got {min(self.scale):.4g}")

    def apply(self, logits: Tensor) -> Tensor:
        """Return calibrated logits for logits ``[B, L]``."""
        scale = torch.tensor(self.scale, dtype=logits.dtype, device=logits.device)
        shift = torch.tensor(self.shift, dtype=logits.dtype, device=logits.device)
        return logits * scale + shift

    def for_labels(self, old: LabelSpace, new: LabelSpace) -> ScoreCalibration:
        """Return the calibration for other labels; one that was not calibrated gets the middle of all others.

        Args:
            old: The labels that this is for.
            new: The labels to make it for.

        Examples:
            >>> calibration = ScoreCalibration("temperature", scale=(0.5, 0.5), shift=(0.0, 0.0))
            >>> calibration.for_labels(LabelSpace(["cat", "dog"]), LabelSpace(["dog", "tram", "cow"])).scale
            (0.5, 0.5, 0.5)
        """
        middle = (median(self.scale), median(self.shift))
        known = dict(zip(old, zip(self.scale, self.shift, strict=True), strict=True))
        scale, shift = zip(*(known.get(name, middle) for name in new), strict=True)
        return ScoreCalibration(self.method, scale, shift)

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> ScoreCalibration:
        """Make it again from what ``dataclasses.asdict`` gave."""
        return cls(values["method"], tuple(values["scale"]), tuple(values["shift"]))
