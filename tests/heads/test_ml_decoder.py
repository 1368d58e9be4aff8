import math

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from conformance.head_suite import HeadSuite
from manylabel.errors import ConfigError
from manylabel.heads import CSRA, MLDecoder
from manylabel.heads.ml_decoder import GroupProjection, TextGroupProjection, group_by_text

SMALL = {"width": 16, "num_heads": 2, "feedforward": 32}
GROUPED = {**SMALL, "num_groups": 3, "num_layers": 2, "queries": "learnable", "self_attention": True}
TEXT = {**SMALL, "queries": "text", "text_vectors": torch.randn(7, 5, generator=torch.Generator().manual_seed(0))}


class TestMLDecoder(HeadSuite):
    cases = {
        "a query per label": lambda: MLDecoder(24, 7, **SMALL),
        "groups, two layers, self-attention": lambda: MLDecoder(24, 7, **GROUPED),
        "text queries, groups, weights from text": lambda: MLDecoder(
            24, 7, num_groups=3, shared_projection=True, **TEXT
        ),
        "text queries, shared projection": lambda: MLDecoder(24, 7, shared_projection=True, **TEXT),
        "text queries, groups": lambda: MLDecoder(24, 7, num_groups=4, **TEXT),
        "with CSRA": lambda: MLDecoder(24, 7, add_csra=True, **SMALL),
    }
    tells = {"groups, two layers, self-attention": ["num_groups=3", "num_layers=2", "queries='learnable'"]}


def attend(attention: nn.Module, queries: Tensor, tokens: Tensor) -> Tensor:
    """Eq. 1 and the line below it, head by head, for one image."""
    found = []
    for rows in torch.arange(attention.width).chunk(attention.num_heads):
        query = queries @ attention.query.weight[rows].T + attention.query.bias[rows]
        key = tokens @ attention.key.weight[rows].T + attention.key.bias[rows]
        value = tokens @ attention.value.weight[rows].T + attention.value.bias[rows]
        found.append(torch.softmax(query @ key.T / math.sqrt(len(rows)), dim=-1) @ value)
    return attention.out(torch.cat(found, dim=-1))


def reference(head: MLDecoder, feature: Tensor, queries: Tensor) -> Tensor:
    """Eq. 4 and Eq. 3, image by image and label by label."""
    logits = []
    for image in feature:
        tokens = torch.relu(head.embed(image.flatten(1).T))
        hidden = queries
        for layer in head.layers:
            mixed = hidden if layer.self_attention is None else attend(layer.self_attention, hidden, hidden)
            hidden = F.layer_norm(hidden + mixed, (head.width,), layer.norm_query.weight, layer.norm_query.bias, 1e-5)
            hidden = layer.norm_attention(hidden + attend(layer.cross_attention, hidden, tokens))
            first, _, _, second, _ = layer.feed_forward
            hidden = layer.norm_output(hidden + second(torch.relu(first(hidden))))
        logits.append(torch.stack([project(head.projection, hidden, label) for label in range(head.num_labels)]))
    return torch.stack(logits)


def project(projection: nn.Module, hidden: Tensor, label: int) -> Tensor:
    if not isinstance(projection, GroupProjection):
        return projection.linear(hidden[label]).squeeze()
    group, place = divmod(int(projection.slots[label]), math.ceil(projection.num_labels / projection.num_groups))
    return hidden[group] @ projection.weight[group, :, place] + projection.bias[label]


@pytest.mark.parametrize("num_groups", [None, 1, 4, 5, 9])
@pytest.mark.parametrize("self_attention", [False, True])
def test_equals_the_equations_and_so_do_its_gradients(num_groups: int | None, self_attention: bool) -> None:
    torch.manual_seed(0)
    settings = {**SMALL, "num_layers": 2, "num_groups": num_groups, "self_attention": self_attention}
    head = MLDecoder(24, 9, queries="learnable", **settings).eval()
    feature = torch.randn(3, 24, 4, 5, requires_grad=True)
    ours, slow = head([feature]), reference(head, feature, head.query_bank.vectors)
    torch.testing.assert_close(ours, slow, atol=1e-5, rtol=1e-5)
    weights, inputs = torch.randn_like(ours), [feature, *head.parameters()]
    expected = torch.autograd.grad(slow, inputs, weights)
    torch.testing.assert_close(torch.autograd.grad(ours, inputs, weights), expected, atol=1e-5, rtol=1e-4)


def test_text_queries_with_a_shared_projection_equal_the_equations() -> None:
    head = MLDecoder(24, 7, shared_projection=True, **TEXT).eval()
    feature = torch.randn(2, 24, 3, 3)
    queries = torch.relu(TEXT["text_vectors"] @ head.query_bank.project.weight.T + head.query_bank.project.bias)
    torch.testing.assert_close(head([feature]), reference(head, feature, queries), atol=1e-5, rtol=1e-5)


