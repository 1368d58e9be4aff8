from manylabel.cost.tables import TableRow, representation_mixup_rows


def test_parameters_agree_with_what_the_paper_prints() -> None:
    rows = representation_mixup_rows()
    assert [row.row for row in rows] == ["Swin-L, RM", "Swin-B, RM", "ResNet101x3, RM", "ResNet50x3, RM"]
    assert all(row.agrees for row in rows)


def test_a_bound_is_kept_or_not() -> None:
    assert TableRow("Table 1", "Swin-L", "M parameters", paper=0.5, ours=0.1, is_bound=True).agrees
    assert not TableRow("Table 1", "Swin-L", "M parameters", paper=0.5, ours=0.6, is_bound=True).agrees
