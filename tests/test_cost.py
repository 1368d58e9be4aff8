"""MACs and parameters by formula, memory and time by counting."""

import numpy as np
import pytest
import torch
from torch import nn

from manylabel.cost import count_cost, count_macs, count_parameters, median_seconds, peak_memory
from manylabel.errors import ConfigError
from manylabel.heads import MLDecoder, Query2Label


def test_counts_a_convolution_by_its_formula() -> None:
    convolution = nn.Conv2d(8, 16, 3, padding=1, groups=2)
    assert count_macs(convolution, torch.zeros(2, 8, 5, 7)) == 2 * 16 * 5 * 7 * (8 // 2) * 9


def test_counts_both_products_of_an_attention() -> None:
    width, queries, tokens = 16, 5, 12
    attention = nn.MultiheadAttention(width, 4, batch_first=True)
    inputs = torch.zeros(1, queries, width), torch.zeros(1, tokens, width), torch.zeros(1, tokens, width)
    projections = 2 * queries * width**2 + 2 * tokens * width**2
    assert count_macs(attention, *inputs) == projections + 2 * queries * tokens * width


def test_counts_ml_decoder_by_its_formula() -> None:
    channels, width, hidden, tokens, labels, groups = 24, 16, 32, 12, 10, 5
    head = MLDecoder(channels, labels, num_groups=groups, width=width, num_heads=2, feedforward=hidden).eval()
    per_query = 2 * width**2 + 2 * tokens * width + 2 * width * hidden
    expected = tokens * channels * width + 2 * width**2 * tokens + groups * per_query + labels * width
    assert count_macs(head, [torch.zeros(1, channels, 3, 4)]) == expected


def test_counts_the_transformer_decoder_by_its_formula() -> None:
    width, tokens, labels = 24, 12, 7
    head = Query2Label(width, labels).eval()
    encoder = 4 * tokens * width**2 + 2 * tokens**2 * width + 8 * tokens * width**2
    decoder = 2 * (labels + tokens) * width**2 + 2 * labels * tokens * width + 8 * labels * width**2
    expected = encoder + 2 * decoder + labels * width
    assert count_macs(head, [torch.zeros(1, width, 3, 4)]) == expected


def test_leaves_the_model_as_it_is() -> None:
    model = nn.Sequential(nn.Conv2d(3, 4, 1), nn.BatchNorm2d(4))
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    count_macs(model, torch.randn(2, 3, 5, 5))
    assert all(torch.equal(tensor, before[name]) for name, tensor in model.state_dict().items())
    assert {tensor.device.type for tensor in model.state_dict().values()} == {"cpu"}


def test_tells_trainable_parameters_from_frozen_ones() -> None:
    model = nn.Sequential(nn.Linear(4, 3), nn.Linear(3, 2))
    model[0].requires_grad_(False)
    cost = count_cost(model, torch.zeros(1, 4))
    assert (cost.macs, cost.parameters, cost.trainable) == (18, 23, 8)
    assert count_parameters(nn.ModuleList([model, model])) == 23


def test_counts_what_is_held_at_once_not_what_is_made() -> None:
    def one_after_the_other() -> None:
        for _ in range(10):
            torch.ones(100)

    def all_at_once() -> list[torch.Tensor]:
        return [torch.ones(100) for _ in range(10)]

    assert peak_memory(one_after_the_other) <= 2 * 400
    assert peak_memory(all_at_once) == 10 * 400


def test_what_was_there_before_and_its_views_cost_nothing() -> None:
    weight = torch.zeros(50, 20)
    assert peak_memory(lambda: weight.t()[:5].reshape(5, 50)) == 0
    assert peak_memory(lambda: weight.add_(1)) == 0


def test_counts_what_autograd_saves_for_backward() -> None:
    inputs = torch.zeros(1000, requires_grad=True)

    def five_times() -> torch.Tensor:
        outputs = inputs
        for _ in range(5):
            outputs = outputs.exp()
        return outputs.sum()

    with torch.no_grad():
        without = peak_memory(five_times)
    assert without <= 2 * 4000 + 4
    assert peak_memory(five_times) >= 5 * 4000
    assert peak_memory(lambda: five_times().backward()) >= 6 * 4000


def test_counts_a_new_tensor_at_the_address_of_one_that_was_there_before() -> None:
    def forget_arrays_then_make_tensors() -> list[torch.Tensor]:
        for _ in range(20):
            torch.from_numpy(np.ones(100, dtype=np.float32)).add_(1)
        return [torch.ones(100) for _ in range(10)]

    assert peak_memory(forget_arrays_then_make_tensors) == 10 * 400


def test_runs_the_calls_by_turns() -> None:
    order: list[str] = []
    calls = {name: lambda name=name: order.append(name) for name in ("a", "b")}
    assert set(median_seconds(calls, rounds=2, warmup=1)) == {"a", "b"}
    assert order == ["a", "b"] * 3


def test_gives_the_median_of_what_the_clock_says() -> None:
    ticks = iter([0, 200, 201, 300, 305, 400, 402])
    seconds = median_seconds({"a": lambda: None}, rounds=3, warmup=1, clock=lambda: float(next(ticks)))
    assert seconds == {"a": 2.0}


def test_rejects_nothing_to_time() -> None:
    with pytest.raises(ConfigError, match="at least one call"):
        median_seconds({})
