"""Cost tables of the papers, counted again: python -m benchmarks.paper_costs [ml-decoder]."""

from collections.abc import Callable

from benchmarks.paper_costs.hybrid_sharing import hybrid_sharing_rows
from benchmarks.paper_costs.ml_decoder import ml_decoder_rows
from benchmarks.paper_costs.representation_mixup import representation_mixup_rows
from benchmarks.paper_costs.row import TableRow

__all__ = ["PAPERS", "TableRow", "hybrid_sharing_rows", "ml_decoder_rows", "representation_mixup_rows"]

PAPERS: dict[str, Callable[[], list[TableRow]]] = {
    "ml-decoder": ml_decoder_rows,
    "hybrid-sharing": hybrid_sharing_rows,
    "representation-mixup": representation_mixup_rows,
}
