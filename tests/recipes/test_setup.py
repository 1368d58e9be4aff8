import logging
from functools import partial

import pytest
import torch

from manylabel.classifier import Classifier
from manylabel.data import load, scenes
from manylabel.errors import ConfigError, DataError
from manylabel.heads import LinearClassifier
from manylabel.recipes import (
    Probe,
    TrainAndVal,
    open_sets,
)
from manylabel.recipes.setup import load_to_train


def sizes(**settings):
    sets = open_sets(Probe(**settings))
    return len(sets.train), len(sets.val)


def test_the_datas_own_splits_come_first():
    assert sizes(data="scenes:20") == (16, 4)


def test_named_validation_images_come_before_all():
    assert sizes(data="scenes:20,split=train", val="scenes:30,split=val,seed=7") == (16, 6)


def test_else_a_share_is_held_out_and_always_the_same(tmp_path):
    assert sizes(data="scenes:20,split=train") == (13, 3)
    first, second = (open_sets(Probe(data="scenes:20,split=train", val_fraction=0.25, seed=seed)) for seed in (1, 2))
    names = [[sets.val.images.name(index) for index in range(len(sets.val))] for sets in (first, second)]
    assert names[0] == names[1]
    assert len(names[0]) == 4


def test_images_to_test_on_are_used_neither_for_training_nor_for_validation(tmp_path, caplog):
    for split, count in (("train", 10), ("test", 6)):
        for number in range(count):
            place = tmp_path / split / ("cat" if number % 2 else "dog")
            place.mkdir(parents=True, exist_ok=True)
            (place / f"{number}.jpg").touch()
    with caplog.at_level(logging.WARNING, "manylabel"):
        sets = open_sets(Probe(data=f"folder:{tmp_path}"))
    again = load(f"folder:{tmp_path},val_fraction=0.2,part=val")
    train, val, same = (
        [part.images.name(index) for index in range(len(part))] for part in (sets.train, sets.val, again)
    )
    assert (len(train), len(val)) == (8, 2)
    assert all(name.startswith("train/") for name in train + val)
    assert val == same
    assert "ignoring test" in caplog.text


def test_other_splits_are_not_trained_on_where_one_of_them_is_to_judge_by(tmp_path, caplog):
    for split in ("train", "val", "test"):
        for label in ("cat", "dog"):
            (tmp_path / split / label).mkdir(parents=True)
            (tmp_path / split / label / "a.jpg").touch()
    with caplog.at_level(logging.WARNING, "manylabel"):
        sets = open_sets(Probe(data=f"folder:{tmp_path}", val=f"folder:{tmp_path},split=test"))
    assert [sets.train.images.name(index) for index in range(len(sets.train))] == [
        "train/cat/a.jpg",
        "train/dog/a.jpg",
    ]
    assert "training on split train; ignoring val, test" in caplog.text


def split_table(folder, *splits):
    """A table with four images of each split."""
    rows = [f"{split}{number}.jpg,{'cat' if number % 2 else 'dog'},{split}" for split in splits for number in range(4)]
    (folder / "labels.csv").write_text("\n".join(["image,labels,split", *rows]))
    for row in rows:
        (folder / row.partition(",")[0]).touch()
    return f"csv:{folder / 'labels.csv'},images={folder}"


def test_splits_in_capitals_are_those_to_train_on_and_to_judge_by(tmp_path):
    sets = open_sets(Probe(data=split_table(tmp_path, "Train", "Val", "TEST")))
    names = [part.images.name(index) for part in (sets.train, sets.val) for index in range(len(part))]
    assert [name[:3] for name in names] == ["Tra"] * 4 + ["Val"] * 4


def test_splits_of_which_it_is_not_plain_what_they_are_for_are_named(tmp_path, caplog):
    with caplog.at_level(logging.WARNING, "manylabel"):
        sets = open_sets(Probe(data=split_table(tmp_path, "train1", "train2", "val")))
    assert len(sets.train) + len(sets.val) == 12
    assert "has the splits train1, train2, val, and the training split is ambiguous" in caplog.text


def test_a_limit_makes_both_parts_small():
    assert sizes(data="scenes:40", limit=5) == (5, 5)


def test_labels_of_another_order_are_put_in_order():
    train = scenes(10, split="train")
    val = scenes(10, split="val").select_labels(list(reversed(train.labels.names)))
    sets = TrainAndVal(train, val)
    assert sets.val.labels.names == train.labels.names


def test_labels_that_validation_does_not_know_are_told():
    train = scenes(10, split="train")
    with pytest.raises(DataError, match=r"has none of the 24 labels; available: unicorn"):
        TrainAndVal(train, scenes(10, split="val").select_labels(["cat"]).rename_labels({"cat": "unicorn"}))


def test_labels_of_one_table_only_are_absent_or_ignored_with_a_note(tmp_path, caplog):
    (tmp_path / "train.csv").write_text("image,labels\na.jpg,cat|dog\nb.jpg,cow\n")
    (tmp_path / "val.csv").write_text("image,labels\nc.jpg,dog|horse\nd.jpg,dog\n")
    (tmp_path / "labels.txt").write_text("cow\ncat\ndog\n")
    data, val = (f"csv:{tmp_path / name}.csv,images={tmp_path}" for name in ("train", "val"))
    caplog.set_level("WARNING", "manylabel")
    sets = open_sets(Probe(data=data, val=val))
    assert sets.val.labels.names == sets.train.labels.names == ("cat", "cow", "dog")
    assert sets.val.targets.dense()[0].tolist() == [[0, 0, 1], [0, 0, 1]]
    assert sets.val.targets.dense()[1].all()
    assert "val.csv lacks 2 labels, absent in it: cat, cow" in caplog.text
    assert "val.csv has 1 other label, ignored here: horse" in caplog.text
    sets = open_sets(Probe(data=f"{data},labels=labels.txt", val=f"{val},labels=labels.txt"))
    assert sets.train.labels.names == sets.val.labels.names == ("cow", "cat", "dog")


def test_a_part_without_images_is_told():
    with pytest.raises(DataError, match="no validation images"):
        TrainAndVal(scenes(5), scenes(5).subset([]))


@pytest.mark.slow
def test_finetuning_goes_on_at_another_image_size(sets, tmp_path):
    create = partial(Classifier.create, head=LinearClassifier, labels=sets.train.labels, pretrained=False)
    model = create("resnet10t", image_size=64).eval()
    model.save_pretrained(tmp_path / "model")
    larger = load_to_train(str(tmp_path / "model"), sets.train, image_size=96).eval()
    assert (larger.backbone.image_size, larger.input_spec.size) == (96, (96, 96))
    images = torch.rand(2, 3, 96, 96)
    assert torch.equal(model(images), larger(images))
    create("test_vit").save_pretrained(tmp_path / "fixed")
    with pytest.raises(ConfigError, match="only takes images of 160 pixels; remove image_size"):
        load_to_train(str(tmp_path / "fixed"), sets.train, image_size=96)
