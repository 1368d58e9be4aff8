"""What every reader of a dataset must do; a reader's own test file names the reader and builds a tiny dataset."""

import pickle
from collections.abc import Callable
from dataclasses import dataclass, field
from io import BytesIO
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
from PIL import Image
from scipy.sparse import csr_array

from manylabel.data import ImageDataset
from manylabel.data.sources import ImageSource
from manylabel.data.spec import load
from manylabel.errors import DataError, SpecError
from manylabel.types import LabelSpace

__all__ = ["Example", "ReaderSuite", "SplitReaderSuite", "draw"]


@dataclass(frozen=True)
class Example:
    """A tiny dataset on disk, and what reading all of it must give.

    Args:
        path: What the reader is given; not tmp_path itself but something inside it.
        names: What the images are called, in order.
        labels: The labels, in order.
        values: One row per image: 1 where the label is present, else 0.
        known: One row per image: 1 where the label is known, else 0.
        splits: The positions of each split's images; empty where the format has none.
        options: What else the reader needs, the same in Python and in the spec.
    """

    path: Path
    names: list[str]
    labels: list[str]
    values: list[list[int]]
    known: list[list[int]]
    splits: dict[str, list[int]] = field(default_factory=dict)
    options: dict[str, Any] = field(default_factory=dict)


class ReaderSuite:
    """Subclass as `TestMyFormat`, set `format` and `reader`, and override `build`.

    Example:
        class TestFolder(ReaderSuite):
            format = "folder"
            reader = staticmethod(folder)

            def build(self, tmp_path):
                draw(tmp_path / "pets" / "cat" / "a.png")
                return Example(tmp_path / "pets", names=["cat/a.png"], labels=["cat"], values=[[1]], known=[[1]])
    """

    format: ClassVar[str]
    reader: ClassVar[Callable[..., ImageDataset]]
    single_label: ClassVar[bool] = False

    def build(self, tmp_path: Path) -> Example:
        """Write a tiny dataset below `tmp_path`, with at least one image, and say what it holds."""
        raise NotImplementedError

    def spoil(self, dataset: ImageDataset) -> None:
        """Make the first image unreadable; readers that find images by listing a folder write rubbish instead."""
        image = dataset.images[0]
        assert isinstance(image, Path)
        image.unlink()

    @pytest.fixture
    def example(self, tmp_path: Path) -> Example:
        return self.build(tmp_path)

    @pytest.fixture
    def dataset(self, example: Example) -> ImageDataset:
        return type(self).reader(example.path, **example.options)

    def spec(self, example: Example, **more: Any) -> str:
        options = "".join(f",{name}={value}" for name, value in (example.options | more).items())
        return f"{self.format}:{example.path}{options}"

    def test_returns_a_image_dataset_of_agreeing_shapes(self, dataset: ImageDataset, example: Example):
        assert isinstance(dataset, ImageDataset)
        assert isinstance(dataset.labels, LabelSpace)
        assert isinstance(dataset.images, ImageSource)
        assert dataset.targets.shape == (len(example.names), len(example.labels))
        assert dataset.single_label is self.single_label

    def test_names_and_labels_are_those_on_disk(self, dataset: ImageDataset, example: Example):
        assert [dataset.images.name(index) for index in range(len(dataset))] == example.names
        assert list(dataset.labels) == example.labels
        assert len(set(example.names)) == len(example.names)

    def test_present_and_known_labels_are_those_on_disk(self, dataset: ImageDataset, example: Example):
        values, known = dataset.targets.dense()
        assert values.astype(int).tolist() == example.values
        assert known.astype(int).tolist() == example.known

    def test_targets_are_sparse_and_boolean(self, dataset: ImageDataset):
        targets = dataset.targets
        for matrix in (targets.present, targets.unknown, targets.absent):
            assert matrix is None or (isinstance(matrix, csr_array) and matrix.dtype == bool and matrix.data.all())

    def test_areas_are_shares_of_present_labels(self, dataset: ImageDataset):
        if dataset.areas is not None:
            assert isinstance(dataset.areas, csr_array)
            assert dataset.areas.dtype == np.float32
            assert ((dataset.areas.data > 0) & (dataset.areas.data <= 1)).all()
            assert not (dataset.areas.astype(bool) > dataset.targets.present).nnz

    def test_every_image_decodes(self, dataset: ImageDataset):
        for index in range(len(dataset)):
            image = dataset.images[index]
            with Image.open(BytesIO(image) if isinstance(image, bytes) else image) as decoded:
                assert decoded.convert("RGB").size >= (1, 1)

    def test_reads_although_a_image_cannot_be_decoded(self, dataset: ImageDataset, example: Example):
        self.spoil(dataset)
        again = type(self).reader(example.path, **example.options)
        assert_same(again, dataset)

    def test_splits_hold_every_image_once(self, dataset: ImageDataset, example: Example):
        assert {name: members.tolist() for name, members in dataset.splits.items()} == example.splits
        if example.splits:
            assert sorted(np.concatenate(list(dataset.splits.values())).tolist()) == list(range(len(dataset)))

    def test_spec_and_python_agree(self, dataset: ImageDataset, example: Example):
        assert_same(load(self.spec(example)), dataset)

    def test_survives_being_sent_to_another_process(self, dataset: ImageDataset):
        copy = pickle.loads(pickle.dumps(dataset))
        assert_same(copy, dataset)
        assert [copy.images[index] for index in range(len(copy))] == [
            dataset.images[index] for index in range(len(dataset))
        ]

    def test_a_wrong_path_lists_what_is_beside_it(self, example: Example):
        with pytest.raises(DataError) as error:
            type(self).reader(example.path.with_name("nowhere"), **example.options)
        assert "nowhere" in str(error.value)
        assert example.path.name in str(error.value)

    def test_a_wrong_option_lists_those_there_are(self, example: Example):
        with pytest.raises(SpecError) as error:
            load(self.spec(example, colour="red"))
        assert "colour" in str(error.value)
        assert "limit" in str(error.value)


class SplitReaderSuite(ReaderSuite):
    """A `ReaderSuite` for readers that take `split=`; the example must have at least one split."""

    def test_reads_one_split_alone(self, dataset: ImageDataset, example: Example):
        assert example.splits
        for name in example.splits:
            part = type(self).reader(example.path, split=name, **example.options)
            assert_same(part, dataset.split(name))
            assert_same(load(self.spec(example, split=name)), part)

    def test_a_wrong_split_lists_those_there_are(self, example: Example):
        with pytest.raises(DataError) as error:
            type(self).reader(example.path, split="no_such_split", **example.options)
        assert "no_such_split" in str(error.value)
        assert all(name in str(error.value) for name in example.splits)


def assert_same(first: ImageDataset, second: ImageDataset) -> None:
    """Two readings of the same data: same images, labels, targets, areas and splits."""
    assert [first.images.name(i) for i in range(len(first))] == [second.images.name(i) for i in range(len(second))]
    assert first.labels == second.labels
    for ours, theirs in zip(first.targets.dense(), second.targets.dense(), strict=True):
        np.testing.assert_array_equal(ours, theirs)
    assert (first.areas is None) == (second.areas is None)
    if first.areas is not None and second.areas is not None:
        np.testing.assert_array_equal(first.areas.toarray(), second.areas.toarray())
    assert {name: members.tolist() for name, members in first.splits.items()} == {
        name: members.tolist() for name, members in second.splits.items()
    }


def draw(path: Path, *, size: tuple[int, int] = (8, 6), colour: str = "teal") -> Path:
    """Write a small image of one colour, folders included."""
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("RGB", size, colour).save(path)
    return path
