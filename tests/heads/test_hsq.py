import pytest
import torch
from torch import Tensor, nn

from conformance.head_suite import HeadSuite
from manylabel.cost import count_parameters
from manylabel.errors import ConfigError
from manylabel.heads import HybridSharingQuery
from manylabel.heads.hsq import HybridSharingLayer


class TestHybridSharingQuery(HeadSuite):
    cases = {
        "as published": lambda: HybridSharingQuery(24, 7),
        "as the ResNet101 model": lambda: HybridSharingQuery(
            24, 7, width=16, expert_widths=(20, 12), num_shared_experts=3, gate_hidden=9, classifier_hidden=5
        ),
        "no shared experts": lambda: HybridSharingQuery(24, 7, num_shared_experts=0, num_label_experts=2),
        "HSQ-Linear": lambda: HybridSharingQuery(24, 7, layers="linear"),
    }
    tells = {"as the ResNet101 model": ["width=16", "expert_widths=(20, 12)", "num_shared_experts=3", "gate_hidden=9"]}


def features() -> list[torch.Tensor]:
    return [torch.randn(2, 24, 3, 4, generator=torch.Generator().manual_seed(0))]


def test_is_transformer_then_layers_then_classifier() -> None:
    torch.manual_seed(0)
    head = HybridSharingQuery(24, 7, expert_widths=(8, 4), num_shared_experts=2).eval()
    labels = head.transformer(head.project(features()[0]))
    for layer in head.sharing:
        labels = layer(None, labels)[1]
    expected = [head.classify(labels[:, label]).squeeze(1) for label in range(7)]
    torch.testing.assert_close(head(features()), torch.stack(expected, 1), atol=1e-5, rtol=1e-5)


def test_without_shared_experts_nothing_behind_the_transformer_is_shared() -> None:
    head = HybridSharingQuery(24, 7, num_shared_experts=0).eval()
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
    head = HybridSharingQuery(24, 7, num_shared_experts=5, num_label_experts=2).eval()
    gates = head.gates(features(), layer=layer)
    assert gates.shape == (2, 7, 7)
    torch.testing.assert_close(gates.sum(2), torch.ones(2, 7))


def test_gates_are_those_of_the_layer_asked_for() -> None:
    head = HybridSharingQuery(24, 7).eval()
    labels = head.transformer(head.project(features()[0]))
    torch.testing.assert_close(head.gates(features(), layer=0), head.sharing[0].gates(labels))
    torch.testing.assert_close(head.gates(features()), head.sharing[1].gates(head.sharing[0](None, labels)[1]))


def test_linear_layers_have_no_gates() -> None:
    with pytest.raises(ConfigError, match='layers="linear" has no experts'):
        HybridSharingQuery(24, 7, layers="linear").gates(features())


def test_rejects_a_layer_that_is_not_there() -> None:
    with pytest.raises(ConfigError, match="layer must be 0 to 1, or -2 to -1, got 2"):
        HybridSharingQuery(24, 7).gates(features(), layer=2)


def test_linear_layers_are_the_same_for_all_labels() -> None:
    few, many = (HybridSharingQuery(24, labels, layers="linear") for labels in (7, 70))
    assert count_parameters(many) - count_parameters(few) == 63 * 24  # the queries


