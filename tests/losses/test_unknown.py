"""Which labels count when some are unknown."""

import torch

from manylabel.losses.unknown import resolve_unknown

LOGITS = torch.tensor([[5.0, 1.0, 4.0, 2.0, 3.0], [0.0, 0.0, 0.0, 0.0, 9.0]], requires_grad=True)
TARGETS = torch.tensor([[1.0, 1.0, 0.0, 0.0, 0.0], [0.0, 0.0, 0.0, 1.0, 0.0]])
KNOWN = torch.tensor([[True, False, False, False, True], [True, True, True, True, False]])


def resolve(unknown, known=KNOWN, num_likely=2):
    targets, counted = resolve_unknown(LOGITS, TARGETS, known, unknown=unknown, num_likely=num_likely)
    return targets.int().tolist(), counted.int().tolist()


def test_what_is_not_known_is_never_present():
    for unknown in ("ignore", "negative", "selective"):
        assert resolve(unknown)[0] == [[1, 0, 0, 0, 0], [0, 0, 0, 1, 0]]


def test_ignoring_counts_only_what_is_known():
    assert resolve("ignore")[1] == [[1, 0, 0, 0, 1], [1, 1, 1, 1, 0]]


def test_taking_unknown_labels_for_absent_counts_everything():
    assert resolve("negative")[1] == [[1, 1, 1, 1, 1], [1, 1, 1, 1, 1]]


def test_the_selective_way_leaves_out_the_likeliest_unknown_labels_of_each_picture():
    assert resolve("selective")[1] == [[1, 1, 0, 0, 1], [1, 1, 1, 1, 0]]
    assert resolve("selective", num_likely=1)[1] == [[1, 1, 0, 1, 1], [1, 1, 1, 1, 0]]


def test_the_selective_way_is_to_ignore_all_when_there_are_few():
    assert resolve("selective", num_likely=99) == resolve("ignore")


def test_without_a_mask_everything_counts():
    for unknown in ("ignore", "negative", "selective"):
        assert resolve(unknown, known=None) == (TARGETS.int().tolist(), [[1] * 5] * 2)


def test_choosing_gives_no_gradient():
    targets, counted = resolve_unknown(LOGITS, TARGETS, KNOWN, unknown="selective", num_likely=2)
    assert not targets.requires_grad
    assert not counted.requires_grad
