import numpy as np
import pytest
import torch

from manylabel.classifier import Classifier
from manylabel.errors import LabelError
from manylabel.heads import LinearClassifier
from manylabel.labelgraph import Partition
from manylabel.recipes.self_distillation.lessons import Side, plan_lessons
from manylabel.recipes.self_distillation.merging import (
    CachedTeachers,
    OnlineTeachers,
    columns,
    merge,
    write_logits,
)
from manylabel.types import Batch, FeatureBatch, LabelSpace

LABELS = LabelSpace([f"label {number}" for number in range(26)])


def side_of(num_subsets):
    """Labels dealt out at random."""
    order = np.random.default_rng(0).permutation(len(LABELS))
    subsets = tuple(tuple(LABELS[place] for place in sorted(order[start::num_subsets])) for start in range(num_subsets))
    return Side("co", Partition(subsets, kind="co"))


def teacher_of(names, seed=0):
    torch.manual_seed(seed)
    return Classifier.create("resnet10t", head=LinearClassifier, labels=list(names), pretrained=False, image_size=64)


@pytest.mark.parametrize("num_subsets", [1, 5, 11, 13, 26])
def test_every_label_gets_its_own_logit_however_many_teachers_there_are(num_subsets):
    lessons = plan_lessons([side_of(num_subsets)])
    assert sorted(lesson.name for lesson in lessons) == [lesson.name for lesson in lessons]  # also as names of folders
    truth = torch.randn(3, len(LABELS))
    parts = [torch.stack([truth[:, LABELS.index(name)] for name in lesson.labels], dim=1) for lesson in lessons]
    places = [columns(LabelSpace(lesson.labels), LABELS) for lesson in lessons]
    assert torch.equal(merge(parts, places), truth)
    assert torch.equal(merge(parts[::-1], places[::-1]), truth)  # the order of teachers does not matter


def test_a_label_without_a_teacher_or_with_two_is_refused():
    with pytest.raises(LabelError, match="must know every label once"):
        merge([torch.zeros(1, 2), torch.zeros(1, 1)], [torch.tensor([0, 1]), torch.tensor([1])])


def feature_batches(features, views):
    for view in range(views):
        rows = torch.arange(features.shape[1])
        yield FeatureBatch(
            (features[view],),
            torch.zeros(len(rows), len(LABELS)),
            torch.ones(len(rows), len(LABELS)).bool(),
            rows,
            torch.full_like(rows, view),
        )


def test_cached_answers_are_those_of_the_teachers_asked_online(tmp_path):
    teachers = [teacher_of(lesson.labels, lesson.number) for lesson in plan_lessons([side_of(11)])]
    features = torch.randn(2, 9, 512, 1, 1)
    file = tmp_path / "co.npy"
    write_logits(
        file,
        iter(teachers),
        lambda: feature_batches(features, 2),
        labels=LABELS,
        num_views=2,
        num_pictures=9,
    )
    rows, views = torch.tensor([4, 0, 8]), torch.tensor([1, 0, 1])
    batch = FeatureBatch(
        (features[views, rows],), torch.zeros(3, len(LABELS)), torch.ones(3, len(LABELS)).bool(), rows, views
    )
    cached, online = CachedTeachers([file])(batch)[0], OnlineTeachers([teachers], LABELS)(batch)[0]
    assert torch.allclose(cached, online, atol=1e-6)
    for name in LABELS:
        (teacher,) = [each for each in teachers if name in each.labels]
        alone = teacher.head(batch.features)[:, teacher.labels.index(name)]
        assert torch.allclose(online[:, LABELS.index(name)], alone, atol=1e-6)


def test_one_teacher_at_a_time_is_held_while_answers_are_written(tmp_path):
    import gc
    import weakref

    alive, most = weakref.WeakSet(), []

    def load():
        for lesson in plan_lessons([side_of(5)]):
            teacher = teacher_of(lesson.labels)
            alive.add(teacher)
            gc.collect()
            most.append(len(alive))
            yield teacher

    features = torch.randn(1, 4, 512, 1, 1)
    arguments = {"labels": LABELS, "num_views": 1, "num_pictures": 4}
    write_logits(tmp_path / "co.npy", load(), lambda: feature_batches(features, 1), **arguments)
    assert len(most) == 5
    assert max(most) <= 2  # the one that is done and the next


def test_answers_that_are_there_are_not_asked_for_again(tmp_path):
    np.save(tmp_path / "co.npy", np.zeros((1, 1, len(LABELS)), np.float32))
    write_logits(tmp_path / "co.npy", iter([None]), None, labels=LABELS, num_views=1, num_pictures=1)


def test_answers_about_another_number_of_pictures_are_written_again(tmp_path):
    np.save(tmp_path / "co.npy", np.ones((1, 3, len(LABELS)), np.float32))
    write_logits(tmp_path / "co.npy", iter([]), None, labels=LABELS, num_views=1, num_pictures=4)
    assert np.load(tmp_path / "co.npy").shape == (1, 4, len(LABELS))


def test_asking_teachers_changes_nothing_about_them():
    teacher = teacher_of(LABELS)
    teacher.train()
    teachers = OnlineTeachers([[teacher]], LABELS)
    before = {name: value.clone() for name, value in teacher.state_dict().items()}
    batch = Batch(
        torch.rand(4, 3, 64, 64), torch.zeros(4, len(LABELS)), torch.ones(4, len(LABELS)).bool(), torch.arange(4)
    )
    answers = teachers(batch)[0]
    assert not answers.requires_grad
    assert not any(parameter.requires_grad for parameter in teacher.parameters())
    after = teacher.state_dict()
    assert all(torch.equal(value, after[name]) for name, value in before.items())  # batch-norm statistics included
