"""The quick comparison of backbones."""

import numpy as np
import pytest
import torch
from sklearn.linear_model import Ridge

from manylabel.data import scenes
from manylabel.features import comparison
from manylabel.features.comparison import compare_backbones, ridge_scores


@pytest.fixture
def random():
    return np.random.default_rng(0)


def test_ridge_scores_are_those_of_scikit_learn_out_of_fold(random):
    features, targets = random.normal(2.0, 3.0, (23, 4)), random.integers(0, 2, (23, 3))
    known = random.random((23, 3)) < 0.8
    found = ridge_scores(*(torch.tensor(each) for each in (features, targets, known)), penalty=0.3).numpy()
    signs = np.where(known, 2.0 * targets - 1, 0.0)
    for row in range(23):
        fit = np.arange(23) % 5 != row % 5
        mean, std = features[fit].mean(0), features[fit].std(0, ddof=1)
        model = Ridge(alpha=0.3 * fit.sum()).fit((features[fit] - mean) / std, signs[fit])
        np.testing.assert_allclose(found[row], model.predict(((features[row] - mean) / std)[None])[0], atol=1e-6)


def test_features_that_tell_the_labels_apart_score_higher_than_noise(random):
    targets = torch.tensor(random.integers(0, 2, (200, 2)))
    telling = targets + torch.tensor(random.normal(0, 0.1, (200, 2)))
    noise = torch.tensor(random.normal(0, 1, (200, 2)))
    scores = [ridge_scores(each, targets, torch.ones_like(targets).bool(), penalty=0.1) for each in (telling, noise)]
    best = [float(comparison.mean_average_precision(each, targets)) for each in scores]
    assert best[0] == pytest.approx(1)
    assert best[1] < 0.7


@pytest.mark.slow
def test_backbones_are_compared_on_at_most_so_many_images(tmp_path, monkeypatch):
    monkeypatch.setenv("MANYLABEL_CACHE", str(tmp_path))
    monkeypatch.setattr(comparison, "MOST_IMAGES", 20)
    seen = []
    found = compare_backbones(
        scenes(40), ["offline:everyday"], num_workers=0, progress=lambda done, of: seen.append((done, of))
    )
    assert seen[-1] == (20, 20)
    assert 0 < found["offline:everyday"] <= 1
