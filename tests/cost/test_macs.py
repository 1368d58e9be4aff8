import torch
from torch import nn

from manylabel.cost import count_cost, count_macs, count_parameters
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


def test_what_a_head_has_folded_away_costs_nothing() -> None:
    head = MLDecoder(24, 10, width=16, num_heads=2, feedforward=32).eval()
    feature = [torch.zeros(1, 24, 3, 4)]
    assert count_macs(head, feature) - count_macs(head.fold(), feature) == 10 * 16 * 16  # the queries' projection


def test_tells_trainable_parameters_from_frozen_ones() -> None:
    model = nn.Sequential(nn.Linear(4, 3), nn.Linear(3, 2))
    model[0].requires_grad_(False)
    cost = count_cost(model, torch.zeros(1, 4))
    assert (cost.macs, cost.parameters, cost.trainable) == (18, 23, 8)
    assert count_parameters(nn.ModuleList([model, model])) == 23
