"""Class activation maps: CAM, Grad-CAM, Grad-CAM++ and EigenCAM.

Zhou et al., "Learning Deep Features for Discriminative Localization", 2016 (CAM); Selvaraju et al., "Grad-CAM", 2017;
Chattopadhay et al., "Grad-CAM++", 2018; Muhammad and Yeasin, "Eigen-CAM", 2020. All but CAM are the grad-cam library's.

Letters in shape comments: B pictures, L labels, C channels, H and W cells of a map.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.func import functional_call

from manylabel.errors import ConfigError
from manylabel.heads.traits import label_weights
from manylabel.system import require

__all__ = ["class_activation", "eigen_maps", "gradient_maps", "head_gradients"]

_LIBRARY = {"grad_cam": "GradCAM", "grad_cam_plus_plus": "GradCAMPlusPlus"}
_LABELS_AT_ONCE = 32  # copies of a map that go through the head together


def class_activation(head: nn.Module, final: Tensor, labels: Sequence[int]) -> Tensor:
    """Return CAM: what each place of the final map ``[1, C, H, W]`` adds to each label's logit, ``[L, H, W]``.

    Raises:
        ConfigError: The head is not linear in the map.

    Examples:
        >>> from manylabel.heads import LinearClassifier
        >>> class_activation(LinearClassifier(8, 3), torch.rand(1, 8, 7, 7), [0, 2]).shape
        torch.Size([2, 7, 7])
    """
    weights = label_weights(head)
    if weights is None:
        raise ConfigError(
            f"CAM needs a head that is linear in the final map, which {type(head).__name__} is not; "
            "use attention or grad_cam"
        )
    return torch.einsum("lc,chw->lhw", weights[list(labels)], final[0]).clamp(min=0)


def head_gradients(head: nn.Module, features: Sequence[Tensor], labels: Sequence[int]) -> Tensor:
    """Return the gradient of each label's logit at the final map of one picture, ``[L, C, H, W]``.

    The backbone takes no part: copies of its map go through the head together, one for each label.

    Args:
        head: In eval mode.
        features: One map ``[1, C, H, W]`` per stage.
        labels: Columns of the logits.

    Examples:
        >>> from manylabel.heads import LinearClassifier
        >>> head = LinearClassifier(8, 3)
        >>> gradients = head_gradients(head, [torch.rand(1, 8, 2, 2)], [1, 2])
        >>> torch.allclose(gradients[:, :, 0, 0], head.linear.weight[1:] / 4)
        True
    """
    weights = {name: tensor.detach() for name, tensor in head.state_dict(keep_vars=True).items()}
    gradients = []
    for start in range(0, len(labels), _LABELS_AT_ONCE):
        columns = torch.as_tensor(list(labels[start : start + _LABELS_AT_ONCE]), device=features[-1].device)
        copies = [stage.detach().expand(len(columns), -1, -1, -1) for stage in features]
        final = copies[-1].clone().requires_grad_()
        with torch.enable_grad():
            logits: Tensor = functional_call(head, weights, ([*copies[:-1], final],))
            chosen = logits.gather(1, columns[:, None]).sum()
        gradients.append(torch.autograd.grad(chosen, final)[0])
    return torch.cat(gradients)


def gradient_maps(method: str, head: nn.Module, activation: Tensor, gradients: Tensor) -> Tensor:
    """Turn a map and the gradients at it into heat, as the grad-cam library does.

    Args:
        method: ``"grad_cam"`` or ``"grad_cam_plus_plus"``.
        head: The head, which tells the library a device.
        activation: ``[1, C, H, W]``.
        gradients: ``[L, C, H, W]``.

    Returns:
        ``[L, H, W]``, nothing below 0.

    Raises:
        MissingExtraError: The library is not installed.

    Examples:
        >>> from manylabel.heads import LinearClassifier
        >>> maps = gradient_maps("grad_cam", LinearClassifier(8, 3), torch.rand(1, 8, 2, 2), torch.rand(3, 8, 2, 2))
        >>> maps.shape
        torch.Size([3, 2, 2])
    """
    library: Any = require("pytorch_grad_cam", extra="explain")
    arrays = activation.float().expand_as(gradients).cpu().numpy(), gradients.float().cpu().numpy()
    with getattr(library, _LIBRARY[method])(head, []) as cam:
        return _positive(cam.get_cam_image(None, None, None, *arrays, False))


def eigen_maps(head: nn.Module, activation: Tensor) -> Tensor:
    """Return EigenCAM, the first principal component of a map: what stands out at all, whatever the label.

    Args:
        head: The head, which tells the library a device.
        activation: ``[1, C, H, W]``.

    Returns:
        ``[1, H, W]``, nothing below 0.

    Raises:
        MissingExtraError: The library is not installed.

    Examples:
        >>> from manylabel.heads import LinearClassifier
        >>> eigen_maps(LinearClassifier(8, 3), torch.rand(1, 8, 2, 2)).shape
        torch.Size([1, 2, 2])
    """
    library: Any = require("pytorch_grad_cam", extra="explain")
    with library.EigenCAM(head, []) as cam:
        return _positive(cam.get_cam_image(None, None, None, activation.float().cpu().numpy(), None, False))


def _positive(maps: Any) -> Tensor:  # noqa: ANN401 (the library has no types)
    return torch.from_numpy(np.maximum(np.asarray(maps, dtype=np.float32), 0))
