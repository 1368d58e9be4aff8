"""On which pictures and labels teachers are heard, against the rule written out."""

import pytest
import torch

from manylabel.recipes.self_distillation.hearing import Hearing
from manylabel.recipes.self_distillation.lessons import Lesson
from manylabel.recipes.self_distillation.loss import Distillation
from manylabel.targets import Targets
from manylabel.types import Batch, LabelSpace

LABELS = LabelSpace([f"label {number}" for number in range(9)])
SUBSETS = {"co": [(4, 0, 2), (1, 3), (5,), (6, 7, 8)], "dis": [(0, 1), (2, 3, 5, 6, 7, 8), (4,)]}
SHOWN = [[0], [1, 4], [], [2, 3, 5], [3], [0, 1, 2, 3, 4, 5]]  # nothing shows 6, 7 or 8


def lessons(side):
    subsets = [tuple(LABELS.names[label] for label in subset) for subset in SUBSETS[side]]
    return [Lesson(f"{side}-{number:02}", side, subset, number) for number, subset in enumerate(subsets)]


def batch_of(indices):
    count = len(indices)
    known = torch.ones(count, len(LABELS)).bool()
    return Batch(torch.zeros(count, 3, 8, 8), torch.zeros(count, len(LABELS)), known, torch.tensor(indices))


def is_heard(side, picture, label):
    subset = next(subset for subset in SUBSETS[side] if label in subset)
    shown_somewhere = any(set(subset) & set(shown) for shown in SHOWN)
    return len(subset) == 1 or not shown_somewhere or bool(set(subset) & set(SHOWN[picture]))


def test_a_teacher_is_heard_on_its_own_pictures():
    hearing = Hearing([lessons("co"), lessons("dis")], Targets.from_lists(SHOWN, num_labels=9), LABELS, which="own")
    order = [3, 0, 5, 2, 1, 4]
    for side, heard in zip(("co", "dis"), hearing(batch_of(order)), strict=True):
        assert heard.tolist() == [[is_heard(side, picture, label) for label in range(9)] for picture in order]
        assert not heard.all()


def test_teachers_of_all_pictures_are_heard_everywhere():
    hearing = Hearing([lessons("co")], Targets.from_lists(SHOWN, num_labels=9), LABELS, which="all")
    assert hearing(batch_of([0, 1, 2]))[0].all()


@pytest.mark.parametrize("kind", ["mse", "kl"])
def test_where_no_teacher_is_heard_nothing_pulls(kind):
    heard = torch.tensor([[True, False], [False, True]])
    student = torch.tensor([[1.0, 2.0], [3.0, -1.0]], requires_grad=True)
    guide = Distillation(
        lambda batch: [torch.full((2, 2), 5.0)], shares=(1.0,), kind=kind, hearing=lambda batch: [heard]
    )
    guide(batch_of([0, 1]), student).backward()
    assert torch.equal(student.grad != 0, heard)
