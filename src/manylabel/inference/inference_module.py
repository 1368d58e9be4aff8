"""A classifier with everything around it that can be part of the model: bytes in, calibrated scores out.

Letters in shape comments: B pictures, H and W pixels, L labels.
"""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from manylabel.classifier import Classifier
from manylabel.images import Pixels
from manylabel.inference.inference_spec import InferenceSpec

__all__ = ["InferenceModule", "TorchEngine", "describe"]


class InferenceModule(nn.Module):
    """Normalises bytes, runs a classifier, calibrates its logits; what is exported.

    Args:
        classifier: The classifier; a fused copy of it is kept.

    Examples:
        >>> from manylabel.heads import LinearHead
        >>> model = Classifier.create("resnet10t", head=LinearHead, labels=["cat", "dog"], pretrained=False)
        >>> scores, logits = InferenceModule(model)(torch.zeros(2, 64, 64, 3, dtype=torch.uint8))
        >>> torch.equal(scores, logits.sigmoid())
        True
    """

    scale: Tensor
    shift: Tensor

    def __init__(self, classifier: Classifier) -> None:
        super().__init__()
        self.classifier = classifier.fuse()
        spec = classifier.input_spec
        mean, std = (torch.tensor(values).view(1, 3, 1, 1) for values in (spec.mean, spec.std))
        device = next(classifier.parameters()).device
        self.register_buffer("scale", (1 / (255 * std)).to(device))
        self.register_buffer("shift", (-mean / std).to(device))
        self.eval()

    def forward(self, images: Tensor) -> tuple[Tensor, Tensor]:
        """Return scores and raw logits ``[B, L]`` for pictures ``[B, H, W, 3]`` of bytes."""
        normalised = images.permute(0, 3, 1, 2).float() * self.scale + self.shift  # [B, 3, H, W]
        logits = self.classifier(normalised)
        return self.classifier.scores(logits), logits


class TorchEngine:
    """Runs a classifier in torch, on any device.

    Args:
        classifier: The classifier.
        device: Where it runs; where it is when left out.
    """

    def __init__(self, classifier: Classifier, *, device: str | torch.device | None = None) -> None:
        self.device = next(classifier.parameters()).device if device is None else torch.device(device)
        self.module = InferenceModule(classifier).to(self.device)
        self.spec = describe(classifier)

    @torch.inference_mode()
    def scores(self, pixels: Pixels) -> NDArray[np.float32]:
        """Return calibrated probabilities ``[B, L]`` for pictures ``[B, H, W, 3]``."""
        scores, _ = self.module(torch.from_numpy(np.ascontiguousarray(pixels)).to(self.device))
        return np.asarray(scores.float().cpu().numpy(), dtype=np.float32)


def describe(classifier: Classifier) -> InferenceSpec:
    """Return what an export of a classifier says of itself."""
    return InferenceSpec(
        classifier.labels, classifier.input_spec, classifier.thresholds, single_label=classifier.single_label
    )
