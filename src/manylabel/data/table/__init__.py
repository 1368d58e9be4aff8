"""Your own table: tags in one column, or one column per label."""

from manylabel.data.table.reader import table

__all__ = ["table"]
