"""A made set with known answers: every number here was worked out by hand.

image  labels         scores of cat, dog, cow, hen    predicted
a        cat, dog       0.9  0.4  0.1  0.2              cat          (dog missed)
b        cat            0.6  0.7  0.3  0.1              cat, dog     (dog wrong)
c        dog            0.2  0.3  0.8  0.1              cow          (dog missed, cow wrong)
d        dog, cow       0.3  0.8  0.6  0.4              dog, cow     (hen is not known)
"""

import json
from dataclasses import replace

import numpy as np
import pytest
import torch
from scipy.sparse import csr_array

from manylabel.errors import ConfigError
from manylabel.evaluation import DEFAULT_METRICS, ScoredImages, evaluate, find_confusions
from manylabel.evaluation.evaluate import by_label_count, by_object_size
from manylabel.types import Tag

SCORES = [[0.9, 0.4, 0.1, 0.2], [0.6, 0.7, 0.3, 0.1], [0.2, 0.3, 0.8, 0.1], [0.3, 0.8, 0.6, 0.4]]
TARGETS = [[1, 1, 0, 0], [1, 0, 0, 0], [0, 1, 0, 0], [0, 1, 1, 0]]
KNOWN = [[1, 1, 1, 1], [1, 1, 1, 1], [1, 1, 1, 1], [1, 1, 1, 0]]
# How much of the image the largest object of a label covers; nothing is told of the dog in c.
AREAS = [[0.5, 0.001, 0, 0], [0.02, 0, 0, 0], [0, 0, 0, 0], [0, 0.4, 0.01, 0]]

ONCE = torch.ones(1, 4)  # each image counts once, without draws


@pytest.fixture
def scored():
    made = ScoredImages.from_arrays(
        SCORES, TARGETS, labels=["cat", "dog", "cow", "hen"], known=KNOWN, names=["a", "b", "c", "d"]
    )
    return replace(made, areas=csr_array(np.array(AREAS, dtype=np.float32)))


def test_every_measure_is_right(scored):
    found = {name: each.value for name, each in evaluate(scored, metrics=["all"], draws=0).metrics.items()}
    # cat: positives at ranks 1, 2. dog: ranking d, b, a, c, so 1/1, 2/3, 3/4. cow: ranking c, d, so 1/2.
    precisions = {"cat": 1.0, "dog": (1 + 2 / 3 + 3 / 4) / 3, "cow": 1 / 2}
    interpolated = {"cat": 1.0, "dog": (1 + 3 / 4 + 3 / 4) / 3, "cow": 1 / 2}
    # Recall 0 to 0.3 is reached at precision 1, 0.4 to 1 at 3/4.
    eleven = {"cat": 1.0, "dog": (4 * 1 + 7 * 3 / 4) / 11, "cow": 1 / 2}
    # Predicted: cat a b, dog b d, cow c d. Right: cat 2 of 2, dog 1 of 2, cow 1 of 2. There: 2, 3, 1; no hen.
    precision, recall = (1 + 1 / 2 + 1 / 2) / 3, (1 + 1 / 3 + 1) / 3
    # Top 3: a cat dog hen, b dog cat cow, c cow dog cat, d dog cow hen (hen not known, so neither right nor wrong).
    top_precision, top_recall = (2 / 3 + 3 / 4 + 1 / 3) / 3, 1.0
    expected = {
        "mAP": np.mean(list(precisions.values())),
        "mAP_all_points": np.mean(list(interpolated.values())),
        "mAP_eleven_points": np.mean(list(eleven.values())),
        "CP": precision,
        "CR": recall,
        "CF1": 2 * precision * recall / (precision + recall),
        "OP": 4 / 6,
        "OR": 4 / 6,
        "OF1": 4 / 6,
        "CP@3": top_precision,
        "CR@3": top_recall,
        "CF1@3": 2 * top_precision * top_recall / (top_precision + top_recall),
        "OP@3": 6 / 11,
        "OR@3": 1.0,
        "OF1@3": 12 / 17,
        "OF1@5": 2 * 6 / (15 + 6),
        # b: 1 of 3 pairs, dog above cat. c: 1 of 3, cow above dog. a, d: none.
        "ranking_loss": (0 + 1 / 3 + 1 / 3 + 0) / 4,
        "coverage": (2 + 2 + 2 + 2) / 4,
        "one_error": 2 / 4,
        "subset_accuracy": 1 / 4,
        "hamming_loss": 4 / 15,
    }
    assert {name: found[name] for name in expected} == pytest.approx(expected, abs=1e-6)
    assert set(found) == {*expected, "calibration_error"}


def test_calibration_counts_every_known_answer(scored):
    found = evaluate(scored, draws=0)
    assert sum(entry.count for entry in found.calibration) == 15
    by_hand = sum(abs(entry.score - entry.fraction) * entry.count for entry in found.calibration) / 15
    assert found.metrics["calibration_error"].value == pytest.approx(by_hand, abs=1e-6)
    low = found.calibration[0]  # 0.1 three times and, with 15 bins, nothing else
    assert (low.score, low.fraction, low.count) == pytest.approx((0.1, 0, 3))


