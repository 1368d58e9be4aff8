"""A classifier with everything around it that can be part of the model: bytes in, calibrated scores out.

Letters in shape comments: B images, H and W pixels, L labels.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from manylabel.images import Pixels
from manylabel.predictions import InferenceSpec

if TYPE_CHECKING:  # a classifier predicts by an engine, which runs a classifier
    from manylabel.classifier.classifier import Classifier

__all__ = ["InferenceModule", "TorchEngine", "inference_spec"]


class InferenceModule(nn.Module):
    """Normalises bytes, runs a classifier, calibrates its logits; this module is exported.

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

    def __init__(self, classifier: Classifier) -> None:
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


class TorchEngine:
    """Runs a classifier in torch, on any device.

    Args:
        classifier: The classifier.
        device: Device to run on (default: where the classifier is).
        fuse: Whether to run a fused copy, which is faster but takes a moment to make; otherwise the classifier itself
            is moved to the device and put into eval mode.
    """

    def __init__(self, classifier: Classifier, *, device: str | torch.device | None = None, fuse: bool = True) -> None:
        self.device = next(classifier.parameters()).device if device is None else torch.device(device)
        self.module = InferenceModule(classifier.fuse() if fuse else classifier).to(self.device)
        self.spec = inference_spec(classifier)

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


def inference_spec(classifier: Classifier) -> InferenceSpec:
    """Return the labels, preparation and thresholds of a classifier."""
    return InferenceSpec(
        classifier.labels, classifier.input_spec, classifier.thresholds, single_label=classifier.single_label
    )
