"""Seen and unseen labels: every way to name them, and what is left to train on."""

import pytest

from manylabel.data import scenes
from manylabel.errors import ConfigError, DataError, LabelError
from manylabel.recipes import NAMED_SPLITS, choose_unseen
from manylabel.recipes.unseen import seen_part
from manylabel.types import LabelSpace

LABELS = LabelSpace([f"label {number}" for number in range(20)])


def test_draws_follow_from_the_seed_alone():
    first, again, other = (choose_unseen("random:5", LABELS, seed=seed) for seed in (3, 3, 4))
    assert first == again != other
    assert len(set(first)) == 5
    assert len(choose_unseen("random:0.25", LABELS)) == 5


def test_reads_lists_and_files_in_the_order_of_the_data(tmp_path):
    (tmp_path / "unseen.txt").write_text("label 7\nlabel 2\n")
    expected = ("label 2", "label 7")
    assert choose_unseen("label 7|label 2", LABELS) == choose_unseen(str(tmp_path / "unseen.txt"), LABELS) == expected
    assert choose_unseen("none", LABELS) == ()


def test_the_coco_split_has_fifteen_labels():
    assert len(set(NAMED_SPLITS["coco_65_15"])) == 15
    labels = LabelSpace([*NAMED_SPLITS["coco_65_15"], "person"])
    assert choose_unseen("coco_65_15", labels) == NAMED_SPLITS["coco_65_15"]


def test_nus_wide_has_its_concepts_unseen(tmp_path):
    (tmp_path / "Concepts81.txt").write_text("sky\ncat\n")
    (tmp_path / "TagList1k.txt").write_text("nature\nsky\n")
    labels = LabelSpace(["nature", "sky", "cat"])
    assert choose_unseen("nus_wide", labels, data=f"nus_wide:{tmp_path},labels=1006") == ("sky", "cat")


@pytest.mark.parametrize("unseen", ["random:0", "random:20", "random:many", "|".join(LABELS)])
def test_rejects_splits_with_nothing_on_one_side(unseen):
    with pytest.raises(ConfigError):
        choose_unseen(unseen, LABELS)


def test_rejects_labels_that_are_not_there():
    with pytest.raises(LabelError, match="no label 'label 77'"):
        choose_unseen("label 77", LABELS)


def test_never_trains_on_unseen_labels_and_keeps_the_images_asked_for():
    dataset, unseen = scenes(60), ("tree", "cloud", "house")
    positions = [dataset.labels.index(name) for name in unseen]
    values = dataset.targets.dense()[0]
    has_unseen = values[:, positions].any(1)
    has_seen = (values.sum(1) - values[:, positions].sum(1)) > 0
    expected = {"with_seen": has_seen, "without_unseen": ~has_unseen, "all": has_seen | ~has_seen}
    for images, mask in expected.items():
        part = seen_part(dataset, unseen, images=images)
        assert not set(unseen) & set(part.labels)
        assert len(part) == mask.sum()
    assert seen_part(dataset, (), images="with_seen") is dataset


def test_says_when_no_image_is_left():
    dataset = scenes(3)
    unseen = tuple(dataset.labels)[:-1]
    with pytest.raises(DataError, match="is left to train on"):
        seen_part(dataset, unseen, images="without_unseen")
