"""Subset accuracy, Hamming loss and top-1 accuracy, against scikit-learn and by hand."""

import numpy as np
import pytest
import torch
from sklearn.metrics import accuracy_score
from sklearn.metrics import hamming_loss as reference_hamming_loss

from manylabel.errors import ConfigError
from manylabel.metrics import hamming_loss, subset_accuracy, top_one_accuracy


@pytest.mark.parametrize("threshold", [0.2, 0.5])
def test_equal_scikit_learn(random_case, threshold):
    scores, targets, _ = random_case
    scores, targets = scores[:, :2], targets[:, :2]
    predicted = (scores >= threshold).numpy()
    expected = accuracy_score(targets.numpy(), predicted), reference_hamming_loss(targets.numpy(), predicted)
    results = subset_accuracy(scores, targets, threshold=threshold), hamming_loss(scores, targets, threshold=threshold)
    assert [result.item() for result in results] == pytest.approx(expected)


def test_look_only_at_what_is_known():
    scores = torch.tensor([[0.9, 0.9], [0.9, 0.1], [0.1, 0.1]])
    targets = torch.tensor([[1, 0], [0, 0], [0, 0]])
    known = torch.tensor([[True, False], [True, True], [False, False]])
    assert subset_accuracy(scores, targets, known).item() == 0.5  # of the third picture nothing is known
    assert hamming_loss(scores, targets, known).item() == pytest.approx(1 / 3)


def test_are_zero_and_not_nan_of_nothing():
    nothing = torch.zeros(2, 3, dtype=torch.bool)
    assert subset_accuracy(torch.rand(2, 3), nothing, nothing).item() == 0
    assert hamming_loss(torch.rand(2, 3), nothing, nothing).item() == 0


def test_top_one_is_the_share_of_pictures_named_right():
    random = np.random.default_rng(0)
    scores, classes = random.random((50, 4)), random.integers(0, 4, size=50)
    targets = torch.nn.functional.one_hot(torch.from_numpy(classes), 4)
    expected = accuracy_score(classes, scores.argmax(axis=1))
    assert top_one_accuracy(torch.from_numpy(scores), targets).item() == pytest.approx(expected)


def test_top_one_rejects_pictures_with_several_labels():
    with pytest.raises(ConfigError, match="one label per picture, but 1 have several"):
        top_one_accuracy(torch.rand(2, 2), torch.tensor([[1, 1], [0, 1]]))


def test_top_one_leaves_out_pictures_whose_label_is_not_known():
    scores = torch.tensor([[0.9, 0.1], [0.9, 0.1], [0.1, 0.9]])
    assert top_one_accuracy(scores, torch.tensor([[1, 0], [0, 0], [1, 0]])).item() == 0.5
    assert top_one_accuracy(scores, torch.zeros(3, 2)).item() == 0
