"""Splits: exact, seeded, complete, and at least as even as iterative stratification."""

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from iterstrat.ml_stratifiers import MultilabelStratifiedKFold, MultilabelStratifiedShuffleSplit
from scipy.sparse import csr_array

from manylabel.data import Files, ImageDataset, hold_out, stratified_folds, stratified_split
from manylabel.errors import ConfigError
from manylabel.targets import Targets
from manylabel.types import LabelSpace


def draw_targets(num_images, num_labels, seed, *, unknown_fraction=0.0, listed="unknown"):
    """Skewed labels that come in groups; some images have none."""
    generator = np.random.default_rng(seed)
    groups, scenes = generator.integers(4, size=num_labels), generator.integers(4, size=num_images)
    chances = np.arange(1, num_labels + 1) ** -0.8 * np.where(scenes[:, None] == groups, 0.7, 0.1)
    present = generator.random((num_images, num_labels)) < chances
    if not unknown_fraction:
        return Targets(csr_array(present))
    unknown = ~present & (generator.random(present.shape) < unknown_fraction * generator.random(num_labels))
    if listed == "unknown":
        return Targets(csr_array(present), unknown=csr_array(unknown))
    return Targets(csr_array(present), absent=csr_array(~present & ~unknown))


def mean_deviation(matrix, parts):
    """The mean over parts and columns of |share in the part - share overall|, the slow way."""
    dense = matrix.toarray().astype(float)
    return np.mean(
        [
            abs(dense[part, column].mean() - dense[:, column].mean())
            for part in parts
            for column in range(dense.shape[1])
        ]
    )


def pairs_of(matrix):
    dense = matrix.toarray()
    first, second = np.triu_indices(dense.shape[1], k=1)
    return csr_array(dense[:, first] & dense[:, second])


lists_of_labels = st.lists(st.sets(st.integers(0, 5)).map(sorted), min_size=2, max_size=60)


@settings(max_examples=60, deadline=None)
@given(lists_of_labels, st.integers(2, 12), st.integers(0, 1000))
@pytest.mark.slow
def test_every_image_is_in_exactly_one_fold_and_sizes_differ_by_at_most_one(rows, num_folds, seed):
    num_folds = min(num_folds, len(rows))
    folds = stratified_folds(Targets.from_lists(rows, num_labels=6), num_folds=num_folds, seed=seed)
    sizes = [len(val) for _, val in folds]
    assert sorted(np.concatenate([val for _, val in folds])) == list(range(len(rows)))
    assert len(sizes) == num_folds
    assert max(sizes) - min(sizes) <= 1
    for train, val in folds:
        assert sorted([*train, *val]) == list(range(len(rows)))
        assert (np.diff(train) > 0).all()
        assert (np.diff(val) > 0).all()


@settings(max_examples=60, deadline=None)
@given(lists_of_labels, st.floats(0.3, 0.7), st.integers(0, 1000))
def test_a_split_has_the_rounded_size_and_loses_no_image(rows, val_fraction, seed):
    train, val = stratified_split(Targets.from_lists(rows, num_labels=6), val_fraction=val_fraction, seed=seed)
    assert abs(len(val) - len(rows) * val_fraction) <= 0.5
    assert sorted([*train, *val]) == list(range(len(rows)))


@settings(max_examples=30, deadline=None)
@given(st.lists(st.integers(0, 3), min_size=10, max_size=80), st.integers(2, 5))
def test_single_labels_are_spread_to_within_one_image(labels, num_folds):
    targets = Targets.from_lists([[label] for label in labels], num_labels=4)
    counts = np.stack([targets[val].positives for _, val in stratified_folds(targets, num_folds=num_folds)])
    assert np.ptp(counts, axis=0).max() <= 1


@pytest.mark.parametrize("seed", range(4))
def test_folds_are_at_least_as_even_as_iterative_stratification(seed):
    targets = draw_targets(2000, 20, seed)
    dense = targets.present.toarray().astype(int)
    theirs = [val for _, val in MultilabelStratifiedKFold(5, shuffle=True, random_state=seed).split(dense, dense)]
    ours = [val for _, val in stratified_folds(targets, num_folds=5, seed=seed)]
    assert mean_deviation(targets.present, ours) <= mean_deviation(targets.present, theirs) + 1e-12
    assert mean_deviation(pairs_of(targets.present), ours) < mean_deviation(pairs_of(targets.present), theirs)


