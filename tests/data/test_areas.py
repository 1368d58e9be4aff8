import numpy as np
from scipy.sparse import csr_array

from manylabel.data.dataset import largest_shares


def test_agrees_with_a_loop_over_the_objects():
    generator = np.random.default_rng(0)
    rows, columns = generator.integers(0, 30, 500), generator.integers(0, 7, 500)
    shares = generator.random(500)
    present = generator.random((30, 7)) < 0.7
    expected = np.zeros((30, 7))
    for row, column, share in zip(rows, columns, shares, strict=True):
        expected[row, column] = max(expected[row, column], share)
    expected[~present] = 0
    found = largest_shares(rows, columns, shares, present=csr_array(present))
    np.testing.assert_allclose(found.toarray(), expected, rtol=1e-6)
    assert found.dtype == np.float32
    assert found.nnz == np.count_nonzero(expected)


def test_boxes_beyond_the_picture_cover_all_of_it_and_unknown_ones_nothing():
    present = csr_array(np.ones((1, 3), dtype=bool))
    found = largest_shares([0, 0, 0], [0, 1, 2], [1.5, np.nan, 0], present=present)
    assert found.toarray().tolist() == [[1, 0, 0]]


def test_is_none_when_no_object_tells_and_empty_when_there_are_no_objects():
    present = csr_array(np.ones((1, 2), dtype=bool))
    assert largest_shares([0], [0], [0.0], present=present) is None
    assert largest_shares([], [], [], present=present).nnz == 0
