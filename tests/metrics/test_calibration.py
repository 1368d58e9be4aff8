"""Calibration, against torchmetrics and by hand."""

import pytest
import torch
from torchmetrics.functional.classification import binary_calibration_error

from manylabel.errors import ConfigError
from manylabel.metrics import calibration, inputs


@pytest.mark.parametrize("num_bins", [1, 10, 15])
def test_equals_torchmetrics_over_all_known_entries(random_case, num_bins):
    scores, targets, known = random_case
    expected = binary_calibration_error(scores[known], targets[known].long(), n_bins=num_bins)
    assert calibration(scores, targets, known, num_bins=num_bins).error.item() == pytest.approx(
        expected.item(), abs=1e-6
    )


def test_a_score_of_one_belongs_to_the_last_bin():
    bins = calibration(torch.tensor([[1.0, 0.95, 0.0]]), torch.tensor([[1, 0, 0]]), num_bins=10)
    assert bins.counts.tolist() == [1, 0, 0, 0, 0, 0, 0, 0, 0, 2]
    assert bins.fractions[-1].item() == 0.5
    assert bins.scores[-1].item() == pytest.approx(0.975)


def test_blocks_change_nothing(random_case, monkeypatch):
    whole = calibration(*random_case)
    monkeypatch.setattr(inputs, "BLOCK", 40)
    assert calibration(*random_case).error.item() == pytest.approx(whole.error.item())


def test_an_empty_bin_has_neither_score_nor_fraction():
    bins = calibration(torch.tensor([[0.9]]), torch.tensor([[1]]), num_bins=2)
    assert bins.scores.isnan().tolist() == bins.fractions.isnan().tolist() == [True, False]


def test_rejects_logits_and_no_bins():
    with pytest.raises(ConfigError, match="apply sigmoid"):
        calibration(torch.tensor([[2.5]]), torch.tensor([[1]]))
    with pytest.raises(ConfigError, match="num_bins must be at least 1, got 0"):
        calibration(torch.tensor([[0.5]]), torch.tensor([[1]]), num_bins=0)
