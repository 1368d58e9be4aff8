import io

import numpy as np
import pytest
import torch
from PIL import Image
from scipy.sparse import csr_array

from manylabel.data import Files, ImageDataset, JoinedSource, LazyBytes, eval_transform, load
from manylabel.data.dataset import largest_areas
from manylabel.errors import ConfigError, DataError, ImageError, LabelError
from manylabel.targets import Targets
from manylabel.types import InputSpec, LabelSpace


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


def test_images_are_counted_from_the_end_and_positions_beyond_are_named():
    dataset = make(splits={"val": np.array([2])})
    assert dataset.labels_of(-1) == dataset.labels_of(2) != []
    assert dataset.subset([-1]).splits["val"].tolist() == [0]
    with pytest.raises(IndexError, match="no image 99: there are 3, counted from 0"):
        dataset.subset([0, 99])
    with pytest.raises(IndexError, match="no image 3: there are 3"):
        dataset.labels_of(3)
    with pytest.raises(IndexError, match="a mask must have one value for each of 3 images, got 2"):
        dataset.subset([True, False])


def test_a_wrong_split_lists_what_there_is():
    with pytest.raises(DataError, match="pets has no split 'vall'; did you mean 'val'"):
        make(splits={"val": np.array([0])}).split("vall")


def test_selecting_labels_reorders_targets_and_areas():
    part = make().select_labels(["y"])
    assert part.labels.names == ("y",)
    assert part.targets.dense()[0].ravel().tolist() == [0, 1, 0]
    assert part.areas.toarray().ravel().tolist() == [0, 0.5, 0]
    with pytest.raises(LabelError, match=r"got the single string 'y'; write \['y'\]"):
        make().select_labels("y")


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


def photo(colour):
    encoded = io.BytesIO()
    Image.new("RGB", (8, 6), colour).save(encoded, "PNG")
    return encoded.getvalue()


def photos():
    targets = Targets.from_dense([[1, 0], [-1, 1], [0, 0]])
    source = LazyBytes(["red", "blue", "lime"], load=lambda position: photo(["red", "blue", "lime"][position]))
    return ImageDataset(source, targets, LabelSpace(["cat", "<dog>"]), name="pets & co")


def test_is_a_torch_dataset_of_images_and_targets():
    dataset = photos()
    assert isinstance(dataset, torch.utils.data.Dataset)
    assert [target.tolist() for _, target in dataset] == [[1, 0], [-1, 1], [0, 0]]
    image, target = dataset[-1]
    assert image.getpixel((0, 0)) == (0, 255, 0)
    assert target.dtype == torch.float32
    assert names_of(dataset[1:]) == ["blue", "lime"]
    with pytest.raises(IndexError, match="no image 3: there are 3, counted from 0"):
        dataset[3]


def test_an_unreadable_image_raises_an_error_that_names_it():
    with pytest.raises(ImageError, match="'a'"):
        make()[0]


def test_works_in_a_plain_data_loader_with_workers(tmp_path):
    for name in "abc":
        Image.new("RGB", (8, 6), "red").save(tmp_path / f"{name}.png")
    dataset = load([(tmp_path / f"{name}.png", [name]) for name in "abc"])
    dataset = dataset.with_transform(eval_transform(InputSpec(size=(4, 4))))
    for workers in (0, 1):
        images, targets = next(iter(torch.utils.data.DataLoader(dataset, batch_size=3, num_workers=workers)))
        assert images.shape == (3, 3, 4, 4)
        assert targets.tolist() == np.eye(3).tolist()


def test_shows_itself_in_a_line_and_as_a_contact_sheet():
    dataset = photos()
    assert repr(dataset) == "ImageDataset('pets & co': 3 images, 2 labels, 0.67 per image)"
    page = dataset._repr_html_()
    assert page.count("<img") == 3
    assert "pets &amp; co" in page
    assert "&lt;dog&gt;" in page
    assert "no image" in make()._repr_html_()
    assert repr(dataset[:1].select_labels([dataset.labels[0]])).endswith("1 image, 1 label, 1.00 per image)")
    assert repr(dataset.targets) == "Targets(3 images, 2 labels, 2 present, 1 unknown)"


def test_aligned_labels_are_unknown_where_the_dataset_has_unknown_ones():
    values, known = photos().align_labels(LabelSpace(["cow", "cat"])).targets.dense()
    assert values.tolist() == [[0, 1], [0, 0], [0, 0]]
    assert known.tolist() == [[False, True], [False, False], [False, True]]
    assert make().align_labels(LabelSpace(["z", "y"])).areas.toarray().tolist() == [[0, 0], [0, 0.5], [0, 0]]


def test_merged_labels_have_the_largest_area_of_both():
    targets = Targets.from_dense([[1, 1, 0], [0, 1, 1]])
    areas = csr_array(np.array([[0.5, 0.25, 0], [0, 0.125, 1]], dtype=np.float32))
    dataset = ImageDataset(Files("", ["a", "b"]), targets, LabelSpace(["x", "y", "z"]), areas=areas)
    merged = dataset.rename_labels({"y": "x"})
    assert merged.targets.dense()[0].tolist() == [[1, 0], [1, 1]]
    assert merged.areas.toarray().tolist() == [[0.5, 0], [0.125, 1]]