def test_logits_are_averaged_with_those_of_csra_and_both_are_returned_in_training() -> None:
    head = MLDecoder(24, 7, add_csra=True, **{**SMALL, "dropout": 0.0}).eval()
    plain, csra = MLDecoder(24, 7, **{**SMALL, "dropout": 0.0}).eval(), CSRA(24, 7)
    plain.load_state_dict(head.state_dict(), strict=False)
    csra.load_state_dict(head.csra.state_dict())
    feature = torch.randn(5, 24, 3, 4)
    both = plain([feature]), csra([feature])
    torch.testing.assert_close(head([feature]), (both[0] + both[1]) / 2)
    torch.testing.assert_close(head.train()([feature]), torch.cat(both))


def test_with_self_attention_it_is_torchs_decoder_layer() -> None:
    torch.manual_seed(0)
    head = MLDecoder(24, 7, self_attention=True, **SMALL).eval()
    layer = head.layers[0]
    torchs = nn.TransformerDecoderLayer(16, 2, 32, batch_first=True).eval()
    with torch.no_grad():
        pairs = [(torchs.self_attn, layer.self_attention), (torchs.multihead_attn, layer.cross_attention)]
        for theirs, mine in pairs:
            theirs.in_proj_weight.copy_(torch.cat([mine.query.weight, mine.key.weight, mine.value.weight]))
            theirs.out_proj.load_state_dict(mine.out.state_dict())
        torchs.linear1.load_state_dict(layer.feed_forward[0].state_dict())
        torchs.linear2.load_state_dict(layer.feed_forward[3].state_dict())
    feature = torch.randn(2, 24, 3, 4)
    tokens = torch.relu(head.embed(feature.flatten(2).transpose(1, 2)))
    found = torchs(head.query_bank().expand(2, -1, -1), tokens)
    expected = head.projection(found)
    torch.testing.assert_close(head([feature]), expected, atol=1e-5, rtol=1e-5)


def test_grouped_attention_is_the_map_of_the_labels_group() -> None:
    head = MLDecoder(24, 7, num_groups=3, **SMALL).eval()
    maps = head.attention([torch.randn(2, 24, 3, 4)])
    for label in range(7):
        for other in range(7):
            same_group = head.projection.groups[label] == head.projection.groups[other]
            assert torch.equal(maps[:, label], maps[:, other]) == same_group


@pytest.mark.parametrize(
    ("num_labels", "num_groups", "millions"),
    [(80, None, 7.1507), (80, 20, 7.1507), (80, 80, 7.1507), (1000, 100, 7.858), (9605, 200, 14.625)],
)
def test_has_the_published_number_of_parameters(num_labels: int, num_groups: int | None, millions: float) -> None:
    head = MLDecoder(2048, num_labels, num_groups=num_groups)
    count = sum(parameter.numel() for parameter in head.parameters()) / 1e6
    assert abs(count - millions) < (0.00005 if millions == 7.1507 else 0.0005)


def test_the_permutation_is_saved_with_the_model() -> None:
    head, other = (MLDecoder(24, 7, num_groups=3, seed=seed, **SMALL).eval() for seed in (1, 2))
    assert not torch.equal(head.projection.slots, other.projection.slots)
    other.load_state_dict(head.state_dict())
    feature = torch.randn(2, 24, 3, 3)
    assert torch.equal(head([feature]), other([feature]))


def test_can_be_built_again_from_plain_values_and_a_state_dict() -> None:
    head = MLDecoder(24, 7, **TEXT).eval()
    plain = {**SMALL, "queries": "text", "text_dim": head.text_dim}
    again = MLDecoder(24, 7, **plain).eval()
    again.load_state_dict(head.state_dict())
    feature = torch.randn(2, 24, 3, 3)
    assert torch.equal(head([feature]), again([feature]))
    assert torch.equal(again.text_vectors, TEXT["text_vectors"])


@pytest.mark.parametrize("run", ["eager with gradients", "compile", "export"])
@pytest.mark.slow
def test_follows_its_weights_however_it_is_run(run: str) -> None:
    feature = torch.randn(2, 24, 3, 3)
    head = MLDecoder(24, 7, **SMALL).eval()
    before = _run(head, feature, run)
    with torch.no_grad():
        for weight in head.parameters():
            weight.mul_(1.5).add_(0.1)
        after = head(feature)
    assert (after - before).abs().max() > 0.1
    with torch.set_grad_enabled(run == "eager with gradients"):
        torch.testing.assert_close(_run(head, feature, run), after, atol=1e-5, rtol=1e-5)


