"""The Hybrid Sharing Layer: experts of each label and experts shared by all, mixed by gates.

Yin et al., "Hybrid Sharing for Multi-Label Image Classification", Eq. 1 and 2 and Algorithm 1, without its loops.

What the paper does not say: the labels' outputs never read the shared stream. Label i sees the shared experts through
its own input, ``X_ti E_s``, and the shared output ``O_s`` feeds nothing but the next layer's shared output. So a
model's logits do not depend on it, and its gate never gets a gradient; `shared_output=False` leaves both out.

Nor does it say how the experts start. They start as He et al. do before a ReLU: as linear layers usually start, what
a label's input tells shrinks so much in two layers of averaged experts that learning takes several times the epochs.

Letters in shape comments: B pictures, L labels, E experts, D width of the input, O width of the output.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from manylabel.errors import ConfigError
from manylabel.heads.checks import check_positive

__all__ = ["HybridSharingLayer", "LabelLinear", "start_before_relu"]


class LabelLinear(nn.Module):
    """One linear layer per label, all in one product.

    Args:
        num_labels: Labels.
        in_width: Width of the input.
        out_width: Width of the output.
        bias: Whether each has a bias.

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
        """Tell the settings."""
        num_labels, in_width, out_width = self.weight.shape
        return f"num_labels={num_labels}, in_width={in_width}, out_width={out_width}, bias={self.bias is not None}"

    def forward(self, labels: Tensor) -> Tensor:
        """Return ``[B, L, O]`` of ``[B, L, D]``."""
        product = torch.einsum("bld,ldo->blo", labels, self.weight)
        return product if self.bias is None else product + self.bias


def start_before_relu(layer: nn.Linear | LabelLinear, in_width: int) -> None:
    """Draw the weights of a layer that a ReLU follows so that what it tells neither shrinks nor grows.

    Args:
        layer: The layer.
        in_width: Width of its input.

    Examples:
        >>> layer = LabelLinear(4, 200, 50)
        >>> start_before_relu(layer, 200)
        >>> round(layer.weight.std().item(), 2)
        0.1
    """
    nn.init.normal_(layer.weight, std=math.sqrt(2 / in_width))
    if layer.bias is not None:
        nn.init.zeros_(layer.bias)


class HybridSharingLayer(nn.Module):
    """One Hybrid Sharing Layer.

    Args:
        num_labels: Labels, L in the paper.
        in_width: Width of the input, d_i.
        out_width: Width of the output, d_o.
        num_shared_experts: Experts shared by all labels, n_s; 0 cuts all sharing.
        num_label_experts: Experts of each label, n_t.
        gate_hidden: Hidden width of the gates; None makes them linear.
        bias: Whether experts and gates have biases.
        shared_output: Whether to give the shared output O_s, too; no label's output ever depends on it.

    Raises:
        ConfigError: A setting is wrong; the message says which and what to do.

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
        sizes = {"num_labels": num_labels, "in_width": in_width, "out_width": out_width}
        for name, value in {**sizes, "num_label_experts": num_label_experts}.items():
            check_positive(name, value)
        if num_shared_experts < 0:
            raise ConfigError(f"num_shared_experts must be 0 or more, got {num_shared_experts}")
        if gate_hidden is not None:
            check_positive("gate_hidden", gate_hidden)
        self.num_labels, self.in_width, self.out_width = num_labels, in_width, out_width
        self.num_shared_experts, self.num_label_experts = num_shared_experts, num_label_experts
        self.gate_hidden, self.bias, self.shared_output = gate_hidden, bias, shared_output

        self.label_experts = LabelLinear(num_labels, in_width, num_label_experts * out_width, bias=bias)
        self.shared_experts = (
            nn.Linear(in_width, num_shared_experts * out_width, bias=bias) if num_shared_experts else None
        )
        start_before_relu(self.label_experts, in_width)
        if self.shared_experts is not None:
            start_before_relu(self.shared_experts, in_width)
        self.label_gate = self._label_gate(num_label_experts + num_shared_experts)
        self.shared_gate = (
            self._shared_gate(num_labels * num_label_experts + num_shared_experts) if shared_output else None
        )

    def extra_repr(self) -> str:
        """Tell the settings."""
        names = ["num_labels", "in_width", "out_width", "num_shared_experts", "num_label_experts"]
        names += ["gate_hidden", "bias", "shared_output"]
        return ", ".join(f"{name}={getattr(self, name)!r}" for name in names)

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

    def _label_gate(self, num_experts: int) -> nn.Module:
        first = num_experts if self.gate_hidden is None else self.gate_hidden
        gate = LabelLinear(self.num_labels, self.in_width, first, bias=self.bias)
        if self.gate_hidden is None:
            return gate
        return nn.Sequential(gate, nn.ReLU(), LabelLinear(self.num_labels, first, num_experts, bias=self.bias))

    def _shared_gate(self, num_experts: int) -> nn.Module:
        first = num_experts if self.gate_hidden is None else self.gate_hidden
        gate = nn.Linear(self.in_width, first, bias=self.bias)
        if self.gate_hidden is None:
            return gate
        return nn.Sequential(gate, nn.ReLU(), nn.Linear(first, num_experts, bias=self.bias))
