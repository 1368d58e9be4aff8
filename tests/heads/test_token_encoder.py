import pytest
import torch
from torch import Tensor

from conformance.head_suite import HeadSuite
from manylabel.errors import ConfigError
from manylabel.heads import TokenEncoder

SMALL = {"width": 16, "num_heads": 2}
VECTORS = torch.randn(7, 5, generator=torch.Generator().manual_seed(0))


class TestTokenEncoder(HeadSuite):
    cases = {
        "learnable": lambda: TokenEncoder(24, 7, **SMALL),
        "text": lambda: TokenEncoder(24, 7, queries="text", text_vectors=VECTORS, head_width=8, **SMALL),
    }
    tells = {"text": ["queries='text'", "text_dim=5", "head_width=8"]}


def reference(head: TokenEncoder, image: Tensor, labels: Tensor) -> Tensor:
    """Return the logits of one image, attention head by attention head."""
    tokens = torch.cat([labels, head.embed(image.flatten(1).T)])
    for layer in head.layers:
        normed = layer.norm_attention(tokens)
        attention, found = layer.attention, []
        for rows in torch.arange(attention.query.out_features).chunk(attention.num_heads):
            query, key, value = (
                normed @ part.weight[rows].T + part.bias[rows]
                for part in (attention.query, attention.key, attention.value)
            )
            found.append(torch.softmax(query @ key.T / len(rows) ** 0.5, dim=-1) @ value)
        tokens = tokens + attention.out(torch.cat(found, dim=-1))
        first, _, _, second, _ = layer.feed_forward
        tokens = tokens + second(torch.nn.functional.gelu(first(layer.norm_feed_forward(tokens))))
    return torch.stack([tokens[label] @ head.classify.weight[0] + head.classify.bias[0] for label in range(7)])


@pytest.mark.parametrize("head_width", [None, 8, 6])
def test_equals_the_published_model_and_so_do_its_gradients(head_width: int | None) -> None:
    torch.manual_seed(0)
    head = TokenEncoder(24, 7, head_width=head_width, **SMALL).eval()
    feature = torch.randn(2, 24, 3, 4, requires_grad=True)
    ours = head([feature])
    slow = torch.stack([reference(head, image, head.query_bank.vectors) for image in feature])
    torch.testing.assert_close(ours, slow, atol=1e-5, rtol=1e-5)
    inputs = [feature, *head.parameters()]
    mine, theirs = (torch.autograd.grad(logits.square().sum(), inputs) for logits in (ours, slow))
    torch.testing.assert_close(mine, theirs, atol=1e-4, rtol=1e-4)


def test_label_tokens_come_from_text_through_linear_and_relu() -> None:
    head = TokenEncoder(24, 7, queries="text", text_vectors=VECTORS, **SMALL).eval()
    feature = torch.randn(1, 24, 3, 4)
    labels = torch.relu(VECTORS @ head.query_bank.project.weight.T + head.query_bank.project.bias)
    torch.testing.assert_close(head([feature])[0], reference(head, feature[0], labels), atol=1e-5, rtol=1e-5)


def test_default_sizes_are_the_published_ones() -> None:
    with torch.device("meta"):
        head = TokenEncoder(2048, 80)
    layer = head.layers[0]
    assert len(head.layers) == 3
    assert layer.attention.query.out_features == 4 * 1024
    assert layer.feed_forward[0].out_features == 1024


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"queries": "random"}, "no queries 'random'; available: learnable, text"),
        ({"queries": "text"}, "text queries need text_vectors"),
        ({"head_width": 0}, "head_width must be a whole number of at least 1, got 0"),
    ],
)
def test_rejects_settings_that_cannot_work(settings: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        TokenEncoder(24, 7, **settings)
