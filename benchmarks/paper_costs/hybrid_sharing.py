"""Table A.2 of the HSQ paper: MACs and parameters of ResNet10-T with Query2Label and with HSQ, at 576 pixels.

The printed numbers come out with a width of 512, although the text says 2048, and with a counter that looks at layers
only: it leaves out the weights and the work of attention and the queries, and counts four operations per element of a
norm. Both ways of counting are given. The published algorithm is counted in full, with the shared outputs that no
logit depends on; our head does not compute those.
"""

from collections.abc import Sequence
from typing import Any

import timm
import torch
from benchmarks.paper_costs.row import TableRow
from torch import Tensor, nn
from torch.utils._pytree import tree_map_only

from manylabel.cost import count_macs, count_parameters
from manylabel.heads import HybridSharingQuery, Query2Label
from manylabel.heads.attention import MultiHeadAttention
from manylabel.heads.hsq import HybridSharingLayer

_PIXELS, _SIDE, _WIDTH, _LABELS = 576, 18, 512, 80
_EVERYTHING, _LAYERS_ONLY = "everything counted", "layers only, as the paper's counter"
_LEFT_OUT = "the paper's counter leaves out attention and queries"


def hybrid_sharing_rows() -> list[TableRow]:
    """Count what Table A.2 prints, in two ways.

    Returns:
        Two rows per printed number.

    Examples:
        >>> rows = hybrid_sharing_rows()
        >>> [f"{row.ours:.2f}" for row in rows if row.row.startswith("HSQ (n_s=16)") and row.agrees]
        ['8.73', '15.58']
    """
    with torch.device("meta"):
        query2label, few, many = _Query2Label(), _AlgorithmOne(1), _AlgorithmOne(16)
        layers = [_sharing_layers(num_shared_experts) for num_shared_experts in (1, 16)]
    growth = (count_parameters(layers[1]) - count_parameters(layers[0])) / 1e6
    exception = "the paper seems to count attention in this row only"
    return [
        *_rows("Q2L-R10T", query2label, (8.4, 14.8), notes=("", exception), honest_notes=(_LEFT_OUT, "")),
        *_rows("HSQ (n_s=1)", few, (8.6, 14.3), notes=("", ""), honest_notes=(_LEFT_OUT, _LEFT_OUT)),
        *_rows("HSQ (n_s=16)", many, (8.7, 15.5), notes=("", ""), honest_notes=(_LEFT_OUT, _LEFT_OUT)),
        TableRow("text", "n_s = 1 -> 16, no biases", "M parameters", paper=(2175 * _WIDTH + 93_120) / 1e6, ours=growth),
    ]


def _sharing_layers(num_shared_experts: int) -> nn.Sequential:
    """Return the sharing layers of Algorithm 1 without biases, as the text counts what an expert adds."""
    return nn.Sequential(
        *(
            HybridSharingLayer(_LABELS, *widths, num_shared_experts=num_shared_experts, shared_output=True, bias=False)
            for widths in ((_WIDTH, 64), (64, 16))
        )
    )


class _Query2Label(nn.Module):
    """Query2Label behind a convolution that keeps the width."""

    def __init__(self) -> None:
        super().__init__()
        self.project = nn.Conv2d(_WIDTH, _WIDTH, 1)
        self.head = Query2Label(_WIDTH, _LABELS)
        self.eval()

    def forward(self, features: Sequence[Tensor]) -> Tensor:
        logits: Tensor = self.head([self.project(features[-1])])
        return logits


class _AlgorithmOne(nn.Module):
    """HSQ as published, shared outputs included."""

    def __init__(self, num_shared_experts: int) -> None:
        super().__init__()
        self.head = HybridSharingQuery(_WIDTH, _LABELS, num_shared_experts=num_shared_experts)
        self.head.sharing = nn.ModuleList(
            HybridSharingLayer(_LABELS, *widths, num_shared_experts=num_shared_experts, shared_output=True)
            for widths in ((_WIDTH, 64), (64, 16))
        )
        self.eval()

    def forward(self, features: Sequence[Tensor]) -> Tensor:
        labels: Tensor = self.head.transformer(self.head.project(features[-1]))
        shared = labels
        for layer in self.head.sharing:
            shared, labels = layer(shared, labels)
        logits: Tensor = self.head.classify(labels)
        return logits


def _rows(
    name: str, head: nn.Module, paper: tuple[float, float], *, notes: tuple[str, str], honest_notes: tuple[str, str]
) -> list[TableRow]:
    """Return GMACs and millions of parameters, first as the paper's counter counts, then honestly."""
    with torch.device("meta"):
        body = timm.create_model("resnet10t", num_classes=0).eval()
    images, features = torch.empty(1, 3, _PIXELS, _PIXELS), [torch.empty(1, _WIDTH, _SIDE, _SIDE)]
    macs = count_macs(body, images) + count_macs(head, features)
    parameters = count_parameters(body) + count_parameters(head)
    hidden_macs, hidden_parameters = _hidden_from_counter(head, features)
    norms = _norm_elements(body, images) + _norm_elements(head, features)
    counted = ((macs - hidden_macs + 4 * norms) / 1e9, (parameters - hidden_parameters) / 1e6)
    honest = (macs / 1e9, parameters / 1e6)
    return [
        TableRow("Table A.2", f"{name}, {way}", quantity, paper=printed, ours=ours, note=note)
        for way, numbers, comments in ((_LAYERS_ONLY, counted, notes), (_EVERYTHING, honest, honest_notes))
        for quantity, printed, ours, note in zip(("GMACs", "M parameters"), paper, numbers, comments, strict=True)
    ]


def _hidden_from_counter(head: nn.Module, features: list[Tensor]) -> tuple[int, int]:
    """Return MACs and parameters of all attention, and the parameters of the queries."""
    calls = _calls(head, features, MultiHeadAttention)
    macs = sum(count_macs(attention, *inputs) for attention, inputs, _ in calls)
    return macs, sum(count_parameters(attention) for attention, _, _ in calls) + _LABELS * _WIDTH


def _norm_elements(model: nn.Module, inputs: object) -> int:
    return sum(output.numel() for _, _, output in _calls(model, inputs, nn.BatchNorm2d, nn.LayerNorm))


def _calls(
    model: nn.Module, inputs: object, *kinds: type[nn.Module]
) -> list[tuple[nn.Module, tuple[Any, ...], Tensor]]:
    """Run a model on torch's meta device and return which modules of some kinds were called with what."""
    calls: list[tuple[nn.Module, tuple[Any, ...], Tensor]] = []
    watched = [module for module in model.modules() if isinstance(module, kinds)]
    handles = [module.register_forward_hook(lambda *call: calls.append(call)) for module in watched]
    model(tree_map_only(Tensor, lambda tensor: tensor.to("meta"), inputs))
    for handle in handles:
        handle.remove()
    return calls
