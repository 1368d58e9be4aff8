from dataclasses import replace

import numpy as np
import pytest

from manylabel.data import Files, ImageDataset, hold_out
from manylabel.errors import ConfigError
from manylabel.targets import Targets
from manylabel.types import LabelSpace


@pytest.fixture
def dataset():
    pictures = Files("photos", [f"{number}.jpg" for number in range(40)])
    targets = Targets.from_lists([[number % 2] for number in range(40)], num_labels=2)
    return ImageDataset(pictures, targets, LabelSpace(["cat", "dog"]), splits={"all": range(40)})


def names(dataset):
    return [dataset.pictures.name(index) for index in range(len(dataset))]


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


def test_limit_above_the_number_of_pictures_keeps_them_all(dataset):
    assert len(hold_out(dataset, limit=1000)) == 40


def test_rejects_a_part_of_nothing_and_a_limit_below_one(dataset):
    with pytest.raises(ConfigError, match=r"part=val needs val_fraction"):
        hold_out(dataset, part="val")
    with pytest.raises(ConfigError, match="limit must be at least 1 picture, got 0"):
        hold_out(dataset, limit=0)
