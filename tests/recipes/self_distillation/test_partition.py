import json

import numpy as np
import pytest

from manylabel.data import scenes
from manylabel.errors import ConfigError, ManyLabelError
from manylabel.recipes import SelfDistillation, TrainAndVal, self_distillation
from manylabel.recipes.self_distillation.partition import (
    TeacherTask,
    image_mask,
    partition_sides,
    read_or_partition,
    teacher_tasks,
)
from manylabel.targets import Targets
from manylabel.types import LabelSpace

HOW = {"k": 4, "tau": 2.0, "seed": 0}


@pytest.fixture(scope="module")
def images():
    return scenes(200)


@pytest.mark.parametrize(
    ("partition", "names"),
    [("both", ["co", "dis"]), ("co", ["co"]), ("dis", ["dis"]), ("random", ["random"]), ("whole", ["whole"])],
)
@pytest.mark.slow
def test_the_teachers_of_each_side_know_every_label_once(images, partition, names):
    sides = partition_sides(images, partition=partition, **HOW)
    assert [side.name for side in sides] == names
    for side in sides:
        tasks = [task for task in teacher_tasks(sides) if task.side == side.name]
        assert len(tasks) == (1 if partition == "whole" else 4)
        assert sorted(name for task in tasks for name in task.labels) == sorted(images.labels)
    assert [task.number for task in teacher_tasks(sides)] == list(range(len(teacher_tasks(sides))))


@pytest.mark.slow
def test_what_was_divided_once_stays(images, tmp_path):
    first = read_or_partition(tmp_path, images, partition="both", **HOW)
    assert (tmp_path / "label-graph.png").stat().st_size > 10_000
    assert len(json.loads((tmp_path / "partitions.json").read_text())["sides"]) == 2
    assert read_or_partition(tmp_path, images.subset([0]), partition="both", **HOW) == first


def test_a_teacher_trains_on_the_images_with_one_of_its_labels():
    targets = Targets.from_lists([[0], [1, 2], [2], []], num_labels=4, unknown=[[], [], [1], [0]])
    labels = LabelSpace(["cat", "dog", "cow", "emu"])

    def chosen(*names, which="own"):
        return np.flatnonzero(image_mask(targets, labels, TeacherTask("co-01", "co", names, 0), which=which)).tolist()

    assert chosen("cat", "dog") == [0, 1]  # unknown is not present
    assert chosen("cat", "dog", which="all") == [0, 1, 2, 3]
    assert chosen("cow") == [0, 1, 2, 3]  # alone: it would never be seen missing
    assert chosen("cat", "emu") == [0]
    empty = Targets.from_lists([[0], [1]], num_labels=4)
    assert image_mask(empty, labels, TeacherTask("co-01", "co", ("cow", "emu"), 0), which="own").all()


@pytest.mark.parametrize("which", ["all", "own"])
@pytest.mark.slow
def test_a_plan_counts_every_image_that_teachers_student_and_baseline_see(images, which, tmp_path):
    settings = SelfDistillation(
        data="x", partition="both", k=4, epochs=6, teacher_epochs=3, teacher_images=which, backbone="resnet10t",
        pretrained=False, image_size=32, head="linear", device="cpu",
    )  # fmt: skip
    present = images.targets.present.toarray()
    seen = (6 + 3) * len(images)
    for task in teacher_tasks(partition_sides(images, partition="both", **HOW)):
        columns = [images.labels.index(name) for name in task.labels]
        alone = len(columns) == 1 or which == "all"
        seen += 3 * (len(images) if alone else int(present[:, columns].any(axis=1).sum()))
    setup = self_distillation.setup(settings, sets=TrainAndVal(images, images))
    assert setup.total_epochs == pytest.approx(seen / len(images))


def test_teachers_train_on_all_images_unless_asked_otherwise():
    assert SelfDistillation(data="x").teacher_images == "all"


def test_settings_that_do_not_fit_are_refused():
    with pytest.raises(ConfigError, match="devices must be 1, got 2"):
        SelfDistillation(data="x", devices=2)
    with pytest.raises(ConfigError, match=r"distillation_weight must be a number of at least 0 up to 1, got 1\.5"):
        SelfDistillation(data="x", distillation_weight=1.5)


@pytest.mark.parametrize("content", ["", "{}", '{"sides": [3]}', '{"sides": [{"name": "co", "subsets": [[1]]}]}'])
def test_a_damaged_file_of_partitions_is_refused(tmp_path, images, content):
    (tmp_path / "partitions.json").write_text(content)
    with pytest.raises(ManyLabelError, match=r"partitions\.json is damaged|not a partition of labels"):
        read_or_partition(tmp_path, images, partition="co", **HOW)
