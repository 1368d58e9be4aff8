"""A number of a paper next to ours."""

from dataclasses import dataclass


@dataclass(frozen=True)
class TableRow:
    """A number of a paper next to the one that our code gives.

    Args:
        table: Where the paper prints it, such as ``"Table 1"``.
        row: Which row, in words.
        quantity: Counted quantity with its unit, such as ``"GMACs"``.
        paper: The number printed.
        ours: The number counted.
        note: Remark on the comparison; always given if the two disagree.
        rounding: Relative difference allowed: papers print two or three digits.
        is_bound: True if the paper only states that the number is below `paper`.

    Examples:
        >>> row = TableRow("Table 1", "GAP", "GMACs", paper=23.0, ours=22.94)
        >>> f"{row.difference:+.1%}", row.agrees
        ('-0.3%', True)
    """

    table: str
    row: str
    quantity: str
    paper: float
    ours: float
    note: str = ""
    rounding: float = 0.01
    is_bound: bool = False

    @property
    def difference(self) -> float:
        """Relative difference between our number and the paper's."""
        return self.ours / self.paper - 1

    @property
    def agrees(self) -> bool:
        """True if both agree up to rounding, or ours is within the paper's bound."""
        return self.ours < self.paper if self.is_bound else abs(self.difference) < self.rounding
