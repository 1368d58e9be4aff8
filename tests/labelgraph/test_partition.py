"""Partitions: planted groups, properties, graphs at the edge, and Eq. 2 against a dense Laplacian."""

import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.sparse import block_diag, csr_array
from sklearn.metrics import adjusted_rand_score

from manylabel.errors import ConfigError, LabelError
from manylabel.labelgraph import LabelGraph, Partition, partition, partition_labels
from manylabel.labelgraph.partition import Affinity, spectral_embedding
from manylabel.targets import Targets, boolean_matrix
from manylabel.types import LabelSpace


def graph_of(images, size):
    labels = LabelSpace([f"label {index}" for index in range(size)])
    return LabelGraph.from_targets(Targets.from_lists(images, num_labels=size), labels)


def numbers(subsets):
    """Subsets as sets of label positions."""
    return {frozenset(int(name.split()[1]) for name in subset) for subset in subsets}


def planted(sizes, *, images, stray, seed):
    """Images of labels of one group each, with stray labels of others; and the groups."""
    generator = np.random.default_rng(seed)
    size = sum(sizes)
    order = generator.permutation(size)
    groups = np.split(order, np.cumsum(sizes)[:-1])
    present = np.zeros((images, size), dtype=bool)
    for row in present:
        row[groups[generator.integers(len(sizes))]] = True
    present &= generator.random(present.shape) < 0.5
    present |= generator.random(present.shape) < stray
    labels = LabelSpace([f"label {index}" for index in range(size)])
    graph = LabelGraph.from_targets(Targets(boolean_matrix(*np.nonzero(present), shape=present.shape)), labels)
    return graph, {frozenset(group.tolist()) for group in groups}


@pytest.mark.parametrize("stray", [0.0, 0.02])
@pytest.mark.parametrize("sizes", [(8, 8, 8), (12, 7, 4, 3), (20, 5)])
def test_recovers_planted_groups_exactly(sizes, stray):
    graph, groups = planted(sizes, images=1500, stray=stray, seed=len(sizes))
    partition = partition_labels(graph, len(sizes), num_seeds=3)
    assert numbers(partition.subsets) == groups
    assert partition.sizes == tuple(sorted(sizes, reverse=True))
    assert partition.stability == 1.0


@pytest.mark.slow
def test_recovers_planted_groups_of_many_labels():
    graph, groups = planted((300,) * 4, images=3000, stray=0.01, seed=0)
    assert numbers(partition_labels(graph, 4, num_restarts=3, num_seeds=1).subsets) == groups


def test_dis_puts_labels_together_that_never_come_together():
    even, odd = {0, 2, 4, 6}, {1, 3, 5, 7}
    graph = graph_of([[one, other] for one in even for other in odd], 8)
    assert numbers(partition_labels(graph, 2, kind="dis").subsets) == {frozenset(even), frozenset(odd)}


@settings(max_examples=80)
@given(data=st.data(), kind=st.sampled_from(["co", "dis", "random"]))
@pytest.mark.slow
def test_every_label_is_in_one_subset_and_none_is_empty(data, kind):
    size = data.draw(st.integers(1, 9))
    images = data.draw(st.lists(st.lists(st.integers(0, size - 1), max_size=4), max_size=10))
    num_subsets = data.draw(st.integers(1, size))
    graph = graph_of(images, size)
    partition = partition_labels(graph, num_subsets, kind=kind, num_restarts=2, num_seeds=2)
    assert len(partition) == num_subsets
    assert sorted(name for subset in partition.subsets for name in subset) == sorted(graph.labels)
    assert list(partition.sizes) == sorted(map(len, partition.subsets), reverse=True)
    assert min(partition.sizes) >= 1
    assert partition.singletons == tuple(name for subset in partition.subsets if len(subset) == 1 for name in subset)
    assert -1 <= partition.stability <= 1 + 1e-9
    assert partition == partition_labels(graph, num_subsets, kind=kind, num_restarts=2, num_seeds=2)


