"""Zero-shot group decoding: the equation, any number of groups, any order of labels."""

import math

import pytest
import torch

from manylabel.errors import ConfigError
from manylabel.heads import MLDecoder
from manylabel.heads.ml_decoder import TextGroupProjection, group_by_text

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
