"""The table of the papers' claims: from scores to verdicts, and from results.json to the page."""

import json
from argparse import Namespace
from pathlib import Path

import numpy as np
import pytest
import torch
from benchmarks.claims import elsewhere
from benchmarks.claims.__main__ import ClaimData, evaluate_claim
from benchmarks.claims.arms import ARMS, TOP, arm_named, train
from benchmarks.claims.page import page
from benchmarks.claims.statements import CLAIMS, Claim
from benchmarks.claims.verdict import STATISTICS, Difference, compare, from_pairs, verdict
from scipy.special import expit

from manylabel import Backbone, Classifier, data
from manylabel.recipes import TrainAndVal

ROOT = Path(__file__).parents[1]
CLAIM = Claim(1, "First beats second", "+1.0 (Table 1)", "decoder", "linear", data=("VOC",))


@pytest.fixture
def source(tmp_path):
    images = data.load("scenes:80,seed=1")
    return ClaimData({}, TrainAndVal(images, images), tmp_path, seeds=[0, 1], more_seeds=[2, 3])


def save_scores(source, arm, noise, seeds=range(4)):
    """Save the scores of an arm: the targets with noise."""
    truth = source.sets.val.targets.dense()[0]
    for seed in seeds:
        model = source.folder / f"{arm}-{seed}" / "model"
        model.mkdir(parents=True)
        (model / "config.json").write_text("{}")
        drawn = np.random.default_rng([seed, len(arm)]).normal(size=truth.shape)
        np.save(model.parent / "scores.npy", expit(truth + noise * drawn).astype(np.float32))


@pytest.mark.parametrize(
    ("low", "high", "kind", "expected"),
    [
        (0.1, 0.9, "better", "holds"),
        (-0.1, 0.9, "better", "inconclusive"),
        (-0.9, -0.1, "better", "does not hold"),
        (-0.4, 0.9, "no worse", "holds"),
        (-0.6, 0.9, "no worse", "inconclusive"),
        (-0.9, -0.6, "no worse", "does not hold"),
    ],
)
def test_a_verdict_depends_on_the_whole_interval(low, high, kind, expected):
    assert verdict(Difference((low + high) / 2, low, high), kind, margin=0.5) == expected


def test_differences_are_between_the_same_seeds_and_images():
    second = np.random.default_rng(0).normal(50, 5, size=(3, 1001))
    difference = compare(list(second + 2), list(second))
    assert (difference.value, difference.low, difference.high) == pytest.approx((2, 2, 2))
    assert str(from_pairs([3.0, 5.0], [1.0, 2.0])) == "+2.50 (-3.85 to +8.85)"


def test_a_single_pair_is_inconclusive():
    difference = from_pairs([3.0], [1.0])
    assert str(difference) == "+2.00 (-inf to +inf)"
    assert verdict(difference, "better", margin=0) == "inconclusive"


@pytest.mark.slow
def test_a_clear_claim_is_settled_by_the_first_seeds(source):
    save_scores(source, "decoder", noise=0.2)
    save_scores(source, "linear", noise=2.0)
    (row,), missing = evaluate_claim(CLAIM, {"VOC": source}, Namespace(collect=True))
    assert row["verdict"] == "holds"
    assert row["ours"].endswith("mAP, 2 seeds")
    assert not missing


@pytest.mark.slow
def test_an_open_claim_takes_the_further_seeds_that_both_arms_have(source):
    save_scores(source, "decoder", noise=1.0)
    save_scores(source, "linear", noise=1.0, seeds=(1, 3, 0))
    (row,), _ = evaluate_claim(CLAIM, {"VOC": source}, Namespace(collect=True))
    assert row["verdict"] == "inconclusive"
    assert row["ours"].endswith("mAP, 3 seeds")


def test_what_was_not_tested_is_listed_with_the_reason(source):
    save_scores(source, "decoder", noise=1.0)
    assert evaluate_claim(CLAIM, {"VOC": source}, Namespace(collect=True)) == (
        [],
        ["Claim 1 on VOC: First beats second. Not trained yet."],
    )
    assert evaluate_claim(CLAIM, {}, Namespace(collect=True))[1] == [
        "Claim 1 on VOC: First beats second. No data given."
    ]


