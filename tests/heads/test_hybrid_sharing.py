import pytest
import torch

from conformance.head_suite import HeadSuite
from manylabel.cost import count_parameters
from manylabel.errors import ConfigError
from manylabel.heads import HybridSharingHead


class TestHybridSharingHead(HeadSuite):
    cases = {
        "as published": lambda: HybridSharingHead(24, 7),
        "as the ResNet101 model": lambda: HybridSharingHead(
            24, 7, width=16, expert_widths=(20, 12), num_shared_experts=3, gate_hidden=9, classifier_hidden=5
        ),
        "no shared experts": lambda: HybridSharingHead(24, 7, num_shared_experts=0, num_label_experts=2),
        "HSQ-Linear": lambda: HybridSharingHead(24, 7, layers="linear"),
    }
    tells = {"as the ResNet101 model": ["width=16", "expert_widths=(20, 12)", "num_shared_experts=3", "gate_hidden=9"]}


def features() -> list[torch.Tensor]:
    return [torch.randn(2, 24, 3, 4, generator=torch.Generator().manual_seed(0))]


def test_is_transformer_then_layers_then_classifier() -> None:
    torch.manual_seed(0)
    head = HybridSharingHead(24, 7, expert_widths=(8, 4), num_shared_experts=2).eval()
    labels = head.transformer(head.project(features()[0]))
    for layer in head.sharing:
        labels = layer(None, labels)[1]
    expected = [head.classify(labels[:, label]).squeeze(1) for label in range(7)]
    torch.testing.assert_close(head(features()), torch.stack(expected, 1), atol=1e-5, rtol=1e-5)


def test_without_shared_experts_nothing_behind_the_transformer_is_shared() -> None:
    head = HybridSharingHead(24, 7, num_shared_experts=0).eval()
    labels = head.transformer(head.project(features()[0])).detach().requires_grad_()
    output = labels
    for layer in head.sharing:
        output = layer(None, output)[1]
    (gradient,) = torch.autograd.grad(output[:, 3].sum(), labels)
    assert gradient[:, 3].abs().sum() > 0
    others = [label for label in range(7) if label != 3]
    assert gradient[:, others].abs().sum() == 0


@pytest.mark.parametrize("layer", [0, 1, -1])
def test_gates_tell_each_labels_share_of_every_expert(layer: int) -> None:
    head = HybridSharingHead(24, 7, num_shared_experts=5, num_label_experts=2).eval()
    gates = head.gates(features(), layer=layer)
    assert gates.shape == (2, 7, 7)
    torch.testing.assert_close(gates.sum(2), torch.ones(2, 7))


def test_gates_are_those_of_the_layer_asked_for() -> None:
    head = HybridSharingHead(24, 7).eval()
    labels = head.transformer(head.project(features()[0]))
    torch.testing.assert_close(head.gates(features(), layer=0), head.sharing[0].gates(labels))
    torch.testing.assert_close(head.gates(features()), head.sharing[1].gates(head.sharing[0](None, labels)[1]))


def test_linear_layers_have_no_gates() -> None:
    with pytest.raises(ConfigError, match='layers="linear" has no experts'):
        HybridSharingHead(24, 7, layers="linear").gates(features())


def test_rejects_a_layer_that_is_not_there() -> None:
    with pytest.raises(ConfigError, match="layer must be 0 to 1, or -2 to -1, got 2"):
        HybridSharingHead(24, 7).gates(features(), layer=2)


def test_linear_layers_are_the_same_for_all_labels() -> None:
    few, many = (HybridSharingHead(24, labels, layers="linear") for labels in (7, 70))
    assert count_parameters(many) - count_parameters(few) == 63 * 24  # the queries


def test_fifteen_more_shared_experts_add_what_the_paper_adds_but_for_its_shared_gates() -> None:
    def count(num_shared_experts: int) -> int:
        with torch.device("meta"):
            return count_parameters(HybridSharingHead(512, 80, num_shared_experts=num_shared_experts, bias=False))

    unused_gates = 15 * (512 + 64)
    assert count(16) - count(1) == 2175 * 512 + 93_120 - unused_gates


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"layers": "mixed"}, "no layers 'mixed'; .*here is: hybrid, linear"),
        ({"expert_widths": ()}, "expert_widths must name at least one layer's width"),
        ({"expert_widths": (64, 0)}, "expert_widths must be a whole number of at least 1, got 0"),
        ({"classifier_hidden": 0}, "classifier_hidden must be a whole number of at least 1"),
        ({"num_heads": 5}, "must be a multiple of num_heads"),
    ],
)
def test_rejects_wrong_settings(settings: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        HybridSharingHead(24, 7, **settings)
