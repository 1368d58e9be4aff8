"""Finding out which column of a table is which, or asking the user to say so."""

import polars as pl

from manylabel.data.layout import IMAGE_ENDINGS
from manylabel.data.table.labels import are_flags
from manylabel.errors import DataError, list_choices

__all__ = ["find_image_column", "find_split_column", "find_tag_column", "pick_column"]

IMAGE_NAMES = {
    *("image", "images", "img", "picture", "pictures", "photo", "path", "file", "filename", "filepath"),
    *("image_path", "image_file", "image_name", "image_filename", "img_path", "img_name", "file_name", "file_path"),
}
LABEL_NAMES = {"label", "labels", "tag", "tags", "class", "classes", "category", "categories", "keywords"}
LOOKS_LIKE_PICTURE = rf"(?i)\.({'|'.join(ending[1:] for ending in sorted(IMAGE_ENDINGS))})\s*$"


def pick_column(frame: pl.DataFrame, given: str, option: str) -> str:
    """Return the column that an option names.

    Raises:
        DataError: There is no such column; the message lists those there are.

    Examples:
        >>> pick_column(pl.DataFrame({"file": ["a.jpg"]}), "file", "image_column")
        'file'
    """
    if given not in frame.columns:
        raise DataError(f"{option}={given}: the table has no such column; {list_choices(given, frame.columns)}")
    return given


def find_image_column(frame: pl.DataFrame, given: str | None = None) -> str:
    """Return the column of pictures: the one given, named so, or the only one whose values look like picture files.

    Args:
        frame: The table.
        given: What the user said.

    Raises:
        DataError: It cannot be told; the message lists the columns and names the option to give.

    Examples:
        >>> find_image_column(pl.DataFrame({"what": ["cat"], "where": ["a.jpg"]}))
        'where'
    """
    if given is not None:
        return pick_column(frame, given, "image_column")
    named = [column for column in frame.columns if _plain(column) in IMAGE_NAMES]
    if len(named) == 1:
        return named[0]
    head = frame.select(pl.col(pl.String)).head(1000)
    asked = [column for column in head.columns if not named or column in named]
    alike = [column for column in asked if _look_like_pictures(head[column])]
    if len(alike) == 1:
        return alike[0]
    found = f"{' and '.join(map(repr, alike))} look like it" if alike else "none looks like it"
    choices = list_choices("", frame.columns)
    raise DataError(f"cannot tell which column names the pictures: {found}; give image_column=NAME, {choices}")


def find_split_column(frame: pl.DataFrame, given: str | None = None) -> str | None:
    """Return the column of splits: the one given, else the one called split, else nothing.

    Args:
        frame: The table.
        given: What the user said.

    Examples:
        >>> find_split_column(pl.DataFrame({"image": ["a.jpg"], "Split": ["train"]}))
        'Split'
    """
    if given is not None:
        return pick_column(frame, given, "split_column")
    return next((column for column in frame.columns if column.lower() == "split"), None)


def find_tag_column(frame: pl.DataFrame, given: str | None = None) -> str | None:
    """Return the column of joined tags, or nothing where each label has its own column.

    It is the one given, else the one called labels, tags or the like, else the only one of lists, else the only one.

    Args:
        frame: The table without its columns of pictures and splits.
        given: What the user said.

    Raises:
        DataError: Several columns could be it; the message lists them.

    Examples:
        >>> find_tag_column(pl.DataFrame({"width": ["640"], "tags": ["cat|dog"]}))
        'tags'
        >>> find_tag_column(pl.DataFrame({"cat": ["1"], "dog": ["0"]})) is None
        True
    """
    if given is not None:
        return pick_column(frame, given, "label_column")
    candidates = (
        [column for column in frame.columns if _plain(column) in LABEL_NAMES],
        [column for column, kind in frame.schema.items() if isinstance(kind, pl.List)],
        [column for column in frame.columns if frame.width == 1 and not are_flags(frame[column])],
    )
    found = next((columns for columns in candidates if columns), [])
    if len(found) > 1:
        raise DataError(f"cannot tell which column holds the tags; give label_column=NAME, {list_choices('', found)}")
    return found[0] if found else None


def _plain(column: str) -> str:
    return column.lower().replace(" ", "_").replace("-", "_")


def _look_like_pictures(cells: pl.Series) -> bool:
    cells = cells.drop_nulls()
    return len(cells) > 0 and bool(cells.str.contains(LOOKS_LIKE_PICTURE).all())
