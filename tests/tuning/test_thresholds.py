import pytest
import torch

from manylabel.errors import ConfigError
from manylabel.tuning import Objective, choose_thresholds
from manylabel.tuning import thresholds as thresholds_module


def counts(scores, targets, threshold):
    right = sum(score >= threshold and bool(there) for score, there in zip(scores, targets, strict=True))
    named = sum(score >= threshold for score in scores)
    return right, named, sum(map(bool, targets))


def value(scores, targets, threshold, objective):
    right, named, there = counts(scores, targets, threshold)
    precision, recall = right / max(named, 1), right / there
    if objective.kind == "f1":
        return 2 * right / (named + there)
    held, gained = (precision, recall) if objective.kind == "precision" else (recall, precision)
    return gained if held >= objective.target else -1


@pytest.mark.parametrize("objective", ["f1", "precision=0.7", "recall=0.8", "recall=1"])
@pytest.mark.parametrize("coarse", [False, True], ids=["distinct", "with equal scores"])
def test_no_other_threshold_is_better(objective, coarse):
    generator = torch.Generator().manual_seed(0)
    objective = Objective.parse(objective)
    targets = torch.rand(80, 5, generator=generator) < 0.4
    scores = (torch.rand(80, 5, generator=generator) + targets * 0.4) / 1.4
    scores = (scores * 8).round() / 8 if coarse else scores
    known = torch.rand(80, 5, generator=generator) < 0.8
    found = choose_thresholds(scores, targets, known, objective=objective, min_positives=1)
    for label in range(5):
        rows = known[:, label]
        column, truth = scores[rows, label].tolist(), targets[rows, label].tolist()
        best = max(value(column, truth, threshold, objective) for threshold in column)
        if best < 0:
            assert found.out_of_reach[label]
        else:
            assert value(column, truth, found.values[label].item(), objective) == pytest.approx(best)


def test_rare_labels_share_the_threshold_that_is_best_for_all():
    scores = torch.linspace(0, 1, 100)[:, None].repeat(1, 3)
    targets = scores > 0.6
    targets[:, 2] = False
    targets[-2:, 2] = True
    known = torch.ones_like(targets)
    found = choose_thresholds(scores, targets, known)
    assert found.too_rare.tolist() == [False, False, True]
    assert found.values[2] == pytest.approx(found.common)
    pooled = choose_thresholds(scores.reshape(-1, 1), targets.reshape(-1, 1), known.reshape(-1, 1))
    assert found.common == pytest.approx(pooled.values.item())


def test_a_precision_out_of_reach_falls_back_and_says_so():
    generator = torch.Generator().manual_seed(0)
    targets = torch.rand(200, 2, generator=generator) < 0.5
    scores = torch.rand(200, 2, generator=generator)
    scores[:, 0] = torch.where(targets[:, 0], 0.9, 0.1)
    scores[:, 1] = 1 - targets[:, 1].float() * scores[:, 1]
    found = choose_thresholds(scores, targets, torch.ones_like(targets), objective=Objective("precision", 0.95))
    assert found.out_of_reach.tolist() == [False, True]
    assert found.values[1] == pytest.approx(found.common)


def test_labels_in_blocks_get_the_same_thresholds(monkeypatch):
    generator = torch.Generator().manual_seed(0)
    targets, scores = torch.rand(50, 7, generator=generator) < 0.4, torch.rand(50, 7, generator=generator)
    expected = choose_thresholds(scores, targets, torch.ones_like(targets)).values
    monkeypatch.setattr("manylabel.tuning.thresholds.BLOCK", 100)
    assert torch.equal(choose_thresholds(scores, targets, torch.ones_like(targets)).values, expected)


@pytest.mark.parametrize("text", ["accuracy", "f1=0.5", "precision", "recall=2", "recall=high", "precision=0"])
def test_rejects_objectives_it_cannot_have(text):
    with pytest.raises(ConfigError, match=r"precision|recall"):
        Objective.parse(text)


def test_the_common_threshold_of_many_images_looks_at_all_labels(monkeypatch):
    monkeypatch.setattr(thresholds_module, "MOST_POOLED", 200)
    scores = torch.rand(200, 2, generator=torch.Generator().manual_seed(0))
    targets = torch.stack([scores[:, 0] > 0.2, scores[:, 1] > 0.8], dim=1)
    known = torch.ones_like(targets)
    common = choose_thresholds(scores, targets, known, min_positives=1000).common
    flipped = choose_thresholds(scores.flip(1), targets.flip(1), known, min_positives=1000).common
    assert common == flipped  # every second entry would be the first label alone
