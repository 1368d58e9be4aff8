"""Scores, targets and masks as metrics meet them, and as they had better not."""

import numpy as np
import pytest
import torch


@pytest.fixture
def random_case():
    """Scores on a coarse grid, so that many are equal; one label without positives, one always present."""
    random = np.random.default_rng(5)
    scores = torch.from_numpy(random.integers(0, 12, size=(60, 9)) / 12).float()
    targets = torch.from_numpy(random.random((60, 9)) < 0.3)
    targets[:, 3] = False
    targets[:, 4] = True
    known = torch.from_numpy(random.random((60, 9)) < 0.8)
    return scores, targets, known
