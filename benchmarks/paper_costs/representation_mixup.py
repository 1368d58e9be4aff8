"""The parameters column of Table 1 of the representation mixup paper: what is trained on top of a frozen backbone.

The paper prints 5 (millions) for the ResNets, and for the Swin Transformers only that it is below 0.5.
"""

import torch
from benchmarks.paper_costs.row import TableRow
from torch import nn

from manylabel.cost import count_parameters
from manylabel.heads import RepresentationMixup


def representation_mixup_rows() -> list[TableRow]:
    """Count the trained parameters of Table 1, with 80 labels and a hint from the first block group.

    Returns:
        A row per backbone.

    Examples:
        >>> [f"{row.ours:.4f}" for row in representation_mixup_rows()]
        ['0.1245', '0.0830', '5.2225', '5.2225']
    """
    with torch.device("meta"):
        swin_large = RepresentationMixup((192, 1536), 80, summary="tokens")
        swin_base = RepresentationMixup((128, 1024), 80, summary="tokens")
        resnet = RepresentationMixup((768, 6144), 80)
    bounds = (("Swin-L, RM", swin_large), ("Swin-B, RM", swin_base))
    printed = (("ResNet101x3, RM", resnet), ("ResNet50x3, RM", resnet))
    return [
        *(
            _row(name, 0.5, head, note="the paper prints << 1, that is below 0.5", is_bound=True)
            for name, head in bounds
        ),
        *(_row(name, 5.0, head, note="the paper rounds to whole millions", is_bound=False) for name, head in printed),
    ]


def _row(name: str, paper: float, head: nn.Module, *, note: str, is_bound: bool) -> TableRow:
    ours = count_parameters(head) / 1e6
    # 5 stands for 4.5 to 5.5
    return TableRow("Table 1", name, "M parameters", paper, ours, note=note, rounding=0.1, is_bound=is_bound)
