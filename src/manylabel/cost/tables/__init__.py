"""The papers' cost tables, printed and counted again: one function per paper."""

from manylabel.cost.tables.hybrid_sharing import hybrid_sharing_rows
from manylabel.cost.tables.ml_decoder import ml_decoder_rows
from manylabel.cost.tables.papers import PAPERS
from manylabel.cost.tables.representation_mixup import representation_mixup_rows
from manylabel.cost.tables.row import TableRow

__all__ = ["PAPERS", "TableRow", "hybrid_sharing_rows", "ml_decoder_rows", "representation_mixup_rows"]
