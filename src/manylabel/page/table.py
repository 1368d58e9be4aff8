"""Tables that sort by any column, with the mouse or the keyboard."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from manylabel.errors import ConfigError
from manylabel.page.parts import escape

__all__ = ["Cell", "Share", "Table"]


@dataclass(frozen=True)
class Share:
    """A part of a whole, 0 to 1, shown as per cent with a bar behind it."""

    value: float


Cell = str | int | float | Share | None


@dataclass(frozen=True)
class Table:
    """A table that sorts by the column whose head is clicked, or chosen with Tab and Enter.

    Args:
        columns: The heads.
        rows: The cells: text, numbers, shares, or None where there is nothing to say.
        caption: What stands above the table.

    Raises:
        ConfigError: A row has more or fewer cells than there are columns.

    Example:
        >>> table = Table(["label", "pictures"], [["cat", 1200], ["dog", None]])
        >>> '<td class="number" data-value="1200">1,200</td>' in table.html()
        True
    """

    columns: Sequence[str]
    rows: Sequence[Sequence[Cell]]
    caption: str = ""

    def __post_init__(self) -> None:
        for position, row in enumerate(self.rows):
            if len(row) != len(self.columns):
                wanted = f"{len(self.columns)} cells ({', '.join(self.columns)})"
                raise ConfigError(f"each row must have {wanted}, got {len(row)} in row {position}")

    def html(self) -> str:
        """Return the table as HTML."""
        heads = "".join(map(_head, self.columns, zip(*self.rows, strict=True) if self.rows else self.columns))
        body = "\n".join(f"<tr>{''.join(map(_cell, row))}</tr>" for row in self.rows)
        caption = f"<caption>{escape(self.caption)}</caption>" if self.caption else ""
        # The frame scrolls sideways on a phone; tabindex lets the keyboard scroll it too.
        return (
            f'<div class="frame" tabindex="0"><table>{caption}<thead><tr>{heads}</tr></thead>\n'
            f"<tbody>{body}</tbody></table></div>"
        )


def _head(name: str, cells: Sequence[Cell]) -> str:
    """Return the head of a column; a button, so that the keyboard reaches it."""
    is_text = any(isinstance(cell, str) for cell in cells)
    kind = "" if is_text else ' class="number"'
    return f'<th scope="col"{kind}><button type="button">{escape(name)}</button></th>'


def _cell(value: Cell) -> str:
    """Return a cell, with the number to sort by where it is one."""
    if value is None:
        return '<td class="number"></td>'
    if isinstance(value, str):
        return f"<td>{escape(value)}</td>"
    if isinstance(value, Share):
        per_cent = 100 * value.value
        bar = f'<i style="--share:{min(value.value, 1):.3f}"></i>'
        return f'<td class="number share" data-value="{value.value!r}">{bar}<span>{per_cent:.1f} %</span></td>'
    shown = f"{value:,}" if isinstance(value, int) else f"{value:,.4g}"
    return f'<td class="number" data-value="{value!r}">{shown}</td>'
