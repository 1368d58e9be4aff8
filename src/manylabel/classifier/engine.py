"""Inference in torch: pixels are normalised and classified, and the logits calibrated.

Letters in shape comments: B images, H and W pixels, L labels.
"""

import math
from statistics import median
from typing import TYPE_CHECKING, Literal

import msgspec
import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from manylabel.engine import Engine
from manylabel.errors import ConfigError
from manylabel.images import Pixels
from manylabel.types import LabelSpace

if TYPE_CHECKING:  # a classifier predicts with an engine, which runs a classifier
    from manylabel.classifier.classifier import Classifier

CalibrationMethod = Literal["temperature", "platt"]
"""One temperature for all labels (Guo et al., ICML 2017), or scale and shift for each (Platt, 1999)."""


class ScoreCalibration(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Calibration ``logit * scale + shift``, after which labels scored 70 % are right 70 % of the time.

    Attributes:
        method: Method that fitted the values.
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
            raise ConfigError(f"there must be as many scales as shifts, got {len(self.scale)} and {len(self.shift)}")
        if not all(map(math.isfinite, (*self.scale, *self.shift))):
            raise ConfigError("scales and shifts of a calibration must be finite, got inf or nan")
        if self.scale and min(self.scale) <= 0:
            raise ConfigError(f"scales must be above 0, or the ranking would be reversed, got {min(self.scale):.4g}")

    def apply(self, logits: Tensor) -> Tensor:
        """Return calibrated logits for logits ``[B, L]``."""
        scale = torch.tensor(self.scale, dtype=logits.dtype, device=logits.device)
        shift = torch.tensor(self.shift, dtype=logits.dtype, device=logits.device)
        return logits * scale + shift

    def for_labels(self, old: LabelSpace, new: LabelSpace) -> "ScoreCalibration":
        """Return the calibration of other labels; new ones get the median of the others.

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


class InferenceModule(nn.Module):
    """Classifier that takes bytes and returns calibrated scores; this module is exported.

    Args:
        classifier: The classifier, in eval mode.

    Examples:
        >>> from manylabel import Classifier, heads
        >>> model = Classifier.create("resnet10t", head=heads.LinearClassifier, labels=["cat", "dog"], pretrained=False)
        >>> scores, logits = InferenceModule(model.fuse())(torch.zeros(2, 64, 64, 3, dtype=torch.uint8))
        >>> torch.equal(scores, logits.sigmoid())
        True
    """

    scale: Tensor
    shift: Tensor

    def __init__(self, classifier: "Classifier") -> None:
        super().__init__()
        self.classifier = classifier
        spec = classifier.input_spec
        mean, std = (torch.tensor(values).view(1, 3, 1, 1) for values in (spec.mean, spec.std))
        device = next(classifier.parameters()).device
        self.register_buffer("scale", (1 / (255 * std)).to(device))
        self.register_buffer("shift", (-mean / std).to(device))
        self.eval()

    def forward(self, images: Tensor) -> tuple[Tensor, Tensor]:
        """Return scores and uncalibrated logits ``[B, L]`` for images ``[B, H, W, 3]`` of bytes."""
        normalised = images.permute(0, 3, 1, 2).float() * self.scale + self.shift  # [B, 3, H, W]
        logits = self.classifier(normalised)
        return self.classifier.scores(logits), logits


class TorchEngine(Engine):
    """Run a classifier in torch, on any device.

    Args:
        classifier: The classifier.
        device: Device to run on (default: where the classifier is).
        fuse: Whether to run a fused copy, which is faster but takes time to build; otherwise the classifier itself
            is moved to the device and put into eval mode.
    """

    def __init__(
        self, classifier: "Classifier", *, device: str | torch.device | None = None, fuse: bool = True
    ) -> None:
        self.device = next(classifier.parameters()).device if device is None else torch.device(device)
        self.module = InferenceModule(classifier.fuse() if fuse else classifier).to(self.device)
        self.spec = classifier.spec
        self.on_gpu = self.device.type != "cpu"

    def scores(self, pixels: Pixels) -> NDArray[np.float32]:
        """Return calibrated probabilities ``[B, L]`` for images ``[B, H, W, 3]``."""
        return self._run(pixels)[0]

    def logits(self, pixels: Pixels) -> NDArray[np.float32]:
        """Return logits ``[B, L]`` before calibration."""
        return self._run(pixels)[1]

    @torch.inference_mode()
    def _run(self, pixels: Pixels) -> tuple[NDArray[np.float32], ...]:
        images = torch.from_numpy(np.ascontiguousarray(pixels)).to(self.device)
        return tuple(values.float().cpu().numpy() for values in self.module(images))
