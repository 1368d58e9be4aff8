"""Average precision, against scikit-learn, torchmetrics and slow loops."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import average_precision_score
from torchmetrics.functional.classification import multilabel_average_precision

from manylabel.errors import ConfigError
from manylabel.metrics import average_precision, inputs, mean_average_precision


def curve(scores, targets):
    """Precision and recall at each distinct score, from the highest down, by definition."""
    points = []
    for limit in sorted(set(scores), reverse=True):
        chosen = scores >= limit
        points.append((targets[chosen].mean(), targets[chosen].sum() / targets.sum()))
    return points


def slow_none(scores, targets):
    return average_precision_score(targets, scores)


def slow_all_points(scores, targets):
    points = curve(scores, targets)
    total, before = 0.0, 0.0
    for position, (_, recall) in enumerate(points):
        total += (recall - before) * max(precision for precision, _ in points[position:])
        before = recall
    return total


def slow_eleven_points(scores, targets):
    points = curve(scores, targets)
    return (
        sum(
            max(
                precision for precision, recall in points if round(recall * targets.sum()) * 10 >= tenth * targets.sum()
            )
            for tenth in range(11)
        )
        / 11
    )


SLOW = {"none": slow_none, "all_points": slow_all_points, "eleven_points": slow_eleven_points}


def slow(scores, targets, known, interpolation):
    values = []
    for label in range(scores.shape[1]):
        rows = known[:, label].numpy()
        column, truth = scores[:, label].numpy()[rows], targets[:, label].numpy()[rows].astype(int)
        values.append(SLOW[interpolation](column, truth) if truth.any() else None)
    return values


@st.composite
def cases(draw):
    images, labels = draw(st.integers(1, 25)), draw(st.integers(1, 4))
    seed, levels = draw(st.integers(0, 2**31)), draw(st.integers(1, 12))
    random = np.random.default_rng(seed)
    scores = random.integers(0, levels, size=(images, labels)) / levels - 0.4
    present, known = random.random((2, images, labels))
    return torch.from_numpy(scores), torch.from_numpy(present < draw(st.floats(0, 1))), torch.from_numpy(known < 0.8)


@pytest.mark.parametrize("interpolation", SLOW)
@settings(max_examples=60, deadline=None)
@given(case=cases())
def test_equals_the_slow_reference_with_ties_and_unknown_labels(interpolation, case):
    scores, targets, known = case
    result = average_precision(scores, targets, known, interpolation=interpolation)
    expected = slow(scores, targets, known, interpolation)
    expected = [np.nan if value is None else value for value in expected]
    assert result.tolist() == pytest.approx(expected, abs=1e-6, nan_ok=True)


def test_equals_torchmetrics(random_case):
    scores, targets, known = random_case
    marked = torch.where(known, targets.long(), -1)
    with pytest.warns(UserWarning, match="No positive samples"):
        expected = multilabel_average_precision(scores, marked, 9, average=None, ignore_index=-1).numpy()
    result = average_precision(scores, targets, known)
    has = ~result.isnan()
    assert result[has].tolist() == pytest.approx(expected[has.numpy()].tolist(), abs=1e-6)


def test_blocks_change_nothing(random_case, monkeypatch):
    whole = average_precision(*random_case)
    monkeypatch.setattr(inputs, "BLOCK", 130)  # two labels at a time
    parts = average_precision(*random_case)
    assert parts.tolist() == pytest.approx(whole.tolist(), nan_ok=True)


def test_more_images_than_a_tile_and_any_float():
    random = np.random.default_rng(1)
    scores = torch.from_numpy(random.random((1300, 3)))
    targets = torch.from_numpy(random.random((1300, 3)) < 0.1)
    for dtype in (torch.float64, torch.float32, torch.float16, torch.bfloat16):
        rounded = scores.to(dtype)
        expected = average_precision_score(targets.numpy(), rounded.double().numpy(), average=None)
        assert average_precision(rounded, targets).tolist() == pytest.approx(expected.tolist(), abs=1e-6)


def test_the_mean_leaves_out_labels_without_positives(random_case):
    result = average_precision(*random_case)
    assert result.isnan().nonzero().flatten().tolist() == [3]
    assert mean_average_precision(*random_case).item() == pytest.approx(result[~result.isnan()].mean().item())


def test_nothing_has_no_average_precision():
    assert average_precision(torch.rand(4, 2), torch.zeros(4, 2)).isnan().all()
    assert mean_average_precision(torch.rand(3, 0), torch.zeros(3, 0)).isnan()


def test_infinite_scores_rank_like_others():
    scores = torch.tensor([[torch.inf], [torch.inf], [0.0], [-torch.inf], [-torch.inf]])
    targets = torch.tensor([[1], [0], [0], [1], [0]])
    assert average_precision(scores, targets).item() == pytest.approx((1 / 2 + 2 / 5) / 2)
    known = torch.tensor([[True], [True], [True], [True], [False]])
    assert average_precision(scores, targets, known).item() == pytest.approx((1 / 2 + 2 / 4) / 2)


def test_does_not_change_what_it_is_given(random_case):
    copies = [matrix.clone() for matrix in random_case]
    average_precision(*random_case)
    assert all(torch.equal(before, after) for before, after in zip(copies, random_case, strict=True))


def test_rejects_an_interpolation_that_does_not_exist():
    with pytest.raises(ConfigError, match="no interpolation 'eleven'; did you mean 'eleven_points'"):
        average_precision(torch.rand(2, 2), torch.ones(2, 2), interpolation="eleven")
