"""NUS-WIDE: 269,648 images from Flickr, 81 concepts checked by people, 1,000 tags as their owners gave them.

Chua et al., "NUS-WIDE: A Real-World Web Image Database from National University of Singapore", CIVR 2009. The
zero-shot protocol is that of Zhang et al., "Fast Zero-Shot Image Tagging", CVPR 2016.

Letters in shape comments: N images, L labels.
"""

from functools import cached_property
from pathlib import Path
from typing import Literal, NamedTuple, get_args

import numpy as np
import polars as pl
from numpy.typing import NDArray

from manylabel.data.dataset import ImageDataset
from manylabel.data.readers.layout import are_on_disk, existing, image_folder, read_label_list
from manylabel.data.sources import Files
from manylabel.errors import ConfigError, DataError, list_choices
from manylabel.targets import Targets, boolean_matrix
from manylabel.types import LabelSpace

__all__ = [
    "nus_wide",
    "nus_wide_zero_shot_labels",
]

FOLDERS = (
    *(".", "ImageList", "ConceptsList", "NUS_WID_Tags", "AllLabels", "TrainTestLabels"),
    *("Groundtruth", "Groundtruth/AllLabels", "Groundtruth/TrainTestLabels"),
)
BLOCK_BYTES = 1 << 24


class NusWideFiles:
    """Finds the files of NUS-WIDE by name, in whichever of the usual folders they lie, and reads them.

    Args:
        root: The dataset's folder.

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

    def images(self, name: str) -> pl.Series:
        """Read a list of images; it has backslashes between folders."""
        names = pl.Series(self.find(name).read_text(encoding="utf-8-sig").splitlines(), dtype=pl.String)
        names = names.str.strip_chars().str.replace_all("\\", "/", literal=True)
        return names.filter(names != "")

    def concept_values(self, pattern: str, *, height: int) -> NDArray[np.int8]:
        """Read the file of every concept.

        Args:
            pattern: The files' name, with ``{}`` for the concept.
            height: How many images there are.

        Returns:
            1 (present), 0 (absent) or -1 (something else is written there), ``[N, 81]``.
        """
        columns = [self._column(self.find(pattern.format(concept)), height) for concept in self.concepts]
        return pl.DataFrame(columns).to_numpy().astype(np.int8)

    def _column(self, file: Path, height: int) -> pl.Series:
        texts = pl.read_csv(file, has_header=False, infer_schema=False).to_series().str.strip_chars()
        if len(texts) != height:
            raise DataError(f"{file} has {len(texts)} rows for {height} images; download it again")
        values = texts.replace_strict({"1": 1, "0": 0}, default=-1, return_dtype=pl.Int8)
        return values.alias(file.name)

    def tag_places(self, name: str, *, height: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Read a table of 0 and 1, a row for each image and a column for each of the 1,000 tags.

        Args:
            name: The file's name.
            height: How many images there are.

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
                f"{file} has {count} values, not {len(self.tags)} for each of {height} images; download it again"
            )
        rows, columns = np.divmod(np.concatenate(places), len(self.tags))
        return rows, columns


LabelSet = Literal["81", "925", "1006"]
SPLIT_LISTS = {"train": "TrainImagelist.txt", "test": "TestImagelist.txt"}


class _Part(NamedTuple):
    """The files, row by row in step, of all images or of a split."""

    images: str
    concept: str
    tags: str


WHOLE = _Part("Imagelist.txt", "Labels_{}.txt", "AllTags1k.txt")
HALVES = (
    _Part("TrainImagelist.txt", "Labels_{}_Train.txt", "Train_Tags1k.dat"),
    _Part("TestImagelist.txt", "Labels_{}_Test.txt", "Test_Tags1k.dat"),
)


def nus_wide(
    path: str | Path,
    *,
    split: str | None = None,
    labels: LabelSet = "81",
    images: str | Path | None = None,
    empty: Literal["drop", "keep"] = "keep",
    downloaded_only: bool = False,
) -> ImageDataset:
    """Read NUS-WIDE from its official files.

    ``Groundtruth/AllLabels`` is read where it is there, else ``Groundtruth/TrainTestLabels``. A value other than 0 and
    1, of which the official ``Labels_lake_Train.txt`` has one, makes that label of that image unknown.

    Args:
        path: The folder with ``ImageList``, ``ConceptsList``, ``Groundtruth`` and, for the tags, ``NUS_WID_Tags``.
        split: ``train`` or ``test``; by default both.
        labels: ``81`` concepts; the ``925`` tags that are none of these, for training without them; or both, the tags
            first, as ``1006``. A tag that an image's owner did not give counts as absent.
        images: The folder that the names in the image lists are relative to; ``Flickr`` in `path` by default.
        empty: What to do with images that have none of these labels: keep or drop them.
        downloaded_only: Whether to leave out images that are not on disk; many can no longer be had.

    Returns:
        The images in the order of the image list.

    Raises:
        DataError: A file is missing or does not fit the others; the message says which.

    Examples:
        >>> nus_wide("src")
        Traceback (most recent call last):
        manylabel.errors.DataError: src is not NUS-WIDE: it has no file Concepts81.txt; ...
    """
    for option, value, choices in (("labels", labels, get_args(LabelSet)), ("empty", empty, ("drop", "keep"))):
        if value not in choices:
            raise ConfigError(f"{option} cannot be {value!r}; {list_choices(str(value), choices)}")
    path = existing(path)
    files = NusWideFiles(path)
    parts = [WHOLE] if files.has(WHOLE.concept.format(files.concepts[0])) else HALVES
    names = pl.concat([files.images(part.images) for part in parts])
    root = path / "Flickr" if images is None else image_folder(images, beside=path)
    dataset = ImageDataset(
        Files(root, names),
        Targets.stack([_read_part(files, part, labels) for part in parts]),
        LabelSpace(_label_names(files, labels)),
        name="NUS-WIDE",
        splits={
            name: np.flatnonzero(names.is_in(files.images(listed).implode()).to_numpy())
            for name, listed in SPLIT_LISTS.items()
        },
    )
    keep = np.ones(len(names), dtype=bool) if empty == "keep" else dataset.targets.labels_per_image > 0
    if downloaded_only:
        keep &= are_on_disk(root, names)
    dataset = dataset if keep.all() else dataset.subset(keep)
    return dataset if split is None else dataset.split(split)


def nus_wide_zero_shot_labels(path: str | Path) -> tuple[list[str], list[str]]:
    """Return the labels of the zero-shot split: those to train on, and those that must be named unseen.

    Seen are the 1,000 most frequent tags but for those that are also a concept, which leaves 925; unseen are the 81
    concepts. Train on ``nus_wide(path, split="train", labels="925")``; judge on ``labels="81"`` of ``split="test"``
    (only unseen labels) and on ``labels="1006"`` (both, together).

    Args:
        path: As for `nus_wide`.

    Returns:
        The seen labels and the unseen ones, each in the order of their file.

    Examples:
        >>> nus_wide_zero_shot_labels("src")
        Traceback (most recent call last):
        manylabel.errors.DataError: src is not NUS-WIDE: it has no file TagList1k.txt; ...
    """
    files = NusWideFiles(existing(path))
    return files.seen_tags, files.concepts


def _label_names(files: NusWideFiles, labels: LabelSet) -> list[str]:
    return [*(files.seen_tags if labels != "81" else ()), *(files.concepts if labels != "925" else ())]


def _read_part(files: NusWideFiles, part: _Part, labels: LabelSet) -> Targets:
    height = len(files.images(part.images))
    present, unknown = [], None
    shape = (height, len(_label_names(files, labels)))
    if labels != "81":
        present.append(_seen_places(files, part.tags, height))
    if labels != "925":
        values = files.concept_values(part.concept, height=height)  # [N, 81]
        start = shape[1] - values.shape[1]  # the concepts come last
        present.append(_places(values == 1, start))
        unknown = boolean_matrix(*_places(values == -1, start), shape=shape) if (values == -1).any() else None
    rows, columns = (np.concatenate(places) for places in zip(*present, strict=True))
    return Targets(boolean_matrix(rows, columns, shape=shape), unknown=unknown)


def _places(mask: NDArray[np.bool_], start: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    rows, columns = np.nonzero(mask)
    return rows, columns + start


def _seen_places(files: NusWideFiles, name: str, height: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return row and column of every tag that is no concept, the columns numbered among these."""
    seen = np.isin(files.tags, files.seen_tags)
    rows, columns = files.tag_places(name, height=height)
    kept = seen[columns]
    return rows[kept], (np.cumsum(seen) - 1)[columns[kept]]
