import numpy as np
import pytest
import torch
from sklearn.linear_model import LogisticRegression

from manylabel.features import fit_linear


@pytest.mark.parametrize("penalty", [0.02, 0.3, 5.0])
def test_fit_is_logistic_regression_and_ignores_unknown_targets(penalty):
    rng = np.random.default_rng(0)
    features = torch.from_numpy(rng.standard_normal((60, 3)).astype(np.float32))
    targets = (features @ torch.tensor([[1.0, -1.0], [0.5, 2.0], [0.0, 0.3]]) + 0.3 > 0).float()
    known = torch.from_numpy(rng.random((60, 2)) > 0.2)
    model = fit_linear(features, targets, known, penalty=penalty)
    for label in range(2):
        rows = known[:, label].numpy()
        reference = LogisticRegression(C=1 / penalty, tol=1e-8, max_iter=1000)
        reference.fit(features[rows].numpy(), targets[rows, label].numpy())
        expected = reference.predict_proba(features.numpy())[:, 1]
        np.testing.assert_allclose(model(features)[:, label].sigmoid(), expected, atol=2e-3)
    flipped = torch.where(known, targets, 1 - targets)
    assert torch.equal(fit_linear(features, flipped, known, penalty=penalty).weight, model.weight)
