import pytest

from manylabel.cost.tables import PAPERS, TableRow, ml_decoder_rows

RECOMPUTED = {  # by the formula of the head's MACs, to two or three digits after the point
    ("Table 1", "GAP"): 22.93,
    ("Table 1", "transformer decoder, 80 queries"): 24.04,
    ("Table 1", "ML-Decoder, K=20"): 23.56,
    ("Table 1", "ML-Decoder, K=80"): 23.84,
    ("Table 2", "GAP"): 5.75,
    ("Table 2", "transformer decoder, 9600 queries"): 212.3,
    ("Table 2", "ML-Decoder + self-attention, K=400"): 8.83,
    ("Table 2", "ML-Decoder, K=100"): 6.315,
    ("Table 2", "ML-Decoder, K=200"): 6.755,
    ("Table 2", "ML-Decoder, K=400"): 7.635,
}


def test_ml_decoder_tables_come_out_as_recomputed_by_hand() -> None:
    counted = {(row.table, row.row): row.ours for row in ml_decoder_rows() if row.quantity == "GMACs"}
    assert counted == pytest.approx(RECOMPUTED, rel=1e-3)


def test_every_number_that_differs_from_its_paper_has_a_note() -> None:
    assert all(row.agrees or row.note for rows in PAPERS.values() for row in rows())


def test_a_row_agrees_within_rounding_only() -> None:
    assert TableRow("Table 2", "K=200", "GMACs", paper=6.7, ours=6.755).agrees
    assert not TableRow("Table 2", "K=400", "GMACs", paper=12.4, ours=8.83).agrees
