"""Eq. 1 against a loop over images and pairs."""

import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from manylabel.errors import ConfigError, LabelError
from manylabel.labelgraph import LabelGraph
from manylabel.targets import Targets, boolean_matrix
from manylabel.types import LabelSpace


def space(size):
    return LabelSpace([f"label {index}" for index in range(size)])


def targets_of(states, listed):
    """Targets of an array of 1 (present), 0 (absent) and -1 (unknown), with either list."""
    lists = {value: boolean_matrix(*np.nonzero(states == value), shape=states.shape) for value in (-1, 0, 1)}
    return Targets(lists[1], unknown=lists[-1]) if listed == "unknown" else Targets(lists[1], absent=lists[0])


def shares_by_loop(states):
    """S of the paper, counted pair by pair over the images where both labels are known."""
    size = states.shape[1]
    shares = np.zeros((size, size))
    for i in range(size):
        for j in range(size):
            with_i = [row for row in states if row[i] == 1 and row[j] != -1]
            if i != j and with_i:
                shares[i, j] = sum(row[j] == 1 for row in with_i) / len(with_i)
    return shares


@settings(max_examples=60)
@given(
    states=arrays(np.int8, st.tuples(st.integers(0, 12), st.integers(1, 6)), elements=st.sampled_from([-1, 0, 1])),
    listed=st.sampled_from(["unknown", "absent"]),
    tau=st.sampled_from([0.5, 1, 2, 3]),
)
@pytest.mark.slow
def test_eq_1_is_what_a_loop_counts_where_both_labels_are_known(states, listed, tau):
    graph = LabelGraph.from_targets(targets_of(states, listed), space(states.shape[1]), tau=tau)
    shares = shares_by_loop(states)
    roots = shares ** (1 / tau)
    assert graph.counts.tolist() == (states == 1).sum(axis=0).tolist()
    np.testing.assert_allclose(graph.rates.toarray(), shares, atol=1e-12)
    np.testing.assert_allclose(graph.affinity.toarray(), (roots + roots.T) / 2, atol=1e-12)
    both = (states == 1).astype(int).T @ (states == 1).astype(int)
    assert (graph.pairs.toarray() == both - np.diag(np.diag(both))).all()


def test_everything_is_known_unless_said_otherwise():
    present = [[0, 1], [0], [0, 2], [1, 2]]
    plain = LabelGraph.from_targets(Targets.from_lists(present, num_labels=3), space(3))
    listed = LabelGraph.from_targets(Targets.from_lists(present, num_labels=3, unknown=[[]] * 4), space(3))
    assert (plain.affinity != listed.affinity).nnz == 0


def test_neighbours_come_strongest_first_with_their_numbers():
    targets = Targets.from_lists([[0, 1], [0, 1], [0, 2], [0], [2, 3]], num_labels=4)
    graph = LabelGraph.from_targets(targets, LabelSpace(["table", "cup", "cat", "sofa"]), tau=1)
    cup, cat = graph.neighbours("table")
    assert cup == ("cup", 2, 0.5, 0.75)
    assert cat == ("cat", 1, 0.25, 0.375)
    assert graph.neighbours("table", at_most=1) == (cup,)
    with pytest.raises(LabelError, match="did you mean 'sofa'"):
        graph.neighbours("soffa")


def test_a_graph_becomes_json():
    graph = LabelGraph.from_targets(Targets.from_lists([[0, 1], [0]], num_labels=3), space(3))
    values = json.loads(json.dumps(graph.to_dict()))
    assert values["tau"] == 2.0
    assert [label["images"] for label in values["labels"]] == [2, 1, 0]
    assert values["labels"][1]["neighbours"][0]["rate"] == 1.0
    assert values["labels"][2]["neighbours"] == []


@pytest.mark.parametrize("tau", [0, -1, float("nan"), float("inf")])
def test_refuses_a_root_that_is_none(tau):
    with pytest.raises(ConfigError, match="tau must be"):
        LabelGraph.from_targets(Targets.from_lists([[0]], num_labels=1), space(1), tau=tau)


def test_refuses_labels_of_other_targets():
    with pytest.raises(ConfigError, match=r"as many as the targets have \(2\), got 3"):
        LabelGraph.from_targets(Targets.from_lists([[0]], num_labels=2), space(3))
    with pytest.raises(ConfigError, match="needs labels"):
        LabelGraph.from_targets(Targets.from_lists([[]], num_labels=0), space(0))
