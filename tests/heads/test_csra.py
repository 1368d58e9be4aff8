import math

import pytest
import torch
from torch import Tensor

from conformance.head_suite import HeadSuite
from manylabel.errors import ConfigError
from manylabel.heads import CSRA


class TestCSRA(HeadSuite):
    cases = {
        "one head": lambda: CSRA(24, 7),
        "four heads": lambda: CSRA(24, 7, temperatures=(1, 2, 4, None), attention_weight=0.3),
        "maximum only": lambda: CSRA(24, 7, temperatures=(None,)),
    }
    tells = {"four heads": ["temperatures=(1, 2, 4, None)", "attention_weight=0.3"]}


def reference(head: CSRA, feature: Tensor) -> Tensor:
    """The paper's way: attend to features with each label's weights, add the average, then classify."""
    weights = head.classify.weight.flatten(1).reshape(len(head.temperatures), head.num_labels, -1)
    ordered = sorted(head.temperatures, key=lambda temperature: temperature is None)  # finite ones come first
    images = []
    for image in feature.flatten(2).transpose(1, 2):  # [P, C]
        average = image.mean(0)
        logits = []
        for label in range(head.num_labels):
            total = torch.zeros(())
            for classifier, temperature in zip(weights[:, label], ordered, strict=True):
                scores = image @ classifier
                weights_of_positions = (temperature * scores).softmax(0) if temperature is not None else None
                attended = image[scores.argmax()] if temperature is None else weights_of_positions @ image
                total = total + classifier @ (average + head.attention_weight * attended)
            logits.append(total)
        images.append(torch.stack(logits))
    return torch.stack(images)


@pytest.mark.parametrize("temperatures", [(1.0,), (1, None), (3.0, 0.5, None)])
def test_equals_the_papers_formula_and_its_gradients(temperatures: tuple[float | None, ...]) -> None:
    torch.manual_seed(0)
    head = CSRA(8, 5, temperatures=temperatures, attention_weight=0.4)
    feature = torch.randn(3, 8, 2, 3, requires_grad=True)
    inputs = (feature, head.classify.weight)
    ours, theirs = head([feature]), reference(head, feature)
    torch.testing.assert_close(ours, theirs, atol=1e-5, rtol=1e-5)
    for mine, other in zip(
        torch.autograd.grad(ours.square().sum(), inputs),
        torch.autograd.grad(theirs.square().sum(), inputs),
        strict=True,
    ):
        torch.testing.assert_close(mine, other, atol=1e-5, rtol=1e-4)


def test_without_attention_it_is_a_linear_head() -> None:
    head, feature = CSRA(8, 5, attention_weight=0.0), torch.randn(3, 8, 2, 3)
    expected = feature.mean((2, 3)) @ head.classify.weight.flatten(1).T
    torch.testing.assert_close(head([feature]), expected, atol=1e-5, rtol=1e-5)


def test_attention_of_the_maximum_is_one_place() -> None:
    head, feature = CSRA(8, 5, temperatures=(None,)), torch.randn(3, 8, 2, 3)
    assert head.attention([feature]).unique().tolist() == [0.0, 1.0]


@pytest.mark.parametrize("temperatures", [(), (0.0,), (1.0, -2.0)])
def test_rejects_temperatures_that_are_not_above_zero(temperatures: tuple[float, ...]) -> None:
    with pytest.raises(ConfigError, match="temperatures must be above 0, or None for the maximum"):
        CSRA(8, 5, temperatures=temperatures)


def test_rejects_a_negative_weight() -> None:
    with pytest.raises(ConfigError, match="attention_weight must be 0 or more"):
        CSRA(8, 5, attention_weight=-math.pi)