def test_zero_shot_arms_are_paired_by_split_and_seed(tmp_path, monkeypatch):
    monkeypatch.setattr(elsewhere, "RESULTS", tmp_path)
    reached = {("full-pseudo", 0): 0.4, ("full-pseudo", 1): 0.5, ("full-pseudo", 2): 0.6}
    reached |= {("group-pseudo", 2): 0.5, ("group-pseudo", 0): 0.3, ("group-pseudo", 1): 0.4}  # in another order
    reached |= {("full-pseudo-on", 1): 0.2, ("full-pseudo-on", 2): 0.2}  # two seeds are too few for an interval
    runs = [
        {"variant": arm, "split": 0, "seed": seed, "zsl": {"mAP": {"value": value, "low": value, "high": value}}}
        for (arm, seed), value in reached.items()
    ]
    written = {"settings": {"splits": [0], "seeds": [0, 1, 2]}, "runs": runs}
    (tmp_path / "zero_shot_COCO_pseudo.json").write_text(json.dumps(written))
    assert all("--splits 0 --seeds 0 1 2" in row["command"] for row in elsewhere.zero_shot())
    assert [row["ours"] for row in elsewhere.zero_shot()] == [
        "COCO, pseudo-labels: -30.00 (-30.00 to -30.00) ZSL mAP, one split, over images",
        "COCO, pseudo-labels: +10.00 (+10.00 to +10.00) ZSL mAP, 3 seeds",
    ]


def test_distilled_arms_are_paired_by_at_least_three_common_seeds(tmp_path, monkeypatch):
    monkeypatch.setattr(elsewhere, "RESULTS", tmp_path)
    values = {"base": [1.0, 2.0, 3.0, 9.0], "SD": [1.5, 2.5], "CPSD": [2.0, 3.0, 4.0]}
    rows = [{"variant": name, "seeds": [*range(len(each))], "mAP": each} for name, each in values.items()]
    (tmp_path / "distilled_VOC.json").write_text(json.dumps({"options": {"data": "voc:x"}, "rows": rows}))
    assert [row["ours"] for row in elsewhere.self_distillation()] == ["VOC: +1.00 (+1.00 to +1.00) mAP, 3 seeds"]


@pytest.mark.parametrize("claim", CLAIMS, ids=lambda claim: f"{claim.number}-{claim.first}")
def test_every_claim_names_arms_and_measures_that_there_are(claim):
    assert claim.measure in STATISTICS
    for name in (claim.first, claim.second):
        arm = arm_named(name, num_labels=20)
        arm.recipe(data="scenes:10", **arm.settings)


@pytest.mark.slow
def test_arms_train_the_top_of_the_backbone_where_the_data_say_so(tmp_path):
    images = data.load("scenes:24,seed=1")
    sets = TrainAndVal(images, images)
    common = {"data": "scenes:24,seed=1", "backbone": "offline:efficientnet_lite0", "image_size": 64, "epochs": 2}
    frozen, top = (
        Classifier.from_pretrained(train(ARMS["linear"], {**common, **regime}, sets, tmp_path / name, [0])[0])
        for name, regime in (("frozen", {"views": 1}), ("top", TOP))
    )
    start = Backbone("offline:efficientnet_lite0").state_dict()
    for model, changes in ((frozen, False), (top, True)):
        weights = model.backbone.state_dict()
        assert all(torch.equal(weights[name], start[name]) for name in start if ".blocks.4." in name)
        assert any(not torch.equal(weights[name], start[name]) for name in start if ".blocks.6." in name) == changes


def test_the_page_is_that_of_the_results():
    results = json.loads((ROOT / "benchmarks" / "claims" / "results.json").read_text(encoding="utf-8"))
    assert (ROOT / "docs" / "claims.md").read_text(encoding="utf-8") == page(results)


def test_a_page_has_a_row_for_each_claim_and_names_each_command_once():
    row = {"number": 2, "text": "t", "paper": "p", "ours": "VOC: 1", "verdict": "holds", "command": "make it"}
    text = page({"about": "About.", "rows": [row, {**row, "ours": "COCO: 2"}], "missing": []})
    assert "| 2 | t | p | VOC: 1: **holds** (a)<br>COCO: 2: **holds** (a) |" in text
    assert text.count("`make it`") == 1


def test_a_page_has_a_column_for_each_regime():
    row = {"number": 2, "text": "t", "paper": "p", "ours": "VOC: 1", "verdict": "holds", "command": "make it"}
    top = {**row, "ours": "VOC, top trained: 2", "verdict": "does not hold"}
    text = page({"about": "About.", "rows": [row, top], "missing": []})
    assert "| 2 | t | p | VOC: 1 | VOC: 2 | **VOC: holds; VOC, top trained: does not hold** |" in text