def test_labels_without_links_are_dealt_to_the_smallest_subsets():
    together = [[0, 1, 2], [0, 1, 2], [3, 4], [3, 4], [2, 3]]  # 5 to 8 are alone or in no image
    partition = partition_labels(graph_of([*together, [5], [6]], 9), 2)
    assert sorted(partition.sizes) == [4, 5]
    assert any({0, 1, 2} <= subset for subset in numbers(partition.subsets))
    assert any({3, 4} <= subset for subset in numbers(partition.subsets))


def test_a_graph_without_any_link_is_divided_evenly():
    assert partition_labels(graph_of([], 7), 3).sizes == (3, 2, 2)
    assert partition_labels(graph_of([[0], [1]], 7), 7).sizes == (1,) * 7


def test_a_graph_in_more_parts_than_subsets_is_not_cut():
    parts = [[0, 1, 2, 3], [4, 5], [6, 7], [8, 9]]
    partition = partition_labels(graph_of(parts, 10), 2)
    assert partition.sizes == (6, 4)
    assert all(any(set(part) <= subset for subset in numbers(partition.subsets)) for part in parts)
    assert partition.stability == 1.0


def test_labels_that_are_always_together_still_fill_all_subsets():
    twins = graph_of([[0, 1, 2, 3, 4, 5]] * 3, 6)
    for kind in ("co", "dis"):
        assert len(partition_labels(twins, 4, kind=kind, num_seeds=2)) == 4


def test_one_label_is_a_subset():
    for kind in ("co", "dis", "random"):
        assert partition_labels(graph_of([[0]], 1), 1, kind=kind).singletons == ("label 0",)


def test_one_subset_is_everything_and_as_many_as_labels_are_single():
    graph, _ = planted((4, 3), images=60, stray=0.1, seed=0)
    for kind in ("co", "dis", "random"):
        assert partition_labels(graph, 1, kind=kind).sizes == (7,)
        assert partition_labels(graph, 7, kind=kind).singletons == tuple(graph.labels)


def test_random_partitions_are_even_and_differ_by_seed():
    graph = graph_of([], 42)
    first, other = (partition_labels(graph, 4, kind="random", seed=seed) for seed in (0, 1))
    assert first.sizes == other.sizes == (11, 11, 10, 10)
    assert first.subsets != other.subsets
    assert abs(first.stability) < 0.1


def test_stability_is_the_mean_agreement_of_all_pairs_of_seeds():
    graph = graph_of([], 12)
    seeds = [int(state) for state in np.random.SeedSequence(5).generate_state(3)]
    results = [np.random.default_rng(seed).permutation(12) % 3 for seed in seeds]
    expected = np.mean([adjusted_rand_score(results[i], results[j]) for i, j in ((0, 1), (0, 2), (1, 2))])
    assert partition_labels(graph, 3, kind="random", seed=5, num_seeds=3).stability == pytest.approx(expected)


def test_positions_follow_the_label_space():
    graph, _ = planted((4, 3), images=60, stray=0.0, seed=0)
    partition = partition_labels(graph, 2)
    for subset, positions in zip(partition.subsets, partition.positions(graph.labels), strict=True):
        assert tuple(graph.labels[position] for position in positions) == subset
        assert positions.tolist() == sorted(positions.tolist())


@pytest.mark.slow
def test_a_partition_survives_json():
    graph, _ = planted((4, 3, 1), images=60, stray=0.1, seed=0)
    partition = partition_labels(graph, 3, kind="dis", seed=4)
    assert Partition.from_dict(json.loads(json.dumps(partition.to_dict()))) == partition


@pytest.mark.parametrize("num_subsets", [0, -1, 6])
def test_refuses_more_subsets_than_labels_or_none(num_subsets):
    with pytest.raises(ConfigError, match=r"between 1 and the number of labels \(5\)"):
        partition_labels(graph_of([[0, 1]], 5), num_subsets)


