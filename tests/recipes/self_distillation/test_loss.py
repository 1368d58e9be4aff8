import math
from copy import deepcopy

import pytest
import torch

from manylabel.losses import AsymmetricLoss
from manylabel.recipes.self_distillation.loss import Distillation, distance
from manylabel.training import ClassificationTask, LoopSettings
from manylabel.types import FeatureBatch


class Fixed(torch.nn.Module):
    """Says the same of every picture."""

    def __init__(self, logits):
        super().__init__()
        self.logits = torch.nn.Parameter(torch.tensor(logits))

    def forward(self, features):
        return self.logits.expand(len(features[0]), -1)


def batch_of(targets, known):
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


def training_loss(guide, batch, logits):
    task = ClassificationTask(Fixed(logits), AsymmetricLoss(), settings=LoopSettings(), guide=guide)
    task.log = lambda *arguments, **named: None
    return task.training_step(batch, 0)


def test_the_loss_of_two_pictures_worked_out_by_hand():
    student = [1.0, -2.0]
    co, dis = torch.tensor([[2.0, -1.0], [0.0, 0.0]]), torch.tensor([[1.0, 1.0], [3.0, -2.0]])
    guide = Distillation(lambda batch: [co, dis], shares=(0.5, 0.5))
    batch = batch_of([[1.0, 0.0], [0.0, 0.0]], [[True, True], [True, False]])
    classification = asymmetric(1.0, True) + asymmetric(-2.0, False) + asymmetric(1.0, False)  # the last is unknown
    to_co = (1 - 2) ** 2 + (-2 + 1) ** 2 + (1 - 0) ** 2 + (-2 - 0) ** 2
    to_dis = (1 - 1) ** 2 + (-2 - 1) ** 2 + (1 - 3) ** 2 + (-2 + 2) ** 2
    assert training_loss(guide, batch, student).item() == pytest.approx(classification + 0.5 * (to_co + to_dis))


def test_unknown_labels_count_for_the_teachers_but_not_for_the_targets():
    batch = batch_of([[0.0]], [[False]])
    teachers = torch.tensor([[3.0]])
    loss = training_loss(Distillation(lambda batch: [teachers], shares=(1.0,)), batch, [1.0])
    assert loss.item() == 4
    assert training_loss(None, batch, [1.0]).item() == 0


def test_shares_and_weight():
    answers = [torch.tensor([[1.0]]), torch.tensor([[2.0]])]
    guide = Distillation(lambda batch: answers, shares=(0.25, 0.75), weight=2.0)
    assert guide(batch_of([[0.0]], [[True]]), torch.tensor([[0.0]])).item() == 2 * (0.25 * 1 + 0.75 * 4)


def test_the_divergence_is_that_of_a_yes_or_no_per_label():
    student, teacher, temperature = torch.tensor([[0.5, -1.0]]), torch.tensor([[2.0, 3.0]]), 2.0
    expected = 0.0
    for own, other in zip(student[0].tolist(), teacher[0].tolist(), strict=True):
        q, p = (1 / (1 + math.exp(-logit / temperature)) for logit in (own, other))
        expected += temperature**2 * (p * math.log(p / q) + (1 - p) * math.log((1 - p) / (1 - q)))
    assert distance(student, teacher, kind="kl", temperature=temperature).item() == pytest.approx(expected, rel=1e-5)
    mean = distance(student, teacher, kind="kl", temperature=temperature, reduction="mean")
    assert mean.item() == pytest.approx(expected / 2, rel=1e-5)


def test_the_gradient_goes_to_the_student_alone():
    student, teacher = torch.zeros(1, 1, requires_grad=True), torch.ones(1, 1)
    guide = Distillation(lambda batch: [teacher], shares=(1.0,))
    guide(batch_of([[0.0]], [[True]]), student).backward()
    assert student.grad.item() == -2


def test_the_average_of_a_task_shares_its_guide():
    guide = Distillation(lambda batch: [], shares=())
    task = ClassificationTask(Fixed([0.0]), AsymmetricLoss(), settings=LoopSettings(), guide=guide)
    assert deepcopy(task).guide is guide
    assert set(task.state_dict()) == {"model.logits"}
