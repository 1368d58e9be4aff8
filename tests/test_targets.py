import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.sparse import csr_array

from manylabel.errors import ConfigError, LabelError
from manylabel.targets import Targets, boolean_matrix


def random_states(seed, images=13, labels=7):
    """Dense truth: 1 present, 0 absent, -1 unknown."""
    return np.random.default_rng(seed).integers(-1, 2, (images, labels))


def as_targets(states, *, list_absent):
    matrices = {"absent": states == 0} if list_absent else {"unknown": states == -1}
    sparse = {name: boolean_matrix(*np.nonzero(mask), shape=states.shape) for name, mask in matrices.items()}
    return Targets(boolean_matrix(*np.nonzero(states == 1), shape=states.shape), **sparse)


@given(st.integers(0, 1000), st.booleans())
@pytest.mark.slow
def test_dense_counts_and_selection_agree_with_the_dense_truth(seed, list_absent):
    states = random_states(seed)
    targets = as_targets(states, list_absent=list_absent)
    rows, columns = [5, 0, 5], [6, 2]
    for part, truth in [
        (targets, states),
        (targets[rows], states[rows]),
        (targets[2:4], states[2:4]),
        (targets.of_labels(columns), states[:, columns]),
        (Targets.stack([targets, targets[rows]]), np.concatenate([states, states[rows]])),
    ]:
        values, known = part.dense()
        np.testing.assert_array_equal(values, truth == 1)
        np.testing.assert_array_equal(known, truth != -1)
        np.testing.assert_array_equal(part.positives, (truth == 1).sum(0))
        np.testing.assert_array_equal(part.known, (truth != -1).sum(0))
        np.testing.assert_array_equal(part.labels_per_image, (truth == 1).sum(1))


def test_what_is_not_listed_is_absent_and_known():
    values, known = Targets.from_lists([[1], []], num_labels=2).dense()
    assert values.tolist() == [[0, 1], [0, 0]]
    assert known.all()


def test_a_label_given_twice_counts_once():
    assert Targets.from_lists([[1, 1]], num_labels=2).positives.tolist() == [0, 1]


def test_rejects_contradictions():
    with pytest.raises(ConfigError, match="both present and unknown or absent"):
        Targets.from_lists([[0]], num_labels=2, unknown=[[0]])
    with pytest.raises(ConfigError, match="not both"):
        Targets.from_lists([[0]], num_labels=2, unknown=[[1]], absent=[[1]])
    with pytest.raises(ConfigError, match="the same shape"):
        Targets(boolean_matrix([0], [0], shape=(1, 2)), unknown=boolean_matrix([], [], shape=(1, 3)))
    with pytest.raises(ConfigError, match="cannot stack"):
        Targets.stack([Targets.from_lists([[0]], num_labels=1), Targets.from_lists([[0]], num_labels=1, absent=[[]])])


def test_stacking_all_known_on_partly_known_keeps_the_unknown_ones():
    stacked = Targets.stack(
        [
            Targets.from_lists([[0]], num_labels=2),
            Targets.from_lists([[0]], num_labels=2, unknown=[[1]]),
        ]
    )
    assert stacked.known.tolist() == [2, 1]


@pytest.mark.slow
def test_a_million_images_with_9600_labels_fit_in_a_few_hundred_megabytes():
    generator = np.random.default_rng(0)
    rows = np.repeat(np.arange(1_000_000), 5)
    present = boolean_matrix(rows, generator.integers(0, 9600, len(rows)), shape=(1_000_000, 9600))
    bytes_used = present.data.nbytes + present.indices.nbytes + present.indptr.nbytes
    assert bytes_used < 30e6


def test_a_text_instead_of_a_list_of_labels_is_refused():
    with pytest.raises(LabelError, match=r"must be a list, such as .*, got a string"):
        Targets.from_lists(["cat"], labels=["cat", "dog"])


@pytest.mark.parametrize("kind", ["complete", "unknown", "absent"])
def test_changed_values_are_those_of_a_dense_matrix(kind):
    generator = np.random.default_rng(0)
    matrix = generator.choice([1, 0, 0, -1] if kind != "complete" else [1, 0], (30, 6)).astype(np.float32)
    targets = Targets.from_dense(matrix)
    if kind == "absent":
        targets = Targets(targets.present, absent=csr_array(matrix == 0))
    rows, columns = np.unravel_index(generator.choice(matrix.size, 60, replace=False), matrix.shape)
    values = generator.choice([1, 0, -1], 60)
    matrix[rows, columns] = values
    new, known = targets.with_values(rows, columns, values).dense()
    np.testing.assert_array_equal(np.where(known, new, -1), matrix)
