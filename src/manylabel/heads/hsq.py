"""Hybrid Sharing Query: a query transformer, then a mixture of shared and per-label experts, weighted by gates.

Yin et al., "Hybrid Sharing for Multi-Label Image Classification", Eq. 1 and 2 and Algorithm 1, without its loops. Their
code is not public. Choices that the paper leaves open: the transformer is Query2Label's, without self-attention
between labels; sigma is ReLU; a label's gate has n_t + n_s outputs; the linear layers have biases; one classifier for
all labels.

Not stated in the paper: the labels' outputs never read the shared stream. Label i sees the shared experts through
its own input, ``X_ti E_s``, and the shared output ``O_s`` feeds nothing but the next layer's shared output. So a
model's logits do not depend on it, and its gate never gets a gradient; `shared_output=False` omits both.

The initialisation of the experts is not stated either. Here it is He et al.'s for a ReLU: with the usual one of linear
layers, the signal of a label's input shrinks so much in two layers of averaged experts that training takes several
times the epochs.

Letters in shape comments: B images, C channels, H and W positions of a map, L labels, E experts, D width (of a layer's
input), O width of the experts (a layer's output).
"""

import math
from collections.abc import Callable, Sequence
from functools import partial
from itertools import pairwise
from typing import ClassVar, Literal, cast

import torch
from torch import Tensor, nn

from manylabel.errors import ConfigError
from manylabel.heads.head import Features, Head, ProbeDefaults, check_choice, check_positive, final_map
from manylabel.heads.query2label import QueryTransformer


class HybridSharingQuery(Head):
    """Hybrid Sharing Query (HSQ) head: a query transformer, then shared and per-label experts.

    The paper's ResNet101 model is ``expert_widths=(1024, 512), gate_hidden=128, classifier_hidden=64``.

    Args:
        in_channels: Channels of the final map.
        num_labels: Labels.
        width: Width of tokens and queries, to which a convolution projects the map; default: `in_channels`.
        num_heads: Attention heads; must divide the width.
        feedforward: Hidden width of the transformer's feed-forward blocks; default: four times the width.
        dropout: Fraction of values dropped in training.
        num_encoder_layers: Encoder layers over the map's positions.
        num_decoder_layers: Decoder layers.
        layers: ``"hybrid"`` mixes experts; ``"linear"`` uses plain linear layers of the same widths instead,
            shared by all labels: the paper's ablation HSQ-Linear.
        expert_widths: Width of each layer, d_o in the paper.
        num_shared_experts: Experts shared by all labels, n_s; 0 disables sharing between labels.
        num_label_experts: Experts of each label, n_t.
        gate_hidden: Hidden width of the gates; None makes them linear.
        classifier_hidden: Hidden width of the classifier; None makes it linear.
        bias: Biases of experts and gates; the paper's equations have none, its "linear layers" do.

    Raises:
        ConfigError: A setting is invalid.

    Examples:
        >>> import torch
        >>> head = HybridSharingQuery(32, 20, num_shared_experts=4)
        >>> features = [torch.zeros(2, 32, 7, 7)]
        >>> head(features).shape, head.gates(features).shape, head.attention(features).shape
        (torch.Size([2, 20]), torch.Size([2, 20, 5]), torch.Size([2, 20, 7, 7]))
    """

    probe_defaults: ClassVar[ProbeDefaults] = ProbeDefaults({"width": 256, "feedforward": 512}, learning_rate=5e-4)

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
        channels = in_channels if width is None else width
        check_positive(in_channels=in_channels, width=channels)
        check_choice("layers", layers, ["hybrid", "linear"])
        if not expert_widths:
            raise ConfigError("expert_widths must have at least one width, got none; try (64, 16)")
        for expert_width in expert_widths:
            check_positive(expert_widths=expert_width)
        self.in_channels, self.num_labels, self.width = in_channels, num_labels, width
        self.num_heads, self.feedforward, self.dropout = num_heads, feedforward, dropout
        self.num_encoder_layers, self.num_decoder_layers = num_encoder_layers, num_decoder_layers
        self.layers, self.expert_widths, self.bias = layers, tuple(expert_widths), bias
        self.num_shared_experts, self.num_label_experts = num_shared_experts, num_label_experts
        self.gate_hidden, self.classifier_hidden = gate_hidden, classifier_hidden

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

    def forward(self, features: Features) -> Tensor:
        """Return logits ``[B, L]`` of a feature map ``[B, C, H, W]``, or of the last of several."""
        labels = self._label_inputs(features, len(self.sharing))  # [B, L, O]
        logits: Tensor = self.classify(labels).squeeze(2)
        return logits

    def gates(self, features: Features, *, layer: int = -1) -> Tensor:
        """Return the weight of each expert for each label, ``[B, L, n_t + n_s]``: its own first, then the shared.

        Args:
            features: As for `forward`.
            layer: Hybrid sharing layer, from the front or, negative, from the end.

        Raises:
            ConfigError: There is no such layer, or the head has no experts.
        """
        count = len(self.sharing)
        if not self.has_experts:
            raise ConfigError('layers="linear" has no experts and so no gates; use layers="hybrid"')
        if not -count <= layer < count:
            raise ConfigError(f"layer must be 0 to {count - 1}, or -{count} to -1, got {layer}")
        position = layer % count
        chosen = cast("HybridSharingLayer", self.sharing[position])
        return chosen.gates(self._label_inputs(features, position))

    @property
    def has_experts(self) -> bool:
        """True for mixed experts, false for the plain linear layers of the ablation."""
        return self.layers == "hybrid"

    def attention(self, features: Features) -> Tensor:
        """Return the last decoder layer's attention of each label: ``[B, L, H, W]``, each map summing to 1."""
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
            initialise_before_relu(plain, in_width)
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


