"""The papers whose tables we count again."""

from collections.abc import Callable

from manylabel.cost.tables.hybrid_sharing import hybrid_sharing_rows
from manylabel.cost.tables.ml_decoder import ml_decoder_rows
from manylabel.cost.tables.representation_mixup import representation_mixup_rows
from manylabel.cost.tables.row import TableRow

__all__ = ["PAPERS"]

PAPERS: dict[str, Callable[[], list[TableRow]]] = {
    "ml-decoder": ml_decoder_rows,
    "hybrid-sharing": hybrid_sharing_rows,
    "representation-mixup": representation_mixup_rows,
}