def test_every_label_is_right(scored):
    cat, dog, _, hen = evaluate(scored, draws=0).labels
    assert (cat.positives, cat.known, cat.value, cat.recall, cat.precision, cat.f1) == pytest.approx((2, 4, 1, 1, 1, 1))
    assert (dog.positives, dog.predicted) == (3, 2)
    assert (dog.precision, dog.recall, dog.f1) == pytest.approx((1 / 2, 1 / 3, 2 / 5))
    assert dog.curve.recall == pytest.approx((1 / 3, 2 / 3, 1), abs=1e-4)
    assert dog.curve.precision == pytest.approx((1, 2 / 3, 3 / 4), abs=1e-4)
    assert (hen.positives, hen.known, hen.average_precision, hen.curve.recall) == (0, 3, None, ())


def test_labels_without_positives_are_named(scored):
    assert evaluate(scored, draws=0).without_positives == ("hen",)


def test_thresholds_of_the_model_decide(scored):
    found = evaluate(replace(scored, thresholds=(0.95, 0.3, 0.5, 0.5)), draws=0)
    cat, dog = found.labels[:2]
    assert (cat.predicted, cat.precision, cat.recall) == (0, 0, 0)
    assert (dog.predicted, dog.precision, dog.recall) == (4, 3 / 4, 1)
    assert found.has_thresholds


def test_intervals_surround_the_values(scored):
    found = evaluate(scored, draws=200)
    for name, estimate in found.metrics.items():
        assert estimate.low <= estimate.value <= estimate.high, name
    assert found.metrics["mAP"].low < found.metrics["mAP"].high
    assert all(estimate.low is None for estimate in evaluate(scored, draws=0).metrics.values())


def test_confusions_need_two_images_and_more_than_chance():
    # A wolf is predicted where a dog is missed, twice; a cow is predicted everywhere.
    labels = ["dog", "wolf", "cow"]
    scores = [[0.1, 0.9, 0.9], [0.1, 0.9, 0.9], [0.1, 0.1, 0.9], [0.9, 0.1, 0.9], [0.9, 0.9, 0.9], [0.9, 0.1, 0.9]]
    targets = [[1, 0, 0]] * 4 + [[1, 1, 0], [1, 0, 0]]
    (found,) = find_confusions(ScoredImages.from_arrays(scores, targets, labels=labels))
    assert (found.actual, found.predicted, found.count) == ("dog", "wolf", 2)
    assert (found.rate, found.base_rate) == pytest.approx((2 / 3, 0))


def test_confusions_are_counted_pair_by_pair():
    generator = torch.Generator().manual_seed(0)
    scores, targets = torch.rand(80, 5, generator=generator), torch.rand(80, 5, generator=generator) < 0.4
    known = torch.rand(80, 5, generator=generator) < 0.9
    scored = ScoredImages.from_arrays(scores, targets, labels=list("abcde"), known=known)
    pairs = {}
    for first in range(5):
        missed = targets[:, first] & known[:, first] & (scores[:, first] < 0.5)
        for second in range(5):
            wrong = ~targets[:, second] & known[:, second] & (scores[:, second] >= 0.5)
            both, usual = int((missed & wrong).sum()), float((wrong & ~missed).sum() / (~missed).sum())
            if first != second and both > 1 and both > usual * missed.sum():
                pairs["abcde"[first], "abcde"[second]] = (both, both / int(missed.sum()), usual)
    found = find_confusions(scored)
    assert {(pair.actual, pair.predicted): (pair.count, pair.rate, pair.base_rate) for pair in found} == {
        key: pytest.approx(value) for key, value in pairs.items()
    }
    excess = [pair.count - pair.base_rate * pair.count / pair.rate for pair in found]
    assert excess == sorted(excess, reverse=True)
    assert len(find_confusions(scored, at_most=2)) == 2


def values(group):
    return {name: each.value for name, each in group.metrics.items()}


def test_sizes_are_told_apart(scored):
    groups = {group.name: group for group in by_object_size(scored, ONCE)}
    assert {name: group.count for name, group in groups.items()} == {
        "small": 1, "medium": 2, "large": 2, "small next to large": 1
    }  # fmt: skip
    # Small: the dog in a, missed; of the images in which a dog is that small or absent, b comes first.
    assert values(groups["small"]) == {"recall": 0, "mAP": 0.5}
    # Medium: the cat in b, above all images without a cat, and the cow in d, below c.
    assert values(groups["medium"]) == {"recall": 1, "mAP": 0.75}
    assert groups["large"].metrics["recall"].value == 1
    assert groups["small next to large"].metrics["recall"].value == 0


def test_without_sizes_there_are_no_groups_of_them(scored):
    assert by_object_size(replace(scored, areas=None), ONCE) == ()


def test_images_are_told_apart_by_their_number_of_labels(scored):
    one, two = by_label_count(scored, ONCE)
    assert (one.name, one.count, two.name, two.count) == ("1 label", 2, "2 labels", 2)
    # b: cat right, dog wrong; c: dog missed, cow wrong.
    assert values(one) == pytest.approx({"precision": 1 / 3, "recall": 1 / 2, "F1": 2 / 5, "ranking_loss": 1 / 3})
    assert values(two) == pytest.approx({"precision": 1, "recall": 3 / 4, "F1": 6 / 7, "ranking_loss": 0})


