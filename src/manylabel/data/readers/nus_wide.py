"""NUS-WIDE: 269,648 images from Flickr, 81 manually verified concepts, 1,000 user tags.

Chua et al., "NUS-WIDE: A Real-World Web Image Database from National University of Singapore", CIVR 2009. The
zero-shot protocol is that of Zhang et al., "Fast Zero-Shot Image Tagging", CVPR 2016.

Letters in shape comments: N images, L labels.
"""

from functools import cached_property
from pathlib import Path
from typing import Literal

import numpy as np
import polars as pl
from numpy.typing import NDArray

from manylabel.data.dataset import ImageDataset
from manylabel.data.readers.layout import Empty, are_on_disk, check_choices, existing, image_folder, read_label_list
from manylabel.data.sources import Files
from manylabel.errors import DataError, list_choices
from manylabel.targets import Targets, boolean_matrix
from manylabel.types import LabelSpace

FOLDERS = (
    *(".", "ImageList", "ConceptsList", "NUS_WID_Tags", "AllLabels", "TrainTestLabels"),
    *("Groundtruth", "Groundtruth/AllLabels", "Groundtruth/TrainTestLabels"),
)
BLOCK_BYTES = 1 << 24


LabelSet = Literal["81", "925", "1006"]
SPLIT_LISTS = {"train": "TrainImagelist.txt", "test": "TestImagelist.txt"}

# Lists of images, files of each concept and tables of tags, row by row in step: of all images, or of each split
WHOLE = [("Imagelist.txt", "Labels_{}.txt", "AllTags1k.txt")]
HALVES = [
    ("TrainImagelist.txt", "Labels_{}_Train.txt", "Train_Tags1k.dat"),
    ("TestImagelist.txt", "Labels_{}_Test.txt", "Test_Tags1k.dat"),
]


class NusWideFiles:
    """Files of NUS-WIDE, found by name in any of the usual folders.

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
        """Return whether there is a file of this name."""
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
        """The tags that are not concepts: 925 of the official ones."""
        return [tag for tag in self.tags if tag not in set(self.concepts)]

    def images(self, name: str) -> pl.Series:
        """Read a list of images, with folders separated by backslashes."""
        names = pl.Series(self.find(name).read_text(encoding="utf-8-sig").splitlines(), dtype=pl.String)
        names = names.str.strip_chars().str.replace_all("\\", "/", literal=True)
        return names.filter(names != "")

    def concept_values(self, pattern: str, *, height: int) -> NDArray[np.int8]:
        """Read the file of every concept: 1 (present), 0 (absent) or -1 (anything else), ``[N, 81]``.

        Args:
            pattern: The files' name, with ``{}`` for the concept.
            height: Number of images, N.
        """
        columns = []
        for file in (self.find(pattern.format(concept)) for concept in self.concepts):
            texts = pl.read_csv(file, has_header=False, infer_schema=False).to_series().str.strip_chars()
            if len(texts) != height:
                raise DataError(f"{file} has {len(texts)} rows for {height} images; download it again")
            values = texts.replace_strict({"1": 1, "0": 0}, default=-1, return_dtype=pl.Int8)
            columns.append(values.alias(file.name))
        return pl.DataFrame(columns).to_numpy().astype(np.int8)

    def tag_positions(self, name: str, *, height: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Read a table of 0 and 1, a row per image and a column per tag; return row and column of every 1.

        Args:
            name: The file's name.
            height: Number of images.
        """
        file = self.find(name)
        positions, count = [], 0
        with file.open("rb") as stream:
            # Every value is one digit, so digits are counted instead of parsing half a gigabyte of text.
            while block := stream.read(BLOCK_BYTES):
                characters = np.frombuffer(block, dtype=np.uint8)
                digits = characters[characters > ord(" ")]
                if not np.isin(digits, (ord("0"), ord("1"))).all():
                    raise DataError(f"{file} contains something other than 0, 1 and spaces; download it again")
                positions.append(np.flatnonzero(digits == ord("1")) + count)
                count += len(digits)
        if count != height * len(self.tags):
            raise DataError(f"{file} has {count} values, not {len(self.tags)} per image ({height}); download it again")
        return np.divmod(np.concatenate(positions), len(self.tags))


