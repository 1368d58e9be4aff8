import math
from copy import deepcopy

import numpy as np
import pytest
import torch

from manylabel.classifier import Classifier
from manylabel.errors import LabelError
from manylabel.heads import LinearClassifier
from manylabel.labelgraph import Partition
from manylabel.losses import AsymmetricLoss
from manylabel.recipes.self_distillation.partition import Side, TeacherTask, teacher_tasks
from manylabel.recipes.self_distillation.student import (
    CachedTeachers,
    Distillation,
    OnlineTeachers,
    TeacherMask,
    columns,
    merge,
    write_logits,
)
from manylabel.settings import LoopSettings
from manylabel.targets import Targets
from manylabel.training import ClassificationTask
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
    tasks = teacher_tasks([side_of(num_subsets)])
    assert sorted(task.name for task in tasks) == [task.name for task in tasks]  # also as names of folders
    truth = torch.randn(3, len(LABELS))
    parts = [torch.stack([truth[:, LABELS.index(name)] for name in task.labels], dim=1) for task in tasks]
    places = [columns(LabelSpace(task.labels), LABELS) for task in tasks]
    assert torch.equal(merge(parts, places), truth)
    assert torch.equal(merge(parts[::-1], places[::-1]), truth)  # the order of teachers does not matter


def test_a_label_without_a_teacher_or_with_two_is_refused():
    with pytest.raises(LabelError, match="must cover each label once"):
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


@pytest.mark.slow
def test_cached_answers_are_those_of_the_teachers_asked_online(tmp_path):
    teachers = [teacher_of(task.labels, task.number) for task in teacher_tasks([side_of(11)])]
    features = torch.randn(2, 9, 512, 1, 1)
    file, counted = tmp_path / "co.npy", []
    write_logits(
        file,
        iter(teachers),
        lambda: feature_batches(features, 2),
        labels=LABELS,
        num_views=2,
        num_images=9,
        part=lambda teacher: teacher.head,
        progress=counted.append,
    )
    assert sum(counted) == 11 * 2 * 9
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


@pytest.mark.slow
def test_one_teacher_at_a_time_is_held_while_answers_are_written(tmp_path):
    import gc
    import weakref

    alive, most = weakref.WeakSet(), []

    def load():
        for task in teacher_tasks([side_of(5)]):
            teacher = teacher_of(task.labels)
            alive.add(teacher)
            gc.collect()
            most.append(len(alive))
            yield teacher

    features = torch.randn(1, 4, 512, 1, 1)
    arguments = {"labels": LABELS, "num_views": 1, "num_images": 4, "part": lambda teacher: teacher.head}
    write_logits(tmp_path / "co.npy", load(), lambda: feature_batches(features, 1), **arguments)
    assert len(most) == 5
    assert max(most) <= 2  # the one that is done and the next


def test_answers_that_are_there_are_not_asked_for_again(tmp_path):
    np.save(tmp_path / "co.npy", np.zeros((1, 1, len(LABELS)), np.float32))
    write_logits(tmp_path / "co.npy", iter([None]), None, labels=LABELS, num_views=1, num_images=1)


def test_answers_about_another_number_of_images_are_written_again(tmp_path):
    np.save(tmp_path / "co.npy", np.ones((1, 3, len(LABELS)), np.float32))
    write_logits(tmp_path / "co.npy", iter([]), None, labels=LABELS, num_views=1, num_images=4)
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


class Fixed(torch.nn.Module):
    """Says the same of every image."""

    def __init__(self, logits):
        super().__init__()
        self.logits = torch.nn.Parameter(torch.tensor(logits))

    def forward(self, features):
        return self.logits.expand(len(features[0]), -1)


def labelled(targets, known):
    rows = torch.arange(len(targets))
    features = (torch.zeros(len(targets), 1, 1, 1),)
    return FeatureBatch(features, torch.tensor(targets), torch.tensor(known), rows)


def asymmetric(logit, present):
    """One label's cost, as the paper of ASL writes it, with gamma- = 4, gamma+ = 0 and a margin of 0.05."""
    score = 1 / (1 + math.exp(-logit))
    if present:
        return -math.log(score)
    shifted = max(score - 0.05, 0)
    return -(shifted**4) * math.log(1 - shifted)


def training_loss(term, batch, logits):
    task = ClassificationTask(Fixed(logits), AsymmetricLoss(), settings=LoopSettings(), distillation=term)
    return task.training_step(batch, 0)["loss"]