def test_groups_have_intervals(scored):
    many = replace(
        scored,
        names=scored.names * 20,
        scores=scored.scores.repeat(20, 1),
        targets=scored.targets.repeat(20, 1),
        known=scored.known.repeat(20, 1),
        indices=np.arange(80),
        areas=csr_array(np.tile(scored.areas.toarray(), (20, 1))),
    )
    found = evaluate(many, draws=100)
    recall = found.by_count[0].metrics["recall"]
    assert recall.low < 0.5 < recall.high
    medium = found.by_size[1].metrics["mAP"]
    assert medium.low < 0.75 < medium.high


def test_the_worst_and_best_images_are_found(scored):
    found = evaluate(scored, draws=0)
    assert [image.name for image in found.worst] == ["c", "b"]
    assert [image.name for image in found.best] == ["d", "a"]
    worst = found.worst[0]
    assert worst.true_positives == ()
    assert (worst.false_negatives, worst.false_positives) == ((Tag("dog", 0.3),), (Tag("cow", 0.8),))
    assert worst.loss == pytest.approx(-np.log([0.8, 0.3, 0.2, 0.9]).sum(), abs=1e-4)


@pytest.mark.parametrize("single_label", [False, True])
def test_top_one_accuracy_is_there_where_every_image_has_one_label(single_label):
    scores = [[0.9, 0.1], [0.6, 0.4]]
    one = ScoredImages.from_arrays(scores, [[1, 0], [0, 1]], labels=["a", "b"])
    two = ScoredImages.from_arrays(scores, [[1, 0], [1, 1]], labels=["a", "b"])
    assert evaluate(replace(one, single_label=single_label), draws=30).metrics["top_1"].value == 0.5
    assert "top_1" not in evaluate(replace(two, single_label=single_label), draws=30).metrics


def test_a_single_label_model_is_evaluated_by_its_most_confident_label():
    scores = [[0.4, 0.35, 0.25], [0.1, 0.45, 0.45], [0.2, 0.2, 0.6]]
    made = ScoredImages.from_arrays(scores, [[1, 0, 0], [0, 0, 1], [0, 0, 1]], labels=["a", "b", "c"])
    found = evaluate(replace(made, single_label=True), metrics=["all"], draws=30)
    assert {name: found.metrics[name].value for name in ("OP", "OR", "subset_accuracy", "top_1")} == {
        name: pytest.approx(2 / 3) for name in ("OP", "OR", "subset_accuracy", "top_1")
    }
    assert found.metrics["hamming_loss"].value == pytest.approx(2 / 9)
    assert [label.predicted for label in found.labels] == [1, 1, 1]
    assert [label.recall for label in found.labels] == [1, None, 0.5]  # b has no positives


def test_everything_becomes_json(scored):
    found = json.loads(json.dumps(evaluate(scored, draws=30).to_dict()))
    assert found["metrics"]["OP"]["value"] == pytest.approx(4 / 6)
    assert found["labels"][1]["curve"]["recall"][-1] == 1
    assert found["worst"][0]["false_negatives"] == [{"label": "dog", "score": 0.3}]
    assert found["by_size"][0]["metrics"]["recall"]["value"] == 0
    assert found["without_positives"] == ["hen"]


def test_a_model_that_never_predicts_anything_is_evaluated_too():
    scored = ScoredImages.from_arrays(np.zeros((30, 2)), np.eye(2)[np.arange(30) % 2], labels=["a", "b"])
    found = evaluate(scored, draws=50)
    assert found.metrics["OP"] == (0, 0, 0)
    assert found.metrics["OR"].value == 0


def test_rejects_what_cannot_be_evaluated(scored):
    with pytest.raises(ConfigError, match="none of the 0 images is known to have one of the 1 labels"):
        evaluate(ScoredImages.from_arrays(np.zeros((0, 1)), np.zeros((0, 1)), labels=["a"]))
    with pytest.raises(ConfigError, match="none of the 4 images is known to have one of the 4 labels"):
        evaluate(replace(scored, known=torch.zeros_like(scored.known)))
    with pytest.raises(ConfigError, match="no metric 'F1'; did you mean 'OF1'"):
        evaluate(scored, metrics=["F1"])


def test_about_a_dozen_measures_are_computed_unless_others_are_asked_for(scored):
    assert list(evaluate(scored, draws=0).metrics) == [name for name in DEFAULT_METRICS if name != "top_1"]
    assert list(evaluate(scored, metrics=["coverage", "OF1"], draws=0).metrics) == ["mAP", "OF1", "coverage"]


def test_a_metric_that_is_undefined_is_left_out():
    both = ScoredImages.from_arrays([[0.9, 0.8], [0.7, 0.6]], [[1, 1], [1, 1]], labels=["a", "b"])
    found = evaluate(both, draws=30)
    assert "ranking_loss" not in found.metrics
    assert "ranking_loss" not in found.by_count[0].metrics
    assert "NaN" not in json.dumps(found.to_dict())