class HybridSharingLayer(nn.Module):
    """One Hybrid Sharing Layer.

    Args:
        num_labels: Labels, L in the paper.
        in_width: Width of the input, d_i.
        out_width: Width of the output, d_o.
        num_shared_experts: Experts shared by all labels, n_s; 0 disables sharing.
        num_label_experts: Experts of each label, n_t.
        gate_hidden: Hidden width of the gates; None makes them linear.
        bias: Biases of experts and gates.
        shared_output: Also return the shared output O_s; no label's output depends on it.

    Raises:
        ConfigError: A setting is invalid.

    Examples:
        >>> layer = HybridSharingLayer(5, 16, 8, num_shared_experts=3, shared_output=True)
        >>> shared, labels = layer(torch.zeros(2, 5, 16), torch.zeros(2, 5, 16))
        >>> shared.shape, labels.shape
        (torch.Size([2, 5, 8]), torch.Size([2, 5, 8]))
    """

    def __init__(
        self,
        num_labels: int,
        in_width: int,
        out_width: int,
        *,
        num_shared_experts: int = 16,
        num_label_experts: int = 1,
        gate_hidden: int | None = None,
        bias: bool = True,
        shared_output: bool = False,
    ) -> None:
        super().__init__()
        check_positive(
            num_labels=num_labels, in_width=in_width, out_width=out_width, num_label_experts=num_label_experts
        )
        if num_shared_experts < 0:
            raise ConfigError(f"num_shared_experts must be 0 or more, got {num_shared_experts}")
        if gate_hidden is not None:
            check_positive(gate_hidden=gate_hidden)
        self.num_labels, self.in_width, self.out_width = num_labels, in_width, out_width
        self.num_shared_experts, self.num_label_experts = num_shared_experts, num_label_experts
        self.gate_hidden, self.bias, self.shared_output = gate_hidden, bias, shared_output

        self.label_experts = LabelLinear(num_labels, in_width, num_label_experts * out_width, bias=bias)
        initialise_before_relu(self.label_experts, in_width)
        self.shared_experts = None
        if num_shared_experts:
            self.shared_experts = nn.Linear(in_width, num_shared_experts * out_width, bias=bias)
            initialise_before_relu(self.shared_experts, in_width)
        self.label_gate = self._gate(partial(LabelLinear, num_labels), num_label_experts + num_shared_experts)
        num_experts = num_labels * num_label_experts + num_shared_experts
        self.shared_gate = self._gate(nn.Linear, num_experts) if shared_output else None

    def forward(self, shared: Tensor | None, labels: Tensor) -> tuple[Tensor | None, Tensor]:
        """Return ``(O_s, O_t)``, each ``[B, L, O]``, of ``(X_s, X_t)``, each ``[B, L, D]``.

        Args:
            shared: Input of the shared section; only read for a shared output.
            labels: Input of the labels' sections.
        """
        if self.shared_gate is None or shared is None:
            return None, self._mix_for_labels(labels)
        return self._mix_all(shared, self.shared_gate), self._mix_for_labels(labels)

    def gates(self, labels: Tensor) -> Tensor:
        """Return each label's weights of its own experts, then of the shared ones: ``[B, L, n_t + n_s]``."""
        weights: Tensor = self.label_gate(labels).softmax(2)
        return weights

    def _mix_for_labels(self, labels: Tensor) -> Tensor:
        """Eq. 1: a label mixes its own experts and the shared ones, all on its own input."""
        outputs = self.label_experts(labels)  # [B, L, n_t * O]
        if self.shared_experts is not None:
            outputs = torch.cat([outputs, self.shared_experts(labels)], dim=2)  # [B, L, (n_t + n_s) * O]
        return self._weigh(outputs, self.gates(labels))

    def _mix_all(self, shared: Tensor, gate: nn.Module) -> Tensor:
        """Eq. 2: the shared section mixes all experts, on the shared input."""
        experts = self.label_experts
        weight = experts.weight.transpose(0, 1).flatten(1)  # [D, L * n_t * O]
        outputs = shared @ weight if experts.bias is None else shared @ weight + experts.bias.flatten()
        if self.shared_experts is not None:
            outputs = torch.cat([outputs, self.shared_experts(shared)], dim=2)  # [B, L, E * O]
        return self._weigh(outputs, gate(shared).softmax(2))

    def _weigh(self, outputs: Tensor, weights: Tensor) -> Tensor:
        """Return the mean of the activated experts, weighted: ``[B, L, E * O]``, ``[B, L, E]`` -> ``[B, L, O]``."""
        activated = outputs.relu().reshape(*weights.shape, self.out_width)  # [B, L, E, O]
        return (weights.unsqueeze(2) @ activated).squeeze(2)

    def _gate(self, linear: Callable[..., nn.Module], num_experts: int) -> nn.Module:
        if self.gate_hidden is None:
            return linear(self.in_width, num_experts, bias=self.bias)
        first = linear(self.in_width, self.gate_hidden, bias=self.bias)
        return nn.Sequential(first, nn.ReLU(), linear(self.gate_hidden, num_experts, bias=self.bias))