def test_refuses_settings_that_mean_nothing():
    graph = graph_of([[0, 1]], 5)
    with pytest.raises(ConfigError, match="did you mean 'dis'"):
        partition_labels(graph, 2, kind="diss")
    for setting in ({"seed": -1}, {"num_restarts": 0}, {"num_seeds": 0}):
        with pytest.raises(ConfigError, match=f"{next(iter(setting))} must be at least"):
            partition_labels(graph, 2, **setting)


def test_refuses_subsets_that_are_no_partition():
    for subsets in ((("cat",), ("cat", "dog")), (("cat",), ())):
        with pytest.raises(LabelError, match="one subset only"):
            Partition(subsets, kind="co")


def random_affinity(size, seed, density=0.3):
    generator = np.random.default_rng(seed)
    upper = np.triu(generator.random((size, size)) * (generator.random((size, size)) < density), 1)
    return csr_array(upper + upper.T)


def reference_embedding(matrix, dimensions):
    """The eigenvectors of the normalised Laplacian with the smallest eigenvalues, by numpy, divided by root degrees."""
    degrees = matrix.sum(axis=1)
    laplacian = np.diag(degrees) - matrix
    _, vectors = np.linalg.eigh(laplacian / np.sqrt(degrees)[:, None] / np.sqrt(degrees))
    return vectors[:, :dimensions] / np.sqrt(degrees)[:, None]


@pytest.fixture(params=["all at once", "by iteration"])
def way(request, monkeypatch):
    monkeypatch.setattr(partition, "_DENSE_LABELS", 1000 if request.param == "all at once" else 0)
    monkeypatch.setattr(partition, "_DENSE_SHARE", 0.9)


@pytest.mark.usefixtures("way")
@pytest.mark.parametrize("complement", [False, True])
@pytest.mark.parametrize("strength", [1, 0.05])  # weak links: apart, all eigenvalues but the first exceed 1
def test_eq_2_is_what_the_dense_laplacian_says(complement, strength):
    affinity = Affinity(strength * random_affinity(40, seed=0), complement)
    ours, reference = spectral_embedding(affinity, 5), reference_embedding(affinity.dense(), 5)
    # eigenvectors may be turned or mirrored; distances, which are all that k-means sees, may not
    np.testing.assert_allclose(ours @ ours.T, reference @ reference.T, atol=1e-5)


@pytest.mark.usefixtures("way")
def test_finds_every_part_of_a_graph_in_parts():
    affinity = Affinity(csr_array(block_diag([random_affinity(12, seed, density=0.8) for seed in range(4)])))
    ours, reference = spectral_embedding(affinity, 6), reference_embedding(affinity.dense(), 6)
    np.testing.assert_allclose(ours @ ours.T, reference @ reference.T, atol=1e-5)
    parts = spectral_embedding(affinity, 4)
    assert len(np.unique((parts @ parts.T).round(6), axis=0)) == 4
    assert len(np.unique(affinity.components)) == 4


def test_apart_is_one_minus_together_without_the_diagonal():
    together = random_affinity(9, 0)
    expected = 1 - together.toarray()
    np.fill_diagonal(expected, 0)
    affinity = Affinity(together, complement=True)
    np.testing.assert_allclose(affinity.dense(), expected, atol=1e-12)
    np.testing.assert_allclose(affinity.degrees, expected.sum(axis=1))
    np.testing.assert_allclose(affinity.among(np.array([1, 4, 6])).dense(), expected[np.ix_([1, 4, 6], [1, 4, 6])])


def test_labels_that_are_always_together_have_no_link_apart():
    always = Affinity(csr_array(1.0 - np.eye(3)), complement=True)
    assert always.degrees.tolist() == [0, 0, 0]
    assert sorted(always.components.tolist()) == [0, 1, 2]
    path = np.array([[0, 1, 0.5], [1, 0, 1], [0.5, 1, 0]])  # only the ends are ever apart
    components = Affinity(csr_array(path), complement=True).components
    assert components[0] == components[2] != components[1]