@pytest.mark.parametrize("seed", range(4))
def test_a_split_is_at_least_as_even_as_iterative_stratification(seed):
    targets = draw_targets(2000, 20, seed)
    dense = targets.present.toarray().astype(int)
    theirs = next(MultilabelStratifiedShuffleSplit(1, test_size=0.2, random_state=seed).split(dense, dense))
    ours = stratified_split(targets, val_fraction=0.2, seed=seed)
    assert mean_deviation(targets.present, ours) <= mean_deviation(targets.present, theirs) + 1e-12
    assert mean_deviation(pairs_of(targets.present), ours) < mean_deviation(pairs_of(targets.present), theirs)


def test_no_fold_is_more_than_a_image_off_for_any_label():
    targets = draw_targets(3000, 20, seed=7)
    for _, val in stratified_folds(targets, num_folds=5):
        assert (abs(targets[val].positives - targets.positives / 5) < 1).all()


@pytest.mark.parametrize("listed", ["unknown", "absent"])
def test_what_is_known_of_a_label_keeps_its_share(listed):
    targets = draw_targets(2000, 10, seed=3, unknown_fraction=0.6, listed=listed)
    _, val = stratified_split(targets, val_fraction=0.25, seed=1)
    assert (abs(targets[val].known - targets.known / 4) <= 1).all()
    assert (abs(targets[val].positives - targets.positives / 4) <= 1).all()


def test_images_without_labels_are_spread_too():
    targets = Targets.from_lists([[0]] * 31 + [[]] * 44 + [[0, 1]] * 25, num_labels=2)
    without = [(targets[val].labels_per_image == 0).sum() for _, val in stratified_folds(targets, num_folds=4)]
    assert sum(without) == 44
    assert max(without) - min(without) <= 1


def test_the_same_seed_gives_the_same_split_and_another_seed_another():
    targets = draw_targets(500, 10, seed=0)
    splits = [tuple(stratified_split(targets, val_fraction=0.2, seed=seed)[1]) for seed in (0, 0, 1, 2)]
    assert [splits.index(split) for split in splits] == [0, 0, 2, 3]


def test_the_split_of_a_seed_never_changes():
    targets = Targets.from_lists([[0], [0, 1], [1, 2], [], [2]] * 4, num_labels=3)
    assert stratified_split(targets, val_fraction=0.25, seed=5)[1].tolist() == [5, 6, 8, 12, 14]


def test_every_image_is_as_likely_to_be_validated_on_when_all_are_alike():
    targets = Targets.from_lists([[0]] * 10, num_labels=1)
    times = Counter(int(p) for seed in range(300) for p in stratified_split(targets, val_fraction=0.2, seed=seed)[1])
    assert len(times) == 10
    assert min(times.values()) > 30  # 60 are expected


def test_a_label_with_one_image_goes_somewhere_and_disturbs_nothing():
    targets = Targets.from_lists([[0], [1], [1], [1], [1], []], num_labels=3)
    train, val = stratified_split(targets, val_fraction=1 / 3)
    assert targets[train].positives[0] + targets[val].positives[0] == 1
    assert targets[val].positives[1] in (1, 2)


def test_a_fold_per_image_leaves_one_out():
    targets = Targets.from_lists([[0], [0, 1], []], num_labels=2)
    assert sorted(val.item() for _, val in stratified_folds(targets, num_folds=3)) == [0, 1, 2]


def test_a_fold_smaller_than_the_sample_rate_is_no_trouble():
    targets = draw_targets(30_000, 6, seed=0)
    train, val = stratified_split(targets, val_fraction=1e-4)
    assert (len(train), len(val)) == (29_997, 3)


def test_splits_without_any_label_column():
    train, val = stratified_split(Targets.from_lists([[]] * 5, num_labels=0), val_fraction=0.4)
    assert (len(train), len(val)) == (3, 2)


def test_a_data_set_is_split_into_named_parts():
    targets = draw_targets(50, 3, seed=0)
    dataset = ImageDataset(
        Files("photos", [f"{number}.jpg" for number in range(50)]),
        targets,
        LabelSpace(["cat", "dog", "cow"]),
        splits={"old": np.arange(50)},
    )
    divided = hold_out(dataset, val_fraction=0.2, seed=3)
    train, val = divided.split("train"), divided.split("val")
    positions = stratified_split(targets, val_fraction=0.2, seed=3)[1]
    assert [val.images.name(index) for index in range(len(val))] == [f"{position}.jpg" for position in positions]
    assert (val.targets.positives == targets[positions].positives).all()
    assert {name: members.tolist() for name, members in train.splits.items()} == {"train": list(range(40))}
    assert list(val.splits) == ["val"]


