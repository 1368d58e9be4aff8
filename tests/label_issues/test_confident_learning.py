import numpy as np
import pytest
import torch
from cleanlab.count import compute_confident_joint
from cleanlab.multilabel_classification.rank import get_label_quality_scores_per_class

from manylabel.evaluation import ScoredImages
from manylabel.label_issues import error_probabilities, find_label_issues
from manylabel.label_issues.confident_learning import _count_errors

LABELS = ["cat", "dog", "owl", "rare"]


def make(*, num_images=2000, noise=0.05, seed=0):
    """Return calibrated scores, given labels with errors, and where the errors are."""
    generator = np.random.default_rng(seed)
    logits = generator.normal(-1.5, 2.5, (num_images, len(LABELS)))
    scores = 1 / (1 + np.exp(-logits))
    truth = generator.random(scores.shape) < scores
    truth[:, 3] = np.arange(num_images) < 4
    flips = generator.random(scores.shape) < noise * np.where(truth, 1, 0.2)
    flips[:, 3] = False
    return scores.astype(np.float32), truth ^ flips, flips


def rates(scores, given):
    """Return the fractions of wrong and of missing labels of one label, step by step as in the paper."""
    means = [np.mean(1 - scores[~given]), np.mean(scores[given])]
    counts = np.zeros((2, 2))
    for score, label in zip(scores, given, strict=True):
        sure = [kind for kind, value in ((0, 1 - score), (1, score)) if value >= means[kind]]
        if sure:
            kind = sure[0] if len(sure) == 1 else int(score >= 0.5)
            counts[int(label), kind] += 1
    return counts


def test_the_joint_is_that_of_the_paper_and_of_cleanlab():
    scores, given, _ = make()
    present = torch.from_numpy(given)
    wrong, missing = _count_errors(torch.from_numpy(scores).double(), present, ~present)
    for label in range(3):
        counts = rates(scores[:, label].astype(float), given[:, label])
        column = scores[:, label].astype(float)
        theirs = compute_confident_joint(
            given[:, label].astype(int), np.stack([1 - column, column], axis=1), calibrate=False
        )
        np.testing.assert_array_equal(np.maximum(counts, np.eye(2)), theirs)
        positives = given[:, label].sum()
        assert wrong[label].item() == pytest.approx(positives * counts[1, 0] / counts[1].sum())
        assert missing[label].item() == pytest.approx((~given[:, label]).sum() * counts[0, 1] / counts[0].sum())


def test_flipped_labels_are_found_at_least_as_well_as_by_cleanlab():
    scores, given, flips = make(noise=0.2)
    scored = ScoredImages.from_arrays(scores, given, labels=LABELS)
    ours = error_probabilities(scored).numpy()[:, :3]
    rows = [np.flatnonzero(row).tolist() for row in given]
    theirs = 1 - get_label_quality_scores_per_class(rows, scores.astype(float))[:, :3]

    def precision(errors):
        return flips[:, :3].ravel()[np.argsort(-errors.ravel())[: flips.sum()]].mean()

    assert precision(ours) >= precision(theirs)


def test_issues_are_ranked_and_name_the_opposite_of_what_was_given():
    scores, given, _ = make()
    report = find_label_issues(ScoredImages.from_arrays(scores, given, labels=LABELS))
    assert report.issues
    values = [issue.score for issue in report.issues]
    assert values == sorted(values, reverse=True)
    for issue in report.issues:
        assert (issue.given == "present") == given[issue.index, LABELS.index(issue.label)]
        assert {issue.given, issue.suggested} == {"present", "absent"}
    assert 0 < report.num_wrong < len(report.issues)
    assert report.to_dict()["issues"][0]["image"] == report.issues[0].image


def test_unknown_labels_are_no_issues_and_change_nothing():
    scores, given, _ = make()
    whole = find_label_issues(ScoredImages.from_arrays(scores, given, labels=LABELS))
    known = np.ones_like(given)
    found = [(issue.index, LABELS.index(issue.label)) for issue in whole.issues]
    known[tuple(np.transpose(found))] = False
    part = find_label_issues(ScoredImages.from_arrays(scores, given, labels=LABELS, known=known))
    assert not {(issue.index, LABELS.index(issue.label)) for issue in part.issues} & set(found)
    other = np.where(known, given, ~given)  # what is unknown does not matter
    again = find_label_issues(ScoredImages.from_arrays(scores, other, labels=LABELS, known=known))
    assert again.issues == part.issues


def test_rare_labels_are_listed_but_not_checked():
    scores, given, _ = make()
    report = find_label_issues(ScoredImages.from_arrays(scores, given, labels=LABELS))
    assert "rare" not in {issue.label for issue in report.issues}
    assert "1 label not checked: fewer than 10 images" in report.notes[0]
    assert report.num_labels == 3 * len(given)


def test_no_label_to_check_is_no_error():
    report = find_label_issues(ScoredImages.from_arrays([[0.9], [0.1]], [[1], [0]], labels=["cat"]))
    assert report.issues == ()
