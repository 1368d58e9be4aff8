"""The files of NUS-WIDE: lists of names, and 0 or 1 for each picture, row by row in step with a list of pictures.

Letters in shape comments: N pictures, L labels.
"""

from functools import cached_property
from pathlib import Path

import numpy as np
import polars as pl
from numpy.typing import NDArray

from manylabel.data.label_list import read_label_list
from manylabel.errors import DataError, list_choices

__all__ = ["NusWideFiles"]

FOLDERS = (
    *(".", "ImageList", "ConceptsList", "NUS_WID_Tags", "AllLabels", "TrainTestLabels"),
    *("Groundtruth", "Groundtruth/AllLabels", "Groundtruth/TrainTestLabels"),
)
BLOCK_BYTES = 1 << 24


class NusWideFiles:
    """Finds the files of NUS-WIDE by name, in whichever of the usual folders they lie, and reads them.

    Args:
        root: The data set's folder.

    Examples:
        >>> NusWideFiles(Path("src")).has("Concepts81.txt")
        False
    """

    def __init__(self, root: Path) -> None:
        self.root = root
        folders = [root / folder for folder in FOLDERS if (root / folder).is_dir()]
        # Mirrors differ in capitals: ImageList.txt, Imagelist.txt.
        self._files = {file.name.lower(): file for folder in folders for file in folder.iterdir() if file.is_file()}

    def has(self, name: str) -> bool:
        """Tell whether there is a file of this name."""
        return name.lower() in self._files

    def find(self, name: str) -> Path:
        """Return the file of this name.

        Raises:
            DataError: There is none; the message lists the nearest.
        """
        if not self.has(name):
            there = list_choices(name, [file.name for file in self._files.values()])
            raise DataError(f"{self.root} is not NUS-WIDE: it has no file {name}; {there}")
        return self._files[name.lower()]

    @cached_property
    def concepts(self) -> list[str]:
        """The 81 concepts."""
        return read_label_list(self.find("Concepts81.txt"))

    @cached_property
    def tags(self) -> list[str]:
        """The 1,000 tags."""
        return read_label_list(self.find("TagList1k.txt"))

    @cached_property
    def seen_tags(self) -> list[str]:
        """The tags that are no concept: 925 of the official ones."""
        return [tag for tag in self.tags if tag not in set(self.concepts)]

    def pictures(self, name: str) -> pl.Series:
        """Read a list of pictures; it has backslashes between folders."""
        names = pl.Series(self.find(name).read_text(encoding="utf-8-sig").splitlines(), dtype=pl.String)
        names = names.str.strip_chars().str.replace_all("\\", "/", literal=True)
        return names.filter(names != "")

    def concept_values(self, pattern: str, *, height: int) -> NDArray[np.int8]:
        """Read the file of every concept.

        Args:
            pattern: The files' name, with ``{}`` for the concept.
            height: How many pictures there are.

        Returns:
            1 (present), 0 (absent) or -1 (something else is written there), ``[N, 81]``.
        """
        columns = [self._column(self.find(pattern.format(concept)), height) for concept in self.concepts]
        return pl.DataFrame(columns).to_numpy().astype(np.int8)

    def _column(self, file: Path, height: int) -> pl.Series:
        texts = pl.read_csv(file, has_header=False, infer_schema=False).to_series().str.strip_chars()
        if len(texts) != height:
            raise DataError(f"{file} has {len(texts)} rows for {height} pictures; download it again")
        values = texts.replace_strict({"1": 1, "0": 0}, default=-1, return_dtype=pl.Int8)
        return values.alias(file.name)

    def tag_places(self, name: str, *, height: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Read a table of 0 and 1, a row for each picture and a column for each of the 1,000 tags.

        Args:
            name: The file's name.
            height: How many pictures there are.

        Returns:
            The row and the column of every 1.
        """
        file = self.find(name)
        places, count = [], 0
        with file.open("rb") as stream:
            # Every value is one digit, so the digits can be counted off without parsing half a gigabyte of text.
            while block := stream.read(BLOCK_BYTES):
                characters = np.frombuffer(block, dtype=np.uint8)
                digits = characters[characters > ord(" ")]
                if not np.isin(digits, (ord("0"), ord("1"))).all():
                    raise DataError(f"{file} has something else than 0, 1 and spaces; download it again")
                places.append(np.flatnonzero(digits == ord("1")) + count)
                count += len(digits)
        if count != height * len(self.tags):
            raise DataError(
                f"{file} has {count} values, not {len(self.tags)} for each of {height} pictures; download it again"
            )
        rows, columns = np.divmod(np.concatenate(places), len(self.tags))
        return rows, columns