@pytest.mark.parametrize("val_fraction", [-0.1, 0.0, 0.01, 0.99, 1.0, float("nan")])
def test_rejects_a_fraction_that_leaves_a_part_empty(val_fraction):
    with pytest.raises(ConfigError, match="images to train and to validate on"):
        stratified_split(Targets.from_lists([[0]] * 10, num_labels=1), val_fraction=val_fraction)


@pytest.mark.parametrize("num_folds", [1, 4])
def test_rejects_fewer_than_two_folds_and_more_folds_than_images(num_folds):
    with pytest.raises(ConfigError, match=rf"at most the number of images \(3\), got {num_folds}"):
        stratified_folds(Targets.from_lists([[0]] * 3, num_labels=1), num_folds=num_folds)


def test_rejects_a_negative_seed():
    with pytest.raises(ConfigError, match="seed must be 0 or more, got -1"):
        stratified_split(Targets.from_lists([[0]] * 3, num_labels=1), val_fraction=0.5, seed=-1)


@pytest.fixture
def dataset():
    images = Files("photos", [f"{number}.jpg" for number in range(40)])
    targets = Targets.from_lists([[number % 2] for number in range(40)], num_labels=2)
    return ImageDataset(images, targets, LabelSpace(["cat", "dog"]), splits={"all": range(40)})


def names(dataset):
    return [dataset.images.name(index) for index in range(len(dataset))]


def test_returns_the_same_when_nothing_is_asked(dataset):
    assert hold_out(dataset) is dataset


def test_the_two_parts_are_the_splits_of_the_whole(dataset):
    whole = hold_out(dataset, val_fraction=0.25, seed=3)
    train, val = (hold_out(dataset, val_fraction=0.25, seed=3, part=part) for part in ("train", "val"))
    assert list(whole.splits) == ["train", "val"]
    assert names(whole.split("train")) == names(train)
    assert names(whole.split("val")) == names(val)
    assert sorted(names(train) + names(val)) == sorted(names(dataset))
    assert val.targets.positives.tolist() == [5, 5]
    assert list(train.splits) == ["train"]


def test_only_the_split_to_train_on_is_divided_where_none_is_to_validate_on(dataset):
    dataset = replace(dataset, splits={"trainval": np.arange(30), "test": np.arange(30, 40), "val": np.array([], int)})
    whole = hold_out(dataset, val_fraction=0.2)
    assert {name: len(members) for name, members in whole.splits.items()} == {"train": 24, "val": 6, "test": 10}
    assert names(whole.split("test")) == names(dataset.split("test"))
    assert len(hold_out(dataset, val_fraction=0.2, part="train")) == 24


def test_a_lone_split_to_train_on_is_divided_as_if_it_had_no_name(dataset):
    named, plain = (
        hold_out(replace(dataset, splits=splits), val_fraction=0.25, part="val")
        for splits in ({"train": np.arange(40)[::-1]}, {})
    )
    assert names(named) == names(plain)


def test_another_seed_holds_out_others(dataset):
    first, second = (hold_out(dataset, val_fraction=0.25, part="val", seed=seed) for seed in (0, 1))
    assert names(first) != names(second)


def test_limit_draws_from_the_part_in_its_order(dataset):
    part = names(hold_out(dataset, val_fraction=0.5, part="train"))
    drawn = names(hold_out(dataset, val_fraction=0.5, part="train", limit=6))
    assert len(drawn) == 6
    assert drawn == [name for name in part if name in drawn]
    assert drawn != part[:6]


def test_limit_above_the_number_of_images_keeps_them_all(dataset):
    assert len(hold_out(dataset, limit=1000)) == 40


def test_rejects_a_part_of_nothing_and_a_limit_below_one(dataset):
    with pytest.raises(ConfigError, match=r"part=val needs val_fraction"):
        hold_out(dataset, part="val")
    with pytest.raises(ConfigError, match="limit must be at least 1 image, got 0"):
        hold_out(dataset, limit=0)
