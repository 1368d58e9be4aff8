import math

import pytest
import torch
from torch import Tensor, nn

from conformance.head_suite import HeadSuite
from manylabel.errors import ConfigError
from manylabel.heads import Query2Label
from manylabel.heads.query2label import sine_positions


class TestQuery2Label(HeadSuite):
    cases = {
        "as published": lambda: Query2Label(24, 7),
        "self-attention": lambda: Query2Label(24, 7, width=16, feedforward=32, self_attention=True),
    }
    tells = {"self-attention": ["width=16", "feedforward=32", "self_attention=True"]}


def torchs(attention: nn.Module) -> nn.MultiheadAttention:
    """Return torch's own attention with the same weights."""
    other = nn.MultiheadAttention(attention.width, attention.num_heads, batch_first=True)
    with torch.no_grad():
        parts = (attention.query, attention.key, attention.value)
        other.in_proj_weight.copy_(torch.cat([part.weight for part in parts]))
        other.in_proj_bias.copy_(torch.cat([part.bias for part in parts]))
        other.out_proj.load_state_dict(attention.out.state_dict())
    return other


def reference(head: Query2Label, feature: Tensor) -> tuple[Tensor, Tensor]:
    """Return logits and the last layer's attention, as the published model computes them."""
    transformer = head.transformer
    feature = head.embed(feature)
    tokens = feature.flatten(2).transpose(1, 2)
    positions = slow_positions(*feature.shape[2:], transformer.width)
    for layer in transformer.encoder:
        placed = tokens + positions
        tokens = layer.norm_attention(tokens + torchs(layer.self_attention)(placed, placed, tokens)[0])
        tokens = layer.norm_output(tokens + layer.feed_forward(tokens))
    queries = transformer.query_bank.vectors.expand(len(feature), -1, -1)
    target = torch.zeros_like(queries)
    for layer in transformer.decoder:
        if layer.self_attention is not None:
            placed = target + queries
            target = layer.norm_self(target + torchs(layer.self_attention)(placed, placed, target)[0])
        found, weights = torchs(layer.cross_attention)(target + queries, tokens + positions, tokens)
        target = layer.norm_attention(target + found)
        target = layer.norm_output(target + layer.feed_forward(target))
    labels = transformer.norm(target)
    logits = [labels[:, label] @ head.weight[label] + head.bias[label] for label in range(head.num_labels)]
    return torch.stack(logits, dim=1), weights


def slow_positions(height: int, width: int, channels: int) -> Tensor:
    positions = torch.zeros(height * width, channels)
    for row in range(height):
        for column in range(width):
            for channel in range(channels):
                place = (row + 1) / height if channel < channels // 2 else (column + 1) / width
                within = channel % (channels // 2)
                angle = place * 2 * math.pi / 10000 ** (2 * (within // 2) / (channels // 2))
                value = math.cos(angle) if within % 2 else math.sin(angle)
                positions[row * width + column, channel] = value
    return positions


@pytest.mark.parametrize("settings", [{}, {"self_attention": True, "width": 16}, {"num_encoder_layers": 0}])
def test_equals_the_published_model_and_so_do_its_gradients(settings: dict[str, object]) -> None:
    torch.manual_seed(0)
    head = Query2Label(24, 7, **settings).eval()
    feature = torch.randn(2, 24, 3, 4, requires_grad=True)
    ours, (slow, weights) = head([feature]), reference(head, feature)
    torch.testing.assert_close(ours, slow, atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(head.attention([feature]).flatten(2), weights, atol=1e-5, rtol=1e-5)
    mine, theirs = (torch.autograd.grad(logits.square().sum(), feature)[0] for logits in (ours, slow))
    torch.testing.assert_close(mine, theirs, atol=1e-5, rtol=1e-4)


def test_positions_equal_their_formula() -> None:
    torch.testing.assert_close(sine_positions(3, 5, 12), slow_positions(3, 5, 12), atol=1e-5, rtol=1e-5)


def test_moving_what_is_in_the_map_changes_the_logits() -> None:
    head = Query2Label(24, 7).eval()
    feature = torch.randn(1, 24, 3, 3)
    assert not torch.allclose(head([feature]), head([feature.flip(3)]), atol=1e-3)


def test_defaults_follow_the_map() -> None:
    head = Query2Label(24, 7)
    assert head.transformer.decoder[0].feed_forward[0].out_features == 96
    assert isinstance(head.embed, nn.Identity)
    assert [len(head.transformer.encoder), len(head.transformer.decoder)] == [1, 2]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"width": 18, "num_heads": 2}, "multiple of 4, got 18"),
        ({"num_heads": 5}, "try 4 or 6"),
        ({"self_attention": True, "num_decoder_layers": 1}, "second decoder layer"),
        ({"num_encoder_layers": -1}, "num_encoder_layers must be 0 or more, got -1"),
    ],
)
def test_rejects_settings_that_cannot_work(settings: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        Query2Label(24, 7, **settings)
