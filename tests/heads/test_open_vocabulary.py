import torch
from torch.nn.functional import cosine_similarity

from conformance.head_suite import HeadSuite
from manylabel.heads import ConSE, TextMap

VECTORS = torch.randn(7, 5, generator=torch.Generator().manual_seed(0))


class TestConSE(HeadSuite):
    copies = ("trained_vectors",)
    cases = {
        "trained labels": lambda: ConSE(24, 7, text_vectors=VECTORS),
        "other labels": lambda: ConSE(24, 3, text_vectors=VECTORS[:3]).with_text(VECTORS),
    }
    tells = {"other labels": ["num_trained=3", "num_best=10"]}


def test_new_labels_are_scored_by_the_mixed_vector():
    head, feature = ConSE(24, 7, text_vectors=VECTORS, num_best=2), torch.randn(3, 24, 2, 2)
    new = torch.randn(4, 5)
    with torch.no_grad():
        scores = head([feature]).sigmoid()
        expected = []
        for row in scores:
            weights, best = row.topk(2)
            mixed = sum(w * VECTORS[b] / VECTORS[b].norm() for w, b in zip(weights / weights.sum(), best, strict=True))
            expected.append([20 * (cosine_similarity(mixed, label, dim=0) - 0.5) for label in new])
        torch.testing.assert_close(head.with_text(new)([feature]), torch.tensor(expected))


def test_other_labels_again_still_mix_the_trained_ones():
    head, features = ConSE(24, 7, text_vectors=VECTORS), [torch.randn(2, 24, 2, 2)]
    new = torch.randn(4, 5)
    torch.testing.assert_close(head.with_text(new)(features), head.with_text(VECTORS[:2]).with_text(new)(features))


class TestTextMap(HeadSuite):
    cases = {
        "average": lambda: TextMap(24, 7, text_vectors=VECTORS),
        "maximum": lambda: TextMap(24, 7, text_vectors=VECTORS, pooling="max"),
    }
    tells = {"maximum": ["pooling='max'", "text_dim=5"]}


def test_scores_by_the_cosine_with_each_label():
    head, feature = TextMap(24, 7, text_vectors=VECTORS), torch.randn(2, 24, 3, 3)
    with torch.no_grad():
        mapped = head.map(feature.mean((2, 3)))
        expected = [[head.log_scale.exp() * cosine_similarity(one, label, dim=0) + head.bias for label in VECTORS]
                    for one in mapped]  # fmt: skip
        torch.testing.assert_close(head([feature]), torch.tensor(expected))


def test_new_labels_leave_old_ones_as_they_were():
    head, features = TextMap(24, 7, text_vectors=VECTORS), [torch.randn(2, 24, 3, 3)]
    other = head.with_text(torch.cat([torch.randn(4, 5), VECTORS[[3]]]))
    torch.testing.assert_close(other(features)[:, 4], head(features)[:, 3])
    assert (head.num_labels, other.num_labels) == (7, 5)
