import math

import pytest
import torch

from manylabel.errors import ConfigError
from manylabel.queries import LearnableQueries, RandomQueries, TextQueries, group_labels, group_means, make_queries


@pytest.mark.parametrize(
    ("num_labels", "num_groups"), [(80, 20), (101, 100), (5000, 4999), (9605, 200), (7, 1), (5, 4)]
)
def test_groups_are_even_and_every_label_has_a_slot_of_its_own(num_labels: int, num_groups: int) -> None:
    slots = group_labels(num_labels, num_groups, seed=3)
    group_size = math.ceil(num_labels / num_groups)
    sizes = (slots // group_size).bincount(minlength=num_groups)
    assert sizes.numel() == num_groups
    assert sizes.min() >= 1
    assert sizes.max() - sizes.min() <= 1
    assert slots.unique().numel() == num_labels
    assert slots.max() < num_groups * group_size


def test_grouping_is_seeded_and_shuffles_labels() -> None:
    assert torch.equal(group_labels(80, 20, seed=1), group_labels(80, 20, seed=1))
    assert not torch.equal(group_labels(80, 20, seed=1), group_labels(80, 20, seed=2))
    neighbours = group_labels(80, 20, seed=1)[:4] // 4
    assert neighbours.unique().numel() > 1


def test_a_query_per_label_keeps_the_order_of_labels() -> None:
    assert group_labels(5, 5, seed=9).tolist() == [0, 1, 2, 3, 4]


@pytest.mark.parametrize("num_groups", [0, -1, 81])
def test_rejects_a_number_of_groups_that_labels_cannot_fill(num_groups: int) -> None:
    with pytest.raises(ConfigError, match=rf"between 1 and num_labels \(80\), got {num_groups}; lower"):
        group_labels(80, num_groups)


def test_random_queries_are_seeded_standard_normal_and_not_trained() -> None:
    queries = RandomQueries(200, 300, seed=1)
    assert torch.equal(queries(), RandomQueries(200, 300, seed=1)())
    assert not torch.equal(queries(), RandomQueries(200, 300, seed=2)())
    assert abs(queries().mean()) < 0.02
    assert abs(queries().std() - 1) < 0.02
    assert not list(queries.parameters())


def test_random_queries_leave_the_global_generator_alone() -> None:
    torch.manual_seed(0)
    expected = torch.rand(1)
    torch.manual_seed(0)
    RandomQueries(4, 4)
    group_labels(9, 3)
    assert torch.equal(torch.rand(1), expected)


def test_text_queries_are_linear_then_relu() -> None:
    vectors = torch.randn(5, 6)
    queries = TextQueries(5, 8, text_vectors=vectors)
    expected = (vectors @ queries.project.weight.T + queries.project.bias).clamp(min=0)
    torch.testing.assert_close(queries(), expected)


def test_a_group_of_text_queries_is_made_from_the_mean_vector_of_its_labels() -> None:
    vectors = torch.randn(5, 6)
    queries = TextQueries(5, 8, text_vectors=vectors)
    groups = torch.tensor([1, 0, 1, 1, 0])
    means = torch.stack([vectors[groups == group].mean(0) for group in range(2)])
    made = queries.make(group_means(vectors, groups, 2))
    torch.testing.assert_close(made, torch.relu(queries.project(means)))


def test_text_vectors_come_back_from_a_state_dict() -> None:
    queries = TextQueries(5, 8, text_vectors=torch.randn(5, 6))
    empty = TextQueries(5, 8, text_dim=6)
    empty.load_state_dict(queries.state_dict())
    assert torch.equal(empty(), queries())


@pytest.mark.parametrize(
    ("vectors", "text_dim", "message"),
    [
        (None, None, "need text_vectors"),
        (torch.zeros(4, 6), None, r"= \[5, any\], got \[4, 6\]"),
        (torch.zeros(5, 6), 7, r"= \[5, 7\], got \[5, 6\]"),
        (torch.zeros(5), None, r"got \[5\]"),
    ],
)
def test_rejects_text_vectors_that_do_not_fit(vectors: torch.Tensor, text_dim: int, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        TextQueries(5, 8, text_vectors=vectors, text_dim=text_dim)


def test_makes_the_kind_that_is_named() -> None:
    assert isinstance(make_queries("learnable", 3, 4, num_labels=9), LearnableQueries)
    assert isinstance(make_queries("random", 3, 4, num_labels=9), RandomQueries)
    assert make_queries("text", 3, 4, num_labels=9, text_dim=2).vectors.shape == (9, 2)


def test_rejects_an_unknown_kind_and_text_for_another_kind() -> None:
    with pytest.raises(ConfigError, match="did you mean 'random'"):
        make_queries("randon", 3, 4, num_labels=9)
    with pytest.raises(ConfigError, match="set queries='text'"):
        make_queries("random", 3, 4, num_labels=9, text_vectors=torch.zeros(9, 2))