def _run(module: nn.Module, feature: Tensor, run: str) -> Tensor:
    if run == "compile":
        torch.compiler.reset()
        module = torch.compile(module, backend="eager", fullgraph=True)
    if run == "export":
        module = torch.export.export(module, (feature,)).module()
    return module(feature)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"num_groups": 8}, r"num_labels \(7\), got 8"),
        ({"num_groups": 3, "shared_projection": True}, "shared_projection needs a query per label"),
        ({"shared_projection": True, "add_csra": True}, "set add_csra or shared_projection to False"),
        ({"num_heads": 3}, "try 2 or 4"),
        ({"dropout": 1.0}, "dropout must be at least 0 and below 1, got 1.0"),
        ({"num_layers": 0}, "num_layers must be a whole number of at least 1, got 0"),
        ({"queries": "words"}, "no queries 'words'"),
    ],
)
def test_rejects_settings_that_cannot_work(settings: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        MLDecoder(24, 7, **{**SMALL, **settings})


VECTORS = torch.randn(11, 6, generator=torch.Generator().manual_seed(0))


def head_of(num_groups, vectors=VECTORS):
    torch.manual_seed(0)
    text = {"queries": "text", "shared_projection": True, "text_vectors": vectors}
    return MLDecoder(8, len(vectors), num_groups=num_groups, width=16, num_heads=2, feedforward=16, **text).eval()


@pytest.mark.parametrize("num_groups", [1, 3, 10, 11])
def test_equals_the_equation_label_by_label(num_groups):
    projection = TextGroupProjection(11, num_groups, 4, text_vectors=VECTORS)
    hidden = torch.randn(2, num_groups, 4)
    with torch.no_grad():
        logits = projection(hidden, VECTORS)
        for label in range(11):
            weight = projection.generate(VECTORS[label])
            found = hidden[:, projection.groups[label]] @ weight / math.sqrt(4) + projection.bias
            torch.testing.assert_close(logits[:, label], found)


@pytest.mark.parametrize("num_groups", [1, 4, 11])
def test_the_order_of_labels_does_not_matter(num_groups):
    order = torch.randperm(11)
    features = [torch.randn(2, 8, 3, 3)]
    shuffled = head_of(num_groups).with_text(VECTORS[order], num_groups=num_groups)
    torch.testing.assert_close(shuffled(features), head_of(num_groups)(features)[:, order], atol=1e-5, rtol=1e-5)


def test_another_seed_divides_in_another_way():
    assert not torch.equal(group_by_text(VECTORS, 4, seed=0), group_by_text(VECTORS, 4, seed=1))


@pytest.mark.parametrize(("count", "num_groups", "expected"), [(5, None, 2), (40, None, 14), (40, 7, 7), (1, None, 1)])
def test_takes_any_labels_in_any_number_of_groups(count, num_groups, expected):
    other = head_of(4).with_text(torch.randn(count, 6), num_groups=num_groups)
    assert other([torch.randn(2, 8, 2, 2)]).shape == (2, count)
    assert other.num_groups == expected
    assert len(other.projection.groups.unique()) == expected


def test_training_divides_anew_each_time_and_evaluation_does_not():
    head, features = head_of(3), [torch.randn(2, 8, 2, 2)]
    for module in head.modules():
        if isinstance(module, torch.nn.Dropout):
            module.p = 0.0
    assert torch.equal(head(features), head(features))
    head.train()
    head.dropout = 0.0
    assert not torch.equal(head(features), head(features))


def test_without_the_made_part_it_is_the_shared_projection():
    projection = TextGroupProjection(11, 11, 4, text_vectors=VECTORS)
    torch.nn.init.zeros_(projection.generate.weight)
    hidden = torch.randn(2, 11, 4)
    shared = hidden[:, projection.groups] @ projection.generate.bias / 2 + projection.bias
    torch.testing.assert_close(projection(hidden, VECTORS), shared)


def test_full_decoding_answers_for_a_label_whatever_else_is_asked():
    head, features = head_of(None), [torch.randn(2, 8, 3, 3)]
    other = head.with_text(torch.cat([torch.randn(30, 6), VECTORS[[4]]]))
    torch.testing.assert_close(other(features)[:, -1], head(features)[:, 4], atol=1e-5, rtol=1e-5)
    assert other(features).shape == (2, 31)


def test_refuses_other_labels_without_text_or_of_another_width():
    with pytest.raises(ConfigError, match="use the recipe zero_shot"):
        MLDecoder(8, 3, width=16).with_text(torch.randn(2, 6))
    with pytest.raises(ConfigError, match="text_vectors must be"):
        head_of(None).with_text(torch.randn(2, 7))
    with pytest.raises(ConfigError, match="num_groups must be between"):
        head_of(4).with_text(torch.randn(2, 6), num_groups=3)
