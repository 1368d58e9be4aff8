"""Typed labels: a trained head for the labels that it knows, and the pretrained model's own classes for all others.

A typed label is a mixture of classes and trained labels (`manylabel.classifier.class_match`). Its score comes from the
class probabilities of the pooled map and of the part of it where the mixture is most probable, and from the scores of
trained labels; as in ConSE (Norouzi et al., ICLR 2014), no training is involved.

Letters in shape comments: B images, C channels, H and W positions of a map, L labels, M typed labels, T trained labels,
K classes.
"""

import copy
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from manylabel.backbone import PretrainedClasses, Top
from manylabel.errors import ConfigError
from manylabel.heads.head import Features, Head, attention_of, label_weights

# Calibration of the mean log probability, fitted on 80 COCO labels; docs/results.md has its error.
SCALE, BIAS = 1.009, 2.879
TRAINED_WEIGHT = 0.3  # of trained labels in a mixture, relative to classes: helps groups such as "furniture" most
SMALLEST = 1e-9  # probability
PARTS = 3  # windows of the map per side: as good as all its positions, and classified in a ninth of the time


class TypedLabels(Head):
    """Head for typed labels: known ones from a trained head, others from the classes of the pretrained model.

    If training has changed the backbone's last layers, their features no longer fit the pretrained classifier. Then
    `top` holds the original layers, which run on an earlier map that both have in common.

    Args:
        head: Trained head.
        classes: Classes of the pretrained model (default: none, for labels of the trained head only).
        weights: ``[M, K + T]``, the typed labels as mixtures of classes and trained labels.
        calibration: ``[2, T]``, scale and shift of the trained logits (default: none).
        order: Column of each label in the trained head's logits followed by those of the typed labels.
        head_maps: Positions of the trained head's maps in the input.
        top: Original layers above the map that comes first in the input (default: the final map fits).
        stages: Stages of the backbone that it reads.

    Examples:
        >>> import timm
        >>> from manylabel.heads import LinearClassifier
        >>> classes = PretrainedClasses(timm.create_model("resnet10t"), layout="NCHW")
        >>> typed = torch.rand(3, 1002).softmax(1)
        >>> head = TypedLabels(LinearClassifier(512, 2), classes, weights=typed, order=[2, 0, 3, 4])
        >>> head(torch.rand(5, 512, 7, 7)).shape
        torch.Size([5, 4])
    """

    weights: Tensor
    calibration: Tensor
    order: Tensor

    def __init__(
        self,
        head: nn.Module,
        classes: PretrainedClasses | None = None,
        *,
        weights: Tensor | None = None,
        calibration: Tensor | None = None,
        order: Sequence[int],
        head_maps: Sequence[int] = (-1,),
        top: Top | None = None,
        stages: tuple[int, ...] = (-1,),
    ) -> None:
        super().__init__()
        self.head, self.classes, self.top = head, classes, top
        self.head_maps, self.stages, self.num_labels = tuple(head_maps), stages, len(order)
        self.register_buffer("weights", torch.zeros(0, 0) if weights is None else weights)
        self.register_buffer("calibration", torch.tensor([[1.0], [0.0]]) if calibration is None else calibration)
        self.register_buffer("order", torch.tensor(order))

    def forward(self, features: Features) -> Tensor:
        """Return logits ``[B, L]``; those of typed labels are calibrated."""
        trained = self._trained(features)
        if self.classes is None:
            return trained[:, self.order]
        pooled, local = self._classify(features, self.classes, parts=PARTS)
        scores = (trained * self.calibration[0] + self.calibration[1]).sigmoid()
        evidence = TRAINED_WEIGHT * scores @ self.weights[:, pooled.shape[1] :].t()  # [B, M]
        of_classes = self.weights[:, : pooled.shape[1]].t()
        both = torch.stack([pooled @ of_classes, self._at_positions(local).amax(1)]) + evidence  # [2, B, M]
        typed = SCALE * both.clamp(min=SMALLEST).log().mean(0) + BIAS
        return torch.cat([trained, typed], dim=1)[:, self.order]

    def attention(self, features: Features) -> Tensor:
        """Return the evidence for each label at each position, ``[B, L, H, W]``.

        Raises:
            ConfigError: The trained head has no maps of its labels.
        """
        own = self._own_maps(features)
        if self.classes is None:
            return own[:, self.order]
        _, local = self._classify(features, self.classes)
        typed = self._at_positions(local).transpose(1, 2).reshape(len(local), -1, *local.shape[2:])  # [B, M, H, W]
        if own.shape[2:] != typed.shape[2:]:
            typed = nn.functional.interpolate(typed, own.shape[2:], mode="bilinear")
        return torch.cat([own, typed], dim=1)[:, self.order]

    def fold(self) -> "TypedLabels":
        """Return a frozen copy for inference."""
        other = copy.deepcopy(self)
        fold = getattr(self.head, "fold", None)
        other.head = fold() if callable(fold) else other.head
        return other.requires_grad_(False).eval()

    def _maps(self, features: Features) -> list[Tensor]:
        return [features] if isinstance(features, Tensor) else list(features)

    def _trained(self, features: Features) -> Tensor:
        maps = self._maps(features)
        logits: Tensor = self.head([maps[position] for position in self.head_maps])
        return logits

    def _classify(
        self, features: Features, classes: PretrainedClasses, *, parts: int | None = None
    ) -> tuple[Tensor, Tensor]:
        """Return class probabilities of the pooled map ``[B, K]``, and of each position or part, ``[B, K, H, W]``."""
        maps = self._maps(features)
        final = maps[-1] if self.top is None else self.top(maps[:1])[-1]
        pooled, local = classes(final, parts=parts)
        return pooled.softmax(1), local.softmax(1)

    def _at_positions(self, local: Tensor) -> Tensor:
        """Return the probability of each typed label at each position, ``[B, H * W, M]``."""
        return local.flatten(2).transpose(1, 2) @ self.weights[:, : local.shape[1]].t()

    def _own_maps(self, features: Features) -> Tensor:
        """Return the maps of the trained labels ``[B, trained labels, H, W]``: attention, else CAM."""
        maps = self._maps(features)
        given = [maps[position] for position in self.head_maps]
        attention, weights = attention_of(self.head), label_weights(self.head)
        if attention is not None:
            return attention(given)
        if weights is None:
            raise ConfigError(
                f"{type(self.head).__name__} has no maps of its labels; use the method grad_cam, or the model itself"
            )
        return torch.einsum("lc,bchw->blhw", weights, given[-1]).clamp(min=0)
