import numpy as np
import pytest
from scipy.sparse import csr_array

from manylabel.data import Files, ImageDataset, JoinedSource, LazyBytes
from manylabel.data.dataset import largest_areas
from manylabel.errors import ConfigError, DataError
from manylabel.targets import Targets
from manylabel.types import LabelSpace


def make(names=("a", "b", "c"), splits=None):
    targets = Targets.from_lists([[index % 2] for index in range(len(names))], num_labels=2)
    areas = csr_array(targets.present.astype(np.float32) * 0.5)
    return ImageDataset(
        Files("photos", names), targets, LabelSpace(["x", "y"]), name="pets", splits=splits or {}, areas=areas
    )


def names_of(dataset):
    return [dataset.images.name(index) for index in range(len(dataset))]


def test_a_subset_keeps_images_targets_areas_and_splits_together():
    part = make(splits={"train": np.array([0, 2]), "val": np.array([1])}).subset([2, 1])
    assert names_of(part) == ["c", "b"]
    assert part.targets.dense()[0].tolist() == [[1, 0], [0, 1]]
    assert part.areas.toarray().tolist() == [[0.5, 0], [0, 0.5]]
    assert {name: members.tolist() for name, members in part.splits.items()} == {"train": [0], "val": [1]}
    assert names_of(make().subset(np.array([False, True, False]))) == ["b"]


def test_a_wrong_split_lists_what_there_is():
    with pytest.raises(DataError, match="pets has no split 'vall'; did you mean 'val'"):
        make(splits={"val": np.array([0])}).split("vall")


def test_selecting_labels_reorders_targets_and_areas():
    part = make().select_labels(["y"])
    assert part.labels.names == ("y",)
    assert part.targets.dense()[0].ravel().tolist() == [0, 1, 0]
    assert part.areas.toarray().ravel().tolist() == [0, 0.5, 0]


def test_joined_parts_become_splits():
    joined = ImageDataset.join({"train": make(), "val": make(["d"])}, name="both")
    assert names_of(joined.split("val")) == ["d"]
    assert names_of(joined.subset([3, 0, 1])) == ["d", "a", "b"]
    assert joined.areas.shape == (4, 2)


def test_joining_different_labels_is_refused():
    other = make().select_labels(["y"])
    with pytest.raises(DataError, match="labels differ"):
        ImageDataset.join({"train": make(), "val": other}, name="both")


def test_shapes_must_agree():
    with pytest.raises(ConfigError, match=r"targets must be \[images, labels\] = \[1, 2\]"):
        ImageDataset(Files("", ["a"]), Targets.from_lists([[0]], num_labels=3), LabelSpace(["x", "y"]))


@pytest.mark.parametrize(
    "source",
    [
        Files("root", [str(number) for number in range(6)]),
        LazyBytes([str(number) for number in range(6)], load=lambda position: str(position).encode()),
        JoinedSource([Files("root", ["0", "1"]), Files("other", []), Files("root", ["2", "3", "4", "5"])]),
    ],
    ids=lambda source: type(source).__name__,
)
def test_taking_twice_is_taking_of_what_was_taken(source):
    twice = source.take([5, 1, 3, 1]).take([3, 0])
    assert [twice.name(index) for index in range(len(twice))] == ["1", "5"]
    assert str(twice[0]).endswith(("1", "1'"))
    assert len(source.take([])) == 0


def test_agrees_with_a_loop_over_the_objects():
    generator = np.random.default_rng(0)
    rows, columns = generator.integers(0, 30, 500), generator.integers(0, 7, 500)
    shares = generator.random(500)
    present = generator.random((30, 7)) < 0.7
    expected = np.zeros((30, 7))
    for row, column, share in zip(rows, columns, shares, strict=True):
        expected[row, column] = max(expected[row, column], share)
    expected[~present] = 0
    found = largest_areas(rows, columns, shares, present=csr_array(present))
    np.testing.assert_allclose(found.toarray(), expected, rtol=1e-6)
    assert found.dtype == np.float32
    assert found.nnz == np.count_nonzero(expected)


def test_boxes_beyond_the_image_cover_all_of_it_and_unknown_ones_nothing():
    present = csr_array(np.ones((1, 3), dtype=bool))
    found = largest_areas([0, 0, 0], [0, 1, 2], [1.5, np.nan, 0], present=present)
    assert found.toarray().tolist() == [[1, 0, 0]]


def test_is_none_when_no_object_tells_and_empty_when_there_are_no_objects():
    present = csr_array(np.ones((1, 2), dtype=bool))
    assert largest_areas([0], [0], [0.0], present=present) is None
    assert largest_areas([], [], [], present=present).nnz == 0
