import pytest
import torch

from conformance.head_suite import HeadSuite
from manylabel.errors import ConfigError
from manylabel.heads import LinearClassifier


class TestLinearClassifier(HeadSuite):
    cases = {
        "average": lambda: LinearClassifier(24, 7),
        "max": lambda: LinearClassifier(24, 7, pooling="max"),
        "generalised mean": lambda: LinearClassifier(24, 7, pooling="generalised_mean"),
    }
    tells = {"max": ["in_channels=24", "pooling='max'"]}


def slow_pool(feature: torch.Tensor, pooling: str, exponent: float) -> torch.Tensor:
    rows = []
    for image in feature.tolist():
        row = []
        for channel in image:
            cells = [cell for line in channel for cell in line]
            if pooling == "average":
                row.append(sum(cells) / len(cells))
            elif pooling == "max":
                row.append(max(cells))
            else:
                row.append((sum(max(cell, 1e-6) ** exponent for cell in cells) / len(cells)) ** (1 / exponent))
        rows.append(row)
    return torch.tensor(rows)


@pytest.mark.parametrize("pooling", ["average", "max", "generalised_mean"])
def test_pools_as_its_name_says(pooling: str) -> None:
    torch.manual_seed(0)
    head, feature = LinearClassifier(5, 3, pooling=pooling), torch.randn(2, 5, 3, 4)
    expected = slow_pool(feature, pooling, 3.0) @ head.linear.weight.T + head.linear.bias
    torch.testing.assert_close(head([feature]), expected, atol=1e-5, rtol=1e-5)


def test_generalised_mean_is_the_average_at_exponent_one() -> None:
    head, feature = LinearClassifier(5, 3, pooling="generalised_mean"), torch.rand(2, 5, 3, 4)
    head.pool.exponent.data.fill_(1.0)
    torch.testing.assert_close(head.pool(feature), feature.mean((2, 3)))


def test_rejects_an_unknown_pooling() -> None:
    with pytest.raises(ConfigError, match="did you mean 'average'"):
        LinearClassifier(5, 3, pooling="avarage")


def test_rejects_no_labels() -> None:
    with pytest.raises(ConfigError, match="num_labels must be a whole number of at least 1, got 0"):
        LinearClassifier(5, 0)
