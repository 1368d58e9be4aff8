import pytest
import torch

from manylabel.classifier import ScoreCalibration
from manylabel.errors import ConfigError
from manylabel.evaluation import ScoredImages
from manylabel.tuning import Objective, choose_thresholds, tune, tuning_page


def scored(num_images=600, seed=0, thresholds=None):
    """A model that is too sure of itself, and shy of its second label; its third is rare."""
    generator = torch.Generator().manual_seed(seed)
    targets = torch.rand(num_images, 3, generator=generator) < torch.tensor([0.4, 0.2, 0.005])
    noise = torch.randn(num_images, 3, generator=generator)
    logits = 6 * (targets.float() - 0.5 + 0.8 * noise) - torch.tensor([0, 4, 9])
    images = ScoredImages.from_arrays(logits.sigmoid(), targets, labels=["cat", "dog", "<yak>"])
    return ScoredImages(**{**vars(images), "thresholds": thresholds})


@pytest.mark.parametrize("method", ["platt", "temperature"])
def test_scores_and_decisions_get_better_on_images_not_used(method):
    result = tune(scored(), method=method)
    before, after = result.before.metrics, result.after.metrics
    assert after["OF1"] > before["OF1"]
    assert after["log_loss"] < 0.9 * before["log_loss"]
    assert after["calibration_error"] < before["calibration_error"]
    assert result.calibration.method == method


def test_what_is_kept_is_fitted_to_all_images_and_helps_new_ones():
    result, new = tune(scored()), scored(seed=1)
    calibrated = result.calibration.apply(new.scores.double().clamp(1e-7, 1 - 1e-7).logit()).sigmoid()
    decided = calibrated >= torch.tensor(result.thresholds)
    right = (decided & new.targets).sum()
    f1 = 2 * right / (decided.sum() + new.targets.sum())
    assert f1.item() == pytest.approx(result.after.metrics["OF1"], abs=0.05)


def test_after_is_not_evaluated_on_images_that_were_used():
    generator = torch.Generator().manual_seed(0)
    targets = torch.rand(60, 40, generator=generator) < 0.2
    noise = ScoredImages.from_arrays(
        torch.rand(60, 40, generator=generator), targets, labels=[f"label {number}" for number in range(40)]
    )
    result = tune(noise, method="none", min_positives=1)
    thresholds = choose_thresholds(noise.scores, targets, torch.ones_like(targets), min_positives=1).values
    decided = noise.scores >= thresholds
    flattered = 2 * (decided & targets).sum() / (decided.sum() + targets.sum())
    assert result.after.metrics["OF1"] < flattered - 0.02


def test_rare_labels_say_that_they_fall_back():
    result = tune(scored())
    rare = result.labels[2]
    assert (rare.name, rare.positives < 10, rare.note) == ("<yak>", True, "too rare: common threshold")
    assert any("1 label has fewer than 10 images" in note and "<yak>" in note for note in result.notes)
    assert any("Platt" in note for note in result.notes)


def test_rare_labels_share_a_calibration_that_corrects_their_bias():
    generator = torch.Generator().manual_seed(0)
    targets = torch.rand(80, 20, generator=generator) < 0.06  # about 5 images each
    logits = 3 + 2 * targets + 0.5 * torch.randn(80, 20, generator=generator)  # as the asymmetric loss leaves them
    images = ScoredImages.from_arrays(logits.sigmoid(), targets, labels=[f"label {number}" for number in range(20)])
    result = tune(images)
    assert len(set(zip(result.calibration.scale, result.calibration.shift, strict=True))) <= 2
    assert result.before.metrics["calibration_error"] > 0.8
    assert result.after.metrics["calibration_error"] < 0.02


def test_before_is_the_model_with_the_thresholds_and_calibration_it_had():
    strict = tune(scored(thresholds=(1.0, 1.0, 1.0)), method="none")
    assert strict.before.metrics["OR"] == 0
    current = ScoreCalibration("temperature", scale=(0.2,) * 3, shift=(0.0,) * 3)
    softer = tune(scored(), current=current)
    assert softer.before.metrics["log_loss"] < tune(scored()).before.metrics["log_loss"]


def test_a_wanted_recall_is_met_on_images_not_used():
    result = tune(scored(2000), objective=Objective("recall", 0.9))
    assert result.after.metrics["OR"] == pytest.approx(0.9, abs=0.03)


def one_label_each(temperature=3.0, thresholds=None):
    """A single-label model that is too sure of itself."""
    generator = torch.Generator().manual_seed(0)
    logits = 5 * torch.randn(200, 4, generator=generator)
    chosen = torch.distributions.Categorical(logits=logits / temperature).sample()
    images = ScoredImages.from_arrays(
        logits.softmax(1), torch.nn.functional.one_hot(chosen, 4), labels=["a", "b", "c", "d"]
    )
    return ScoredImages(**{**vars(images), "single_label": True, "thresholds": thresholds})


def test_one_label_per_image_gets_a_temperature():
    result = tune(one_label_each())
    assert result.calibration.method == "temperature"
    assert 1 / result.calibration.scale[0] == pytest.approx(3, rel=0.3)


def test_one_label_per_image_gets_no_thresholds_and_is_evaluated_by_the_most_confident():
    images = one_label_each(thresholds=(0.99,) * 4)
    result = tune(images)
    right = images.scores.argmax(dim=1) == images.targets.int().argmax(dim=1)
    assert result.thresholds is None
    for performance in (result.before, result.after):
        assert performance.metrics["OF1"] == pytest.approx(right.float().mean().item())
    assert result.after.metrics["log_loss"] < result.before.metrics["log_loss"]
    assert any("no thresholds to tune" in note for note in result.notes)
    html = tuning_page(result, model="tagger", dataset="pets").html()
    assert "calibration only" in html
    assert "<th>threshold" not in html


def test_the_page_shows_before_and_after_and_escapes_labels():
    html = tuning_page(tune(scored()), model="tagger", dataset="pets").html()
    assert "<title>Tuning of tagger</title>" in html
    assert "&lt;yak&gt;" in html
    assert "<yak>" not in html
    assert html.count("calibration error") >= 2


def test_rejects_more_folds_than_images():
    with pytest.raises(ConfigError, match=r"num_folds must be in 2\.\.5"):
        tune(scored(5), num_folds=6)
