import pytest

from manylabel.errors import ConfigError
from manylabel.evaluation import ScoredImages, evaluate, label_pair

TARGETS = [[1, 1, 0], [0, 1, 0], [1, 0, 0], [0, 0, 0]]


def judged(name, scores):
    return evaluate(ScoredImages.from_arrays(scores, TARGETS, labels=["cow", "horse", "cat"], model=name), draws=0)


def test_both_labels_of_every_model_are_told():
    good = judged("good", [[0.9, 0.9, 0], [0.1, 0.8, 0], [0.8, 0.1, 0], [0.2, 0.2, 0]])
    bad = judged("bad", [[0.9, 0.9, 0], [0.1, 0.1, 0], [0.8, 0.8, 0], [0.2, 0.2, 0]])
    pairs = label_pair([good, bad], "cow", "horse")
    assert [(pair.model, pair.first, pair.second) for pair in pairs] == [
        ("good", 1, 1),
        ("bad", 1, pytest.approx((1 + 2 / 4) / 2)),
    ]
    assert [pair.gap for pair in pairs] == pytest.approx([0, 0.25])


def test_a_label_without_pictures_is_refused():
    with pytest.raises(ConfigError, match="judged on no picture of 'cat'"):
        label_pair([judged("a", TARGETS)], "cow", "cat")