def test_the_loss_of_two_images_worked_out_by_hand():
    student = [1.0, -2.0]
    co, dis = torch.tensor([[2.0, -1.0], [0.0, 0.0]]), torch.tensor([[1.0, 1.0], [3.0, -2.0]])
    term = Distillation(lambda batch: [co, dis])
    batch = labelled([[1.0, 0.0], [0.0, 0.0]], [[True, True], [True, False]])
    classification = asymmetric(1.0, True) + asymmetric(-2.0, False) + asymmetric(1.0, False)  # the last is unknown
    to_co = (1 - 2) ** 2 + (-2 + 1) ** 2 + (1 - 0) ** 2 + (-2 - 0) ** 2
    to_dis = (1 - 1) ** 2 + (-2 - 1) ** 2 + (1 - 3) ** 2 + (-2 + 2) ** 2
    expected = 0.5 * classification + 0.25 * to_co + 0.25 * to_dis  # as in the authors' code
    assert training_loss(term, batch, student).item() == pytest.approx(expected)


def test_unknown_labels_count_for_the_teachers_but_not_for_the_targets():
    batch = labelled([[0.0]], [[False]])
    teachers = torch.tensor([[3.0]])
    loss = training_loss(Distillation(lambda batch: [teachers]), batch, [1.0])
    assert loss.item() == 0.5 * 4
    assert training_loss(None, batch, [1.0]).item() == 0


def test_the_weight_is_shared_between_targets_and_teachers():
    batch, teachers = labelled([[1.0]], [[True]]), torch.tensor([[3.0]])
    for weight in (0.0, 0.25, 1.0):
        loss = training_loss(Distillation(lambda batch: [teachers], weight=weight), batch, [1.0])
        assert loss.item() == pytest.approx((1 - weight) * asymmetric(1.0, True) + weight * 4)


def test_the_gradient_goes_to_the_student_alone():
    student, teacher = torch.zeros(1, 1, requires_grad=True), torch.ones(1, 1)
    term = Distillation(lambda batch: [teacher])
    term(labelled([[0.0]], [[True]]), student).backward()
    assert student.grad.item() == -2


def test_the_average_of_a_task_shares_its_teachers():
    term = Distillation(lambda batch: [])
    task = ClassificationTask(Fixed([0.0]), AsymmetricLoss(), settings=LoopSettings(), distillation=term)
    assert deepcopy(task).distillation is term
    assert set(task.state_dict()) == {"model.logits"}


NINE = LabelSpace([f"label {number}" for number in range(9)])
SUBSETS = {"co": [(4, 0, 2), (1, 3), (5,), (6, 7, 8)], "dis": [(0, 1), (2, 3, 5, 6, 7, 8), (4,)]}
SHOWN = [[0], [1, 4], [], [2, 3, 5], [3], [0, 1, 2, 3, 4, 5]]  # nothing shows 6, 7 or 8


def tasks_of(side):
    subsets = [tuple(NINE.names[label] for label in subset) for subset in SUBSETS[side]]
    return [TeacherTask(f"{side}-{number:02}", side, subset, number) for number, subset in enumerate(subsets)]


def images_of(indices):
    count = len(indices)
    known = torch.ones(count, len(NINE)).bool()
    return Batch(torch.zeros(count, 3, 8, 8), torch.zeros(count, len(NINE)), known, torch.tensor(indices))


def counts(side, image, label):
    subset = next(subset for subset in SUBSETS[side] if label in subset)
    shown_somewhere = any(set(subset) & set(shown) for shown in SHOWN)
    return len(subset) == 1 or not shown_somewhere or bool(set(subset) & set(SHOWN[image]))


def test_a_teacher_counts_on_its_own_images():
    mask = TeacherMask([tasks_of("co"), tasks_of("dis")], Targets.from_lists(SHOWN, num_labels=9), NINE)
    order = [3, 0, 5, 2, 1, 4]
    for side, heard in zip(("co", "dis"), mask(images_of(order)), strict=True):
        assert heard.tolist() == [[counts(side, image, label) for label in range(9)] for image in order]
        assert not heard.all()


def test_where_no_teacher_counts_nothing_pulls():
    heard = torch.tensor([[True, False], [False, True]])
    student = torch.tensor([[1.0, 2.0], [3.0, -1.0]], requires_grad=True)
    term = Distillation(lambda batch: [torch.full((2, 2), 5.0)], mask=lambda batch: [heard])
    term(images_of([0, 1]), student).backward()
    assert torch.equal(student.grad != 0, heard)