def nus_wide(
    path: str | Path,
    *,
    split: str | None = None,
    labels: LabelSet = "81",
    images: str | Path | None = None,
    empty: Empty = "keep",
    downloaded_only: bool = False,
) -> ImageDataset:
    """Read NUS-WIDE from its official files.

    ``Groundtruth/AllLabels`` is preferred to ``Groundtruth/TrainTestLabels``. A value other than 0 and 1, such as the
    one in the official ``Labels_lake_Train.txt``, is unknown.

    Args:
        path: The folder with ``ImageList``, ``ConceptsList``, ``Groundtruth`` and, for the tags, ``NUS_WID_Tags``.
        split: ``train`` or ``test`` (default: both).
        labels: ``81`` concepts; the ``925`` tags that are not concepts, to train without them; or ``1006``, both,
            tags first. A tag that an image's owner did not give is absent.
        images: Base folder of the names in the image lists (default: ``Flickr`` in `path`).
        empty: Whether to keep or drop images without any of these labels.
        downloaded_only: Skip images that are not on disk; many are no longer available.

    Returns:
        The images in the order of the image list.

    Raises:
        DataError: A file is missing or contradicts the others.

    Examples:
        >>> nus_wide("src")
        Traceback (most recent call last):
        manylabel.errors.DataError: src is not NUS-WIDE: it has no file Concepts81.txt; ...
    """
    check_choices(labels=(labels, LabelSet), empty=(empty, Empty))
    path = existing(path)
    files = NusWideFiles(path)
    parts = WHOLE if files.has(WHOLE[0][1].format(files.concepts[0])) else HALVES
    names = pl.concat([files.images(part[0]) for part in parts])
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
    """Return the seen and the unseen labels of the zero-shot split.

    Seen are the 1,000 most frequent tags except those that are also a concept, which leaves 925; unseen are the 81
    concepts. Train on ``nus_wide(path, split="train", labels="925")``; evaluate on ``labels="81"`` of ``split="test"``
    (unseen labels only) and on ``labels="1006"`` (both).

    Args:
        path: As for `nus_wide`.

    Returns:
        The seen and the unseen labels, each in the order of their file.

    Examples:
        >>> nus_wide_zero_shot_labels("src")
        Traceback (most recent call last):
        manylabel.errors.DataError: src is not NUS-WIDE: it has no file TagList1k.txt; ...
    """
    files = NusWideFiles(existing(path))
    return files.seen_tags, files.concepts


def _label_names(files: NusWideFiles, labels: LabelSet) -> list[str]:
    return [*(files.seen_tags if labels != "81" else ()), *(files.concepts if labels != "925" else ())]


def _read_part(files: NusWideFiles, part: tuple[str, str, str], labels: LabelSet) -> Targets:
    """Read the labels of all images or of one split; tags come before concepts."""
    images, concept, tags = part
    height = len(files.images(images))
    present, unknown = list[tuple[NDArray[np.int64], ...]](), None
    shape = (height, len(_label_names(files, labels)))
    if labels != "81":
        seen = np.isin(files.tags, files.seen_tags)
        rows, columns = files.tag_positions(tags, height=height)
        present.append((rows[seen[columns]], (np.cumsum(seen) - 1)[columns[seen[columns]]]))
    if labels != "925":
        values = np.zeros(shape, dtype=np.int8)
        values[:, -len(files.concepts) :] = files.concept_values(concept, height=height)
        present.append(np.nonzero(values == 1))
        unknown = boolean_matrix(*np.nonzero(values == -1), shape=shape) if (values == -1).any() else None
    rows, columns = (np.concatenate(positions) for positions in zip(*present, strict=True))
    return Targets(boolean_matrix(rows, columns, shape=shape), unknown=unknown)
