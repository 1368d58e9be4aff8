"""Class-specific residual attention (CSRA): the average score of a label plus its score at the best positions.

Zhu and Wu, "Residual Attention: A Simple but Effective Method for Multi-Label Recognition",
https://arxiv.org/abs/2108.02456. With the scores ``s_j = m . x_j`` of a label at each position ``x_j`` of the map, its
logit is ``mean_j s_j + weight * sum_j softmax_j(T * s)_j * s_j``, summed over heads of different temperatures T.
Deviation: the authors' code divides each ``m`` by its length; here, as in the equations, it stays as it is.

Letters in shape comments: B images, C channels, H and W positions of a map, P = H * W, L labels, h heads.
"""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from manylabel.errors import ConfigError
from manylabel.heads.head import Features, Head, check_positive, final_map


class CSRA(Head):
    """Class-specific residual attention (CSRA) head: as cheap as a linear one, with an attention map per label.

    Args:
        in_channels: Channels of the final map.
        num_labels: Labels.
        temperatures: One per head; each head has its own classifier. None stands for an infinite temperature,
            the maximum. The paper uses (1,), (1, None), (1, 2, 4, None), (1, 2, 3, 4, 5, None) and
            (1, 2, 3, 4, 5, 6, 7, None).
        attention_weight: Weight of the attended score relative to the average, lambda in the paper.

    Raises:
        ConfigError: A setting is invalid.

    Examples:
        >>> head = CSRA(512, 80, temperatures=(1, None))
        >>> features = [torch.zeros(2, 512, 7, 7)]
        >>> head(features).shape, head.attention(features).shape
        (torch.Size([2, 80]), torch.Size([2, 80, 7, 7]))
    """

    def __init__(
        self,
        in_channels: int,
        num_labels: int,
        *,
        temperatures: Sequence[float | None] = (1.0,),
        attention_weight: float = 0.1,
    ) -> None:
        super().__init__()
        check_positive(in_channels=in_channels, num_labels=num_labels)
        if not temperatures or any(value is not None and value <= 0 for value in temperatures):
            raise ConfigError(f"temperatures must be above 0, or None for the maximum, got {list(temperatures)}")
        if attention_weight < 0:
            raise ConfigError(f"attention_weight must be 0 or more, got {attention_weight}")
        self.in_channels, self.num_labels = in_channels, num_labels
        self.temperatures, self.attention_weight = tuple(temperatures), attention_weight

        finite = [value for value in self.temperatures if value is not None]
        self.num_finite = len(finite)
        self.scale: Tensor
        self.register_buffer("scale", torch.tensor(finite).reshape(1, -1, 1, 1), persistent=False)  # [1, h, 1, 1]
        self.classify = nn.Conv2d(in_channels, len(self.temperatures) * num_labels, 1, bias=False)

    def forward(self, features: Features) -> Tensor:
        """Return logits ``[B, L]`` of a feature map ``[B, C, H, W]``, or of the last of several."""
        soft, hard = self._scores(final_map(features, self.in_channels))
        attended = (soft * self._weights(soft)).sum(3).sum(1) + hard.amax(3).sum(1)  # [B, L]
        average = soft.mean(3).sum(1) + hard.mean(3).sum(1)
        return average + self.attention_weight * attended

    def attention(self, features: Features) -> Tensor:
        """Return the attention of each label: ``[B, L, H, W]``, each map summing to 1, the mean over the heads."""
        feature = final_map(features, self.in_channels)
        soft, hard = self._scores(feature)
        best = (hard == hard.amax(3, keepdim=True)).to(soft)
        maps = torch.cat([self._weights(soft), best / best.sum(3, keepdim=True)], dim=1).mean(1)  # [B, L, P]
        return maps.reshape(*maps.shape[:2], *feature.shape[2:])

    def label_weights(self) -> Tensor:
        """Return the weight of each channel for each label, ``[L, C]``: the mean over the heads."""
        return self.classify.weight.detach().reshape(-1, self.num_labels, self.in_channels).mean(0)

    def _scores(self, feature: Tensor) -> tuple[Tensor, Tensor]:
        """Return the scores ``[B, h, L, P]`` of the heads with a finite temperature and of those without."""
        scores: Tensor = self.classify(feature)  # [B, h * L, H, W]
        scores = scores.reshape(scores.shape[0], len(self.temperatures), self.num_labels, -1)
        return scores[:, : self.num_finite], scores[:, self.num_finite :]

    def _weights(self, soft: Tensor) -> Tensor:
        return (soft * self.scale.to(soft)).softmax(3)