class LabelLinear(nn.Module):
    """One linear layer per label, all in one product.

    Args:
        num_labels: Labels.
        in_width: Width of the input.
        out_width: Width of the output.
        bias: A bias for each.

    Examples:
        >>> LabelLinear(5, 8, 3)(torch.zeros(2, 5, 8)).shape
        torch.Size([2, 5, 3])
    """

    def __init__(self, num_labels: int, in_width: int, out_width: int, *, bias: bool = True) -> None:
        super().__init__()
        bound = 1 / math.sqrt(in_width)  # as in nn.Linear
        self.weight = nn.Parameter(torch.empty(num_labels, in_width, out_width).uniform_(-bound, bound))
        self.bias = nn.Parameter(torch.empty(num_labels, out_width).uniform_(-bound, bound)) if bias else None

    def extra_repr(self) -> str:
        """Return the settings."""
        num_labels, in_width, out_width = self.weight.shape
        return f"num_labels={num_labels}, in_width={in_width}, out_width={out_width}, bias={self.bias is not None}"

    def forward(self, labels: Tensor) -> Tensor:
        """Return ``[B, L, O]`` of ``[B, L, D]``."""
        product = torch.einsum("bld,ldo->blo", labels, self.weight)
        return product if self.bias is None else product + self.bias


def initialise_before_relu(layer: nn.Linear | LabelLinear, in_width: int) -> None:
    """Initialise a layer before a ReLU (He et al.): its output keeps the variance of its input.

    Args:
        layer: The layer.
        in_width: Width of its input.

    Examples:
        >>> layer = LabelLinear(4, 200, 50)
        >>> initialise_before_relu(layer, 200)
        >>> round(layer.weight.std().item(), 2)
        0.1
    """
    nn.init.normal_(layer.weight, std=math.sqrt(2 / in_width))
    if layer.bias is not None:
        nn.init.zeros_(layer.bias)


def _classifier(width: int, hidden: int | None) -> nn.Module:
    """Return the classifier shared by all labels."""
    if hidden is None:
        return nn.Linear(width, 1)
    check_positive(classifier_hidden=hidden)
    return nn.Sequential(nn.Linear(width, hidden), nn.ReLU(), nn.Linear(hidden, 1))
