import json

import numpy as np
import pytest

from manylabel.data import scenes
from manylabel.errors import ConfigError
from manylabel.recipes import SelfDistillation
from manylabel.recipes.self_distillation.lessons import Lesson, divide, own_pictures, plan_lessons, read_or_divide
from manylabel.targets import Targets
from manylabel.types import LabelSpace

HOW = {"k": 4, "tau": 2.0, "seed": 0}


@pytest.fixture(scope="module")
def pictures():
    return scenes(200)


@pytest.mark.parametrize(
    ("partition", "names"),
    [("both", ["co", "dis"]), ("co", ["co"]), ("dis", ["dis"]), ("random", ["random"]), ("whole", ["whole"])],
)
def test_the_teachers_of_each_side_know_every_label_once(pictures, partition, names):
    sides = divide(pictures, partition=partition, **HOW)
    assert [side.name for side in sides] == names
    for side in sides:
        lessons = [lesson for lesson in plan_lessons(sides) if lesson.side == side.name]
        assert len(lessons) == (1 if partition == "whole" else 4)
        assert sorted(name for lesson in lessons for name in lesson.labels) == sorted(pictures.labels)
    assert [lesson.number for lesson in plan_lessons(sides)] == list(range(len(plan_lessons(sides))))


def test_what_was_divided_once_stays(pictures, tmp_path):
    first = read_or_divide(tmp_path, pictures, partition="both", **HOW)
    assert (tmp_path / "label-graph.png").stat().st_size > 10_000
    assert len(json.loads((tmp_path / "partitions.json").read_text())["sides"]) == 2
    assert read_or_divide(tmp_path, pictures.subset([0]), partition="both", **HOW) == first


def test_a_teacher_trains_on_the_pictures_with_one_of_its_labels():
    targets = Targets.from_lists([[0], [1, 2], [2], []], num_labels=4, unknown=[[], [], [1], [0]])
    labels = LabelSpace(["cat", "dog", "cow", "emu"])

    def chosen(*names, which="own"):
        return np.flatnonzero(own_pictures(targets, labels, Lesson("co-01", "co", names, 0), which=which)).tolist()

    assert chosen("cat", "dog") == [0, 1]  # unknown is not present
    assert chosen("cat", "dog", which="all") == [0, 1, 2, 3]
    assert chosen("cow") == [0, 1, 2, 3]  # alone: it would never be seen missing
    assert chosen("cat", "emu") == [0]
    empty = Targets.from_lists([[0], [1]], num_labels=4)
    assert own_pictures(empty, labels, Lesson("co-01", "co", ("cow", "emu"), 0), which="own").all()


def test_the_budget_counts_every_picture_that_is_seen(pictures):
    settings = SelfDistillation(data="x", partition="both", k=4, epochs=6, teacher_epochs=3)
    lessons = plan_lessons(divide(pictures, partition="both", **HOW))
    present = pictures.targets.present.toarray()
    seen = 6 * len(pictures)
    for lesson in lessons:
        columns = [pictures.labels.index(name) for name in lesson.labels]
        seen += 3 * (len(pictures) if len(columns) == 1 else int(present[:, columns].any(axis=1).sum()))
    assert settings.budget(pictures, lessons) == pytest.approx(seen / len(pictures))
    assert settings.total_epochs(pictures) == pytest.approx(seen / len(pictures) + round(seen / len(pictures)))


def test_settings_that_do_not_fit_are_refused():
    with pytest.raises(ConfigError, match="cannot be cached; set logits to online"):
        SelfDistillation(data="x", training="finetune", logits="cached")
    with pytest.raises(ConfigError, match="devices must be 1, got 2"):
        SelfDistillation(data="x", devices=2)
    with pytest.raises(ConfigError, match="co_share must be from 0 to 1"):
        SelfDistillation(data="x", co_share=1.5)
