"""Tables 1 and 2 of the ML-Decoder paper: MACs of TResNet-M with each head; and the parameters of the released head.

Table 1 is at 448 pixels with 80 labels (a map of 14 x 14 positions), Table 2 at 224 pixels with 9600 labels (7 x 7).
"""

from functools import cache

import timm
import torch
from benchmarks.paper_costs.row import TableRow

from manylabel.cost import count_macs, count_parameters
from manylabel.heads import MLDecoder

_NOT_FROM_TEXT = "does not follow from the text: {}"


def ml_decoder_rows() -> list[TableRow]:
    """Count what Tables 1 and 2 print, and the parameters that the released head trains.

    Returns:
        A row per printed number.

    Examples:
        >>> rows = ml_decoder_rows()
        >>> [row.row for row in rows if not row.agrees]
        ['transformer decoder, 9600 queries', 'ML-Decoder + self-attention, K=400']
    """
    return _table_1() + _table_2() + _released_head()


def _table_1() -> list[TableRow]:
    body = _backbone(448)
    return [
        _row("Table 1", "GAP", 23.0, body + 80 * 2048),
        _row("Table 1", "transformer decoder, 80 queries", 24.1, body + _head(80, None, 14, self_attention=True)),
        _row("Table 1", "ML-Decoder, K=20", 23.6, body + _head(80, 20, 14)),
        _row("Table 1", "ML-Decoder, K=80", 23.9, body + _head(80, None, 14)),
    ]


def _table_2() -> list[TableRow]:
    body = _backbone(224)
    attention_note = "self-attention over 400 queries adds 1.2 GMACs, not 4.8"
    decoder_note = "self-attention over 9600 queries alone is 164.2 GMACs, the rest of the head 42.4"
    return [
        _row("Table 2", "GAP", 5.8, body + 9600 * 2048),
        _row(
            "Table 2",
            "transformer decoder, 9600 queries",
            178.6,
            body + _head(9600, None, 7, self_attention=True),
            _NOT_FROM_TEXT.format(decoder_note),
        ),
        _row(
            "Table 2",
            "ML-Decoder + self-attention, K=400",
            12.4,
            body + _head(9600, 400, 7, self_attention=True),
            _NOT_FROM_TEXT.format(attention_note),
        ),
        _row("Table 2", "ML-Decoder, K=100", 6.3, body + _head(9600, 100, 7)),
        _row("Table 2", "ML-Decoder, K=200", 6.7, body + _head(9600, 200, 7)),
        _row("Table 2", "ML-Decoder, K=400", 7.6, body + _head(9600, 400, 7)),
    ]


def _released_head() -> list[TableRow]:
    """Count the trainable parameters of heads on 2048 channels, as the authors' code gives them."""
    sizes = [(80, 20, 7.1507), (80, 80, 7.1507), (1000, 100, 7.858), (9605, 200, 14.625)]
    with torch.device("meta"):
        heads = [MLDecoder(2048, num_labels, num_groups=num_groups) for num_labels, num_groups, _ in sizes]
    return [
        TableRow(
            "code", f"head, N={labels}, K={groups}", "M parameters", paper=paper, ours=count_parameters(head) / 1e6
        )
        for (labels, groups, paper), head in zip(sizes, heads, strict=True)
    ]


def _row(table: str, row: str, paper: float, macs: int, note: str = "") -> TableRow:
    return TableRow(table, row, "GMACs", paper=paper, ours=macs / 1e9, note=note)


@cache
def _backbone(pixels: int) -> int:
    """Return the MACs of TResNet-M without a head, on one square image."""
    with torch.device("meta"):
        model = timm.create_model("tresnet_m", num_classes=0).eval()
    return count_macs(model, torch.empty(1, 3, pixels, pixels, device="meta"))


def _head(num_labels: int, num_groups: int | None, side: int, *, self_attention: bool = False) -> int:
    """Return the MACs of a head on TResNet-M's map of `side` x `side` positions, 2048 channels."""
    with torch.device("meta"):
        head = MLDecoder(2048, num_labels, num_groups=num_groups, self_attention=self_attention).eval()
    return count_macs(head, [torch.empty(1, 2048, side, side, device="meta")])
