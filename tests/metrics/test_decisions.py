"""From scores to predictions."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from manylabel.errors import ConfigError
from manylabel.metrics import above_threshold, top_labels


@settings(max_examples=60, deadline=None)
@given(rows=st.lists(st.lists(st.integers(0, 4), min_size=6, max_size=6), min_size=1, max_size=5), k=st.integers(1, 8))
def test_takes_the_first_of_equal_scores(rows, k):
    chosen = top_labels(torch.tensor(rows, dtype=torch.float32), k)
    for row, marks in zip(rows, chosen.tolist(), strict=True):
        best = sorted(range(6), key=lambda label: -row[label])[:k]  # sorted is stable
        assert marks == [label in best for label in range(6)]


def test_rejects_less_than_one_label():
    with pytest.raises(ConfigError, match="k must be at least 1, got 0"):
        top_labels(torch.rand(2, 3), 0)


def test_rejects_thresholds_that_do_not_match_the_labels():
    with pytest.raises(ConfigError, match=r"one for each of 3 labels, got \[2\]"):
        above_threshold(torch.rand(2, 3), [0.1, 0.2])
