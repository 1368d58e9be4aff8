"""Eq. 2 against a dense Laplacian written out, by both ways to the eigenvectors."""

import numpy as np
import pytest
from scipy.sparse import block_diag, csr_array

from manylabel.labelgraph import spectral
from manylabel.labelgraph.spectral import Affinity, spectral_embedding


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
    monkeypatch.setattr(spectral, "_DENSE_LABELS", 1000 if request.param == "all at once" else 0)
    monkeypatch.setattr(spectral, "_DENSE_SHARE", 0.9)


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
