"""The papers' cost tables, printed and counted again: one function per paper."""

from manylabel.cost.tables.ml_decoder import ml_decoder_rows
from manylabel.cost.tables.papers import PAPERS
from manylabel.cost.tables.row import TableRow

__all__ = ["PAPERS", "TableRow", "ml_decoder_rows"]
