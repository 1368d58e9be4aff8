"""Precision, recall, F1, subset accuracy and Hamming loss, against scikit-learn and by hand."""

import numpy as np
import pytest
import torch
from sklearn.metrics import accuracy_score, f1_score, precision_score, recall_score
from sklearn.metrics import hamming_loss as reference_hamming_loss

from manylabel.errors import ConfigError
from manylabel.metrics import hamming_loss, precision_recall, subset_accuracy


def test_equals_scikit_learn_at_a_threshold(random_case):
    scores, targets, _ = random_case
    result = precision_recall(scores, targets, threshold=0.6)
    predicted, truth = (scores >= 0.6).numpy(), targets.numpy()
    has = truth.any(axis=0)
    precisions = precision_score(truth, predicted, average=None, zero_division=0)
    recalls = recall_score(truth, predicted, average=None, zero_division=0)
    assert result.precision[has].tolist() == pytest.approx(precisions[has].tolist())
    assert result.recall[has].tolist() == pytest.approx(recalls[has].tolist())
    assert result.class_precision.item() == pytest.approx(precisions[has].mean())
    assert result.class_recall.item() == pytest.approx(recalls[has].mean())
    assert result.overall_precision.item() == pytest.approx(precision_score(truth, predicted, average="micro"))
    assert result.overall_recall.item() == pytest.approx(recall_score(truth, predicted, average="micro"))
    assert result.overall_f1.item() == pytest.approx(f1_score(truth, predicted, average="micro"))


def test_class_f1_is_the_harmonic_mean_of_the_means(random_case):
    result = precision_recall(*random_case)
    precision, recall = result.class_precision.item(), result.class_recall.item()
    assert result.class_f1.item() == pytest.approx(2 * precision * recall / (precision + recall))


def test_a_label_never_predicted_counts_with_precision_zero():
    scores, targets = torch.tensor([[0.9, 0.1], [0.8, 0.2]]), torch.tensor([[1, 1], [1, 0]])
    result = precision_recall(scores, targets)
    assert result.precision.tolist() == [1, 0]
    assert result.class_precision.item() == 0.5


def test_a_label_without_positives_is_left_out_of_the_means_but_not_overall():
    scores, targets = torch.tensor([[0.9, 0.9]]), torch.tensor([[1, 0]])
    result = precision_recall(scores, targets)
    assert result.precision.isnan().tolist() == [False, True]
    assert (result.class_precision.item(), result.overall_precision.item()) == (1, 0.5)


def test_unknown_labels_count_neither_way(random_case):
    scores, targets, known = random_case
    result = precision_recall(scores, targets, known, threshold=0.4)
    entries = known.numpy()
    truth, predicted = targets.numpy()[entries], (scores >= 0.4).numpy()[entries]
    assert result.overall_precision.item() == pytest.approx(precision_score(truth, predicted))
    assert result.overall_recall.item() == pytest.approx(recall_score(truth, predicted))


def test_each_label_may_have_its_own_threshold(random_case):
    scores, targets, _ = random_case
    limits = np.linspace(0.1, 0.9, 9)
    result = precision_recall(scores, targets, threshold=limits.tolist())
    predicted = scores.numpy() >= limits.astype(np.float32)
    assert result.overall_f1.item() == pytest.approx(f1_score(targets.numpy(), predicted, average="micro"))


@pytest.mark.parametrize("k", [1, 3, 5, 50])
def test_top_k_predicts_the_k_highest_scores_of_each_image(k):
    random = np.random.default_rng(k)
    scores, targets = random.random((40, 7)), random.random((40, 7)) < 0.3
    predicted = np.zeros_like(targets)
    for row, order in enumerate(np.argsort(-scores, axis=1)):
        predicted[row, order[:k]] = True
    expected = f1_score(targets, predicted, average="micro")
    result = precision_recall(torch.from_numpy(scores), torch.from_numpy(targets), top_k=k)
    assert result.overall_f1.item() == pytest.approx(expected)


def test_predicting_nothing_is_no_precision_at_all_but_a_defined_one():
    result = precision_recall(torch.zeros(3, 2), torch.ones(3, 2))
    numbers = (result.class_f1, result.overall_f1, result.class_precision, result.overall_precision)
    assert [number.item() for number in numbers] == [0, 0, 0, 0]


def test_false_alarms_alone_have_precision_zero_and_no_recall():
    result = precision_recall(torch.ones(3, 2), torch.zeros(3, 2))
    assert result.overall_precision.item() == 0
    assert result.overall_recall.isnan()
    assert result.class_precision.isnan()


def test_rejects_a_threshold_beside_top_k():
    with pytest.raises(ConfigError, match="not both"):
        precision_recall(torch.rand(2, 2), torch.ones(2, 2), threshold=0.5, top_k=1)


@pytest.mark.parametrize("threshold", [0.2, 0.5])
def test_subset_accuracy_and_hamming_loss_equal_scikit_learn(random_case, threshold):
    scores, targets, _ = random_case
    scores, targets = scores[:, :2], targets[:, :2]
    predicted = (scores >= threshold).numpy()
    expected = accuracy_score(targets.numpy(), predicted), reference_hamming_loss(targets.numpy(), predicted)
    results = subset_accuracy(scores, targets, threshold=threshold), hamming_loss(scores, targets, threshold=threshold)
    assert [result.item() for result in results] == pytest.approx(expected)


def test_subset_accuracy_and_hamming_loss_look_only_at_what_is_known():
    scores = torch.tensor([[0.9, 0.9], [0.9, 0.1], [0.1, 0.1]])
    targets = torch.tensor([[1, 0], [0, 0], [0, 0]])
    known = torch.tensor([[True, False], [True, True], [False, False]])
    assert subset_accuracy(scores, targets, known).item() == 0.5  # of the third image nothing is known
    assert hamming_loss(scores, targets, known).item() == pytest.approx(1 / 3)
