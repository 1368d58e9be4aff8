"""What every metric checks."""

import pytest
import torch

from manylabel.errors import ConfigError
from manylabel.metrics.inputs import check

SCORES = torch.tensor([[0.1, 0.9], [0.4, 0.2]])


@pytest.mark.parametrize(
    ("scores", "targets", "known", "message"),
    [
        (
            torch.tensor([1, 0]),
            torch.tensor([1, 0]),
            None,
            r"floating point \[pictures, labels\], got torch.int64 \[2\]",
        ),
        (SCORES, torch.ones(2, 3), None, r"targets must have the shape of scores, \[2, 2\], got \[2, 3\]"),
        (SCORES, torch.ones(2, 2), torch.ones(2, dtype=torch.bool), "known must have the shape"),
        (SCORES, torch.ones(2, 2), torch.ones(2, 2), "known must be true or false, got torch.float32"),
        (SCORES * torch.nan, torch.ones(2, 2), None, "4 are NaN"),
        (SCORES, torch.tensor([[1, -1], [0, 0]]), None, "targets must be 0 or 1, got -1 to 1; say what is unknown"),
        (SCORES, torch.full((2, 2), 2), None, "targets must be 0 or 1, got 2 to 2"),
    ],
)
def test_rejects_what_cannot_be_judged(scores, targets, known, message):
    with pytest.raises(ConfigError, match=message):
        check(scores, targets, known)


@pytest.mark.parametrize("dtype", [torch.bool, torch.uint8, torch.int64, torch.float32, torch.float16])
def test_takes_targets_of_any_type(dtype):
    judged = check(SCORES, torch.tensor([[1, 0], [0, 1]]).to(dtype), known=torch.tensor([[True, True], [True, False]]))
    assert judged.positives.tolist() == [[True, False], [False, False]]
    assert judged.negatives.tolist() == [[False, True], [True, False]]
