"""Hybrid Sharing Query: a query transformer, then a mixture of shared and per-label experts.

Yin et al., "Hybrid Sharing for Multi-Label Image Classification". No code of theirs is public. Left open there and
decided here: the transformer is Query2Label's, without self-attention between labels; sigma is ReLU; a label's gate
has n_t + n_s outputs; the linear layers have biases; one classifier for all labels; how the experts start. The layers'
shared outputs are not computed, as no logit depends on them (for both see `hybrid_sharing_layer`).

Letters in shape comments: B pictures, C channels, H and W places of a map, L labels, D width, O width of the experts.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Literal, cast

from torch import Tensor, nn

from manylabel.errors import ConfigError
from manylabel.heads.checks import Features, check_choice, check_positive, final_map
from manylabel.heads.hybrid_sharing_layer import HybridSharingLayer, start_before_relu
from manylabel.heads.query_transformer import QueryTransformer

__all__ = ["HybridSharingHead"]


class HybridSharingHead(nn.Module):
    """The HSQ head.

    The paper's ResNet101 model is ``expert_widths=(1024, 512), gate_hidden=128, classifier_hidden=64``.

    Args:
        in_channels: Channels of the final map.
        num_labels: Labels.
        width: Width of tokens and queries, to which a convolution projects the map; `in_channels` when left out.
        num_heads: Attention heads; must divide the width.
        feedforward: Hidden width of the transformer's feed-forward blocks; four times the width when left out.
        dropout: Share of values dropped in training.
        num_encoder_layers: Encoder layers over the map's places.
        num_decoder_layers: Decoder layers.
        layers: ``"hybrid"`` mixes experts; ``"linear"`` puts plain linear layers of the same widths in their place,
            the same for all labels: the paper's ablation HSQ-Linear.
        expert_widths: Width of each layer, d_o in the paper.
        num_shared_experts: Experts shared by all labels, n_s; 0 cuts all sharing between labels.
        num_label_experts: Experts of each label, n_t.
        gate_hidden: Hidden width of the gates; None makes them linear.
        classifier_hidden: Hidden width of the classifier; None makes it linear.
        bias: Whether experts and gates have biases; the paper's equations write none, its "linear layers" have one.

    Raises:
        ConfigError: A setting is wrong; the message says which and what to do.

    Examples:
        >>> import torch
        >>> head = HybridSharingHead(32, 20, num_shared_experts=4)
        >>> features = [torch.zeros(2, 32, 7, 7)]
        >>> head(features).shape, head.gates(features).shape, head.attention(features).shape
        (torch.Size([2, 20]), torch.Size([2, 20, 5]), torch.Size([2, 20, 7, 7]))
    """

    def __init__(
        self,
        in_channels: int,
        num_labels: int,
        *,
        width: int | None = None,
        num_heads: int = 4,
        feedforward: int | None = None,
        dropout: float = 0.1,
        num_encoder_layers: int = 1,
        num_decoder_layers: int = 2,
        layers: Literal["hybrid", "linear"] = "hybrid",
        expert_widths: Sequence[int] = (64, 16),
        num_shared_experts: int = 16,
        num_label_experts: int = 1,
        gate_hidden: int | None = None,
        classifier_hidden: int | None = None,
        bias: bool = True,
    ) -> None:
        super().__init__()
        check_positive("in_channels", in_channels)
        check_choice("layers", layers, ["hybrid", "linear"])
        if not expert_widths:
            raise ConfigError("expert_widths must name at least one layer's width, got none; try (64, 16)")
        for expert_width in expert_widths:
            check_positive("expert_widths", expert_width)
        self.stages: tuple[int, ...] = (-1,)
        self.in_channels, self.num_labels, self.width = in_channels, num_labels, width
        self.num_heads, self.feedforward, self.dropout = num_heads, feedforward, dropout
        self.num_encoder_layers, self.num_decoder_layers = num_encoder_layers, num_decoder_layers
        self.layers, self.expert_widths, self.bias = layers, tuple(expert_widths), bias
        self.num_shared_experts, self.num_label_experts = num_shared_experts, num_label_experts
        self.gate_hidden, self.classifier_hidden = gate_hidden, classifier_hidden

        channels = in_channels if width is None else width
        check_positive("width", channels)
        self.project = nn.Conv2d(in_channels, channels, 1)
        self.transformer = QueryTransformer(
            num_labels,
            channels,
            num_heads=num_heads,
            feedforward=4 * channels if feedforward is None else feedforward,
            dropout=dropout,
            num_encoder_layers=num_encoder_layers,
            num_decoder_layers=num_decoder_layers,
        )
        widths = [channels, *self.expert_widths]
        self.sharing = nn.ModuleList(self._layer(*pair) for pair in pairwise(widths))
        self.classify = _classifier(widths[-1], classifier_hidden)

    def extra_repr(self) -> str:
        """Tell the settings."""
        names = ["in_channels", "num_labels", "width", "num_heads", "feedforward", "dropout", "num_encoder_layers"]
        names += ["num_decoder_layers", "layers", "expert_widths", "num_shared_experts", "num_label_experts"]
        names += ["gate_hidden", "classifier_hidden", "bias"]
        return ", ".join(f"{name}={getattr(self, name)!r}" for name in names)

    def forward(self, features: Features) -> Tensor:
        """Return logits ``[B, L]`` of a feature map ``[B, C, H, W]``, or of the last of several."""
        labels = self._label_inputs(features, len(self.sharing))  # [B, L, O]
        logits: Tensor = self.classify(labels).squeeze(2)
        return logits

    def gates(self, features: Features, *, layer: int = -1) -> Tensor:
        """Return how much each label listens to each expert, ``[B, L, n_t + n_s]``: its own first, then the shared.

        Args:
            features: As for `forward`.
            layer: Which hybrid sharing layer, from the front or, negative, from the end.

        Raises:
            ConfigError: There is no such layer, or the head has no experts.
        """
        count = len(self.sharing)
        if self.layers == "linear":
            raise ConfigError('layers="linear" has no experts and so no gates; use layers="hybrid"')
        if not -count <= layer < count:
            raise ConfigError(f"layer must be 0 to {count - 1}, or -{count} to -1, got {layer}")
        position = layer % count
        chosen = cast("HybridSharingLayer", self.sharing[position])
        return chosen.gates(self._label_inputs(features, position))

    def attention(self, features: Features) -> Tensor:
        """Return where the last decoder layer looks for each label: ``[B, L, H, W]``, each map summing to 1."""
        return self.transformer.attention(self.project(final_map(features, self.in_channels)))

    def _label_inputs(self, features: Features, num_layers: int) -> Tensor:
        """Return one vector per label, after some of the sharing layers."""
        labels: Tensor = self.transformer(self.project(final_map(features, self.in_channels)))  # [B, L, D]
        for layer in self.sharing[:num_layers]:
            labels = layer(None, labels)[1] if isinstance(layer, HybridSharingLayer) else layer(labels)
        return labels

    def _layer(self, in_width: int, out_width: int) -> nn.Module:
        if self.layers == "linear":
            plain = nn.Linear(in_width, out_width, bias=self.bias)
            start_before_relu(plain, in_width)
            return nn.Sequential(plain, nn.ReLU())
        return HybridSharingLayer(
            self.num_labels,
            in_width,
            out_width,
            num_shared_experts=self.num_shared_experts,
            num_label_experts=self.num_label_experts,
            gate_hidden=self.gate_hidden,
            bias=self.bias,
        )


def _classifier(width: int, hidden: int | None) -> nn.Module:
    """Return the classifier that all labels share."""
    if hidden is None:
        return nn.Linear(width, 1)
    check_positive("classifier_hidden", hidden)
    return nn.Sequential(nn.Linear(width, hidden), nn.ReLU(), nn.Linear(hidden, 1))
