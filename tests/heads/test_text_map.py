import torch
from torch.nn.functional import cosine_similarity

from conformance.head_suite import HeadSuite
from manylabel.heads import TextMap

VECTORS = torch.randn(7, 5, generator=torch.Generator().manual_seed(0))


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