def test_fifteen_more_shared_experts_add_what_the_paper_adds_but_for_its_shared_gates() -> None:
    def count(num_shared_experts: int) -> int:
        with torch.device("meta"):
            return count_parameters(HybridSharingQuery(512, 80, num_shared_experts=num_shared_experts, bias=False))

    unused_gates = 15 * (512 + 64)
    assert count(16) - count(1) == 2175 * 512 + 93_120 - unused_gates


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"layers": "mixed"}, "no layers 'mixed'; .*vailable: hybrid, linear"),
        ({"expert_widths": ()}, "expert_widths must have at least one width, got none"),
        ({"expert_widths": (64, 0)}, "expert_widths must be a whole number of at least 1, got 0"),
        ({"classifier_hidden": 0}, "classifier_hidden must be a whole number of at least 1"),
        ({"num_heads": 5}, "must be a multiple of num_heads"),
    ],
)
def test_rejects_wrong_settings(settings: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        HybridSharingQuery(24, 7, **settings)


LAYERS = {
    "as published": {},
    "no bias": {"bias": False},
    "several experts per label": {"num_label_experts": 3},
    "no shared experts": {"num_shared_experts": 0},
    "gates with a hidden layer": {"gate_hidden": 6},
}


def expert(layer: HybridSharingLayer, label: int | None, number: int, inputs: Tensor) -> Tensor:
    """One expert on its own: of a label, or a shared one where label is None."""
    start, end = number * layer.out_width, (number + 1) * layer.out_width
    if label is None:
        linear = layer.shared_experts
        bias = 0 if linear.bias is None else linear.bias[start:end]
        return inputs @ linear.weight[start:end].T + bias
    bias = 0 if layer.label_experts.bias is None else layer.label_experts.bias[label, start:end]
    return inputs @ layer.label_experts.weight[label, :, start:end] + bias


def label_gate(gate: nn.Module, label: int, inputs: Tensor) -> Tensor:
    """The gate of one label on its own."""
    for part in gate if isinstance(gate, nn.Sequential) else [gate]:
        if isinstance(part, nn.ReLU):
            inputs = inputs.relu()
        else:
            inputs = inputs @ part.weight[label] + (0 if part.bias is None else part.bias[label])
    return inputs.softmax(-1)


def algorithm_1(layer: HybridSharingLayer, shared: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
    """Algorithm 1 of the paper, line by line, with its loops."""
    num_labels = layer.num_labels
    of_shared: list[Tensor] = []
    of_label: list[list[Tensor]] = [[] for _ in range(num_labels)]
    for i in range(num_labels):
        for j in range(layer.num_label_experts):
            of_shared.append(expert(layer, i, j, shared))
            of_label[i].append(expert(layer, i, j, labels[:, i]))
    for j in range(layer.num_shared_experts):
        of_shared.append(expert(layer, None, j, shared))
        for i in range(num_labels):
            of_label[i].append(expert(layer, None, j, labels[:, i]))
    weights = layer.shared_gate(shared).softmax(-1)
    shared_output = (weights.unsqueeze(-1) * torch.stack(of_shared, 2).relu()).sum(2)
    label_outputs = []
    for i in range(num_labels):
        weights = label_gate(layer.label_gate, i, labels[:, i])
        label_outputs.append((weights.unsqueeze(-1) * torch.stack(of_label[i], 1).relu()).sum(1))
    return shared_output, torch.stack(label_outputs, 1)


@pytest.mark.parametrize("settings", LAYERS.values(), ids=list(LAYERS))
def test_equals_algorithm_1_and_its_gradients(settings: dict[str, int]) -> None:
    torch.manual_seed(0)
    layer = HybridSharingLayer(5, 12, 8, **{"num_shared_experts": 3, **settings}, shared_output=True)
    shared, labels = torch.randn(4, 5, 12, requires_grad=True), torch.randn(4, 5, 12, requires_grad=True)
    inputs = (shared, labels, *layer.parameters())
    ours, theirs = layer(shared, labels), algorithm_1(layer, shared, labels)
    for mine, other in zip(ours, theirs, strict=True):
        torch.testing.assert_close(mine, other, atol=1e-5, rtol=1e-5)
    gradients = [torch.autograd.grad(sum(part.square().sum() for part in both), inputs) for both in (ours, theirs)]
    for mine, other in zip(*gradients, strict=True):
        torch.testing.assert_close(mine, other, atol=1e-5, rtol=1e-4)


def test_logits_of_algorithm_1_do_not_depend_on_the_shared_stream() -> None:
    torch.manual_seed(0)
    layers = [HybridSharingLayer(5, 12, 8, shared_output=True), HybridSharingLayer(5, 8, 4, shared_output=True)]
    start = torch.randn(2, 5, 12)
    shared, labels = start, start
    for layer in layers:
        shared, labels = algorithm_1(layer, shared, labels)
    gates = [parameter for layer in layers for parameter in layer.shared_gate.parameters()]
    assert torch.autograd.grad(labels.sum(), gates, allow_unused=True) == (None,) * len(gates)


def test_without_the_shared_output_the_labels_get_the_same() -> None:
    torch.manual_seed(0)
    whole, part = HybridSharingLayer(5, 12, 8, shared_output=True), HybridSharingLayer(5, 12, 8)
    part.load_state_dict({key: value for key, value in whole.state_dict().items() if "shared_gate" not in key})
    inputs = torch.randn(2, 5, 12)
    shared, labels = part(inputs, inputs)
    assert shared is None
    assert torch.equal(labels, whole(inputs, inputs)[1])


@pytest.mark.parametrize("channels", [512, 2048])
def test_fifteen_more_shared_experts_add_what_the_paper_adds(channels: int) -> None:
    def count(num_shared_experts: int) -> int:
        settings = {"num_shared_experts": num_shared_experts, "bias": False, "shared_output": True}
        with torch.device("meta"):
            layers = [HybridSharingLayer(80, channels, 64, **settings), HybridSharingLayer(80, 64, 16, **settings)]
        return sum(map(count_parameters, layers))

    assert count(16) - count(1) == 2175 * channels + 93_120


def test_gates_are_a_distribution_over_experts() -> None:
    layer = HybridSharingLayer(5, 12, 8, num_shared_experts=3, num_label_experts=2)
    weights = layer.gates(torch.randn(4, 5, 12))
    assert weights.shape == (4, 5, 5)
    torch.testing.assert_close(weights.sum(2), torch.ones(4, 5))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"num_shared_experts": -1}, "num_shared_experts must be 0 or more, got -1"),
        ({"num_label_experts": 0}, "num_label_experts must be a whole number of at least 1"),
        ({"gate_hidden": 0}, "gate_hidden must be a whole number of at least 1"),
    ],
)
def test_a_layer_rejects_wrong_settings(settings: dict[str, int], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        HybridSharingLayer(5, 12, 8, **settings)
