"""Fingerprint of a backbone: the same for the same weights, whatever file they came from."""

import hashlib

import torch

from manylabel.backbone.backbone import Backbone

__all__ = ["fingerprint_weights"]


def fingerprint_weights(backbone: Backbone) -> str:
    """Return a fingerprint of a backbone's architecture and weights, batch-norm statistics included.

    Args:
        backbone: The backbone, on any device.

    Returns:
        Letters and digits.

    Examples:
        >>> backbone = Backbone("resnet10t", pretrained=False)
        >>> before = fingerprint_weights(backbone)
        >>> with torch.no_grad():
        ...     _ = next(backbone.parameters()).add_(1.0)
        >>> fingerprint_weights(backbone) == before
        False
    """
    digest = hashlib.sha256(f"{backbone.name} {backbone.image_size}".encode())
    for name, tensor in backbone.model.state_dict().items():
        values = tensor.detach().cpu().contiguous()
        digest.update(f"{name} {values.dtype} {tuple(values.shape)}".encode())
        digest.update(values.flatten().view(torch.uint8).numpy().data)
    return digest.hexdigest()
