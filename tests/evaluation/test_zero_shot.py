"""ZSL and GZSL against a slow reference, chance, and the calibrated bias."""

import pytest
import torch
from sklearn.metrics import average_precision_score

from manylabel.errors import ConfigError
from manylabel.evaluation import ScoredImages, evaluate_zero_shot

LABELS = ["cat", "dog", "cow", "tram", "bus", "boat", "car"]
UNSEEN = ["bus", "dog", "car"]


@pytest.fixture(scope="module")
def scored():
    generator = torch.Generator().manual_seed(0)
    targets = torch.rand(120, 7, generator=generator) < 0.25
    scores = (targets * 0.3 + 0.7 * torch.rand(120, 7, generator=generator)).clamp(0.01, 0.99)
    return ScoredImages.from_arrays(scores, targets, labels=LABELS)


def f1_at(scores, targets, k):
    """Count, image by image, those with a label only."""
    hits = wanted = given = 0
    for row, truth in zip(scores.tolist(), targets.tolist(), strict=True):
        if any(truth):
            best = sorted(range(len(row)), key=lambda column: -row[column])[:k]
            hits, wanted, given = hits + sum(truth[b] for b in best), wanted + sum(truth), given + len(best)
    precision, recall = hits / given, hits / wanted
    return 2 * precision * recall / (precision + recall)


@pytest.mark.parametrize(("part", "names"), [("zsl", ["dog", "bus", "car"]), ("gzsl", LABELS)])
def test_equals_the_definitions(scored, part, names):
    columns = [LABELS.index(name) for name in names]
    scores, targets = scored.scores[:, columns], scored.targets[:, columns]
    found = getattr(evaluate_zero_shot(scored, unseen=UNSEEN, draws=0), part)
    precisions = [average_precision_score(targets[:, column], scores[:, column]) for column in range(len(names))]
    assert found["mAP"].value == pytest.approx(sum(precisions) / len(names), abs=1e-5)
    for k in (3, 5):
        assert found[f"F1@{k}"].value == pytest.approx(f1_at(scores, targets, k), abs=1e-6)


def test_the_bias_changes_f1_but_not_map(scored):
    found = evaluate_zero_shot(scored, unseen=UNSEEN, bias=5.0, draws=0)
    moved = scored.scores.logit()
    moved[:, [1, 4, 6]] += 5
    assert found.gzsl_calibrated["F1@3"].value == pytest.approx(f1_at(moved, scored.targets, 3), abs=1e-6)
    assert found.gzsl_calibrated["mAP"].value == pytest.approx(found.gzsl["mAP"].value, abs=1e-6)
    assert found.gzsl_calibrated["F1@3"] != found.gzsl["F1@3"]


def test_has_intervals_and_chance(scored):
    found = evaluate_zero_shot(scored, unseen=UNSEEN, draws=60)
    assert found.zsl["mAP"].low < found.zsl["mAP"].value < found.zsl["mAP"].high
    assert found.chance["mAP"] == pytest.approx(scored.targets[:, [1, 4, 6]].float().mean().item(), abs=0.06)
    assert found.zsl["mAP"].value > found.chance["mAP"]
    assert found.to_dict()["unseen"] == ["dog", "bus", "car"]
    assert "3 unseen labels: mAP" in found.to_text()


def test_unknown_truth_is_left_out(scored):
    known = torch.ones_like(scored.targets)
    known[:60] = False
    half = ScoredImages.from_arrays(scored.scores, scored.targets & known, labels=LABELS, known=known)
    rest = ScoredImages.from_arrays(scored.scores[60:], scored.targets[60:], labels=LABELS)
    one, other = (evaluate_zero_shot(each, unseen=UNSEEN, draws=0) for each in (half, rest))
    assert one.zsl == other.zsl


@pytest.mark.parametrize("unseen", [[], LABELS])
def test_rejects_all_or_no_labels_unseen(scored, unseen):
    with pytest.raises(ConfigError, match="some labels must be seen and some unseen"):
        evaluate_zero_shot(scored, unseen=unseen)
