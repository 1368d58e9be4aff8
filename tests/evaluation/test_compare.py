from dataclasses import replace

import numpy as np
import pytest
import torch

from manylabel.errors import ConfigError, LabelError
from manylabel.evaluation import ScoredImages, bootstrap, compare, compute_metrics
from manylabel.metrics import average_precision


def model(strength, *, seed=0, num_images=150, name="model"):
    """Return scores of 6 labels that tell present from absent by `strength`, each label by its own."""
    truth = torch.Generator().manual_seed(0)
    targets = torch.rand(num_images, 6, generator=truth) < 0.3
    noise = torch.randn(num_images, 6, generator=torch.Generator().manual_seed(seed))
    scores = (noise + torch.as_tensor(strength) * targets - 1).sigmoid()
    return ScoredImages.from_arrays(scores, targets, labels=list("abcdef"), model=name)


@pytest.fixture(scope="module")
def models():
    weak = model([1.0] * 6, name="weak")
    return weak, model([3.0, 3.0, 3.0, 1.0, 1.0, -1.0], name="strong")


def test_differences_are_those_of_the_metrics_on_the_same_draws(models):
    found = compare(*models, draws=50)
    values = [compute_metrics(scored) for scored in models]
    drawn = [bootstrap(scored, draws=50).metrics["mAP"] for scored in models]
    change = found.metrics["mAP"]
    assert (change.first, change.second) == (values[0]["mAP"], values[1]["mAP"])
    assert change.difference.value == values[1]["mAP"] - values[0]["mAP"]
    bounds = np.quantile((drawn[1] - drawn[0])[1:], [0.025, 0.975])
    assert (change.difference.low, change.difference.high) == pytest.approx(tuple(bounds), abs=1e-6)


def test_labels_that_got_better_or_worse_are_told(models):
    found = compare(*models, draws=200)
    assert [label.verdict for label in found.labels] == ["better"] * 3 + ["unclear"] * 2 + ["worse"]
    before, after = (average_precision(*scored.inputs) for scored in models)
    assert [label.difference.value for label in found.labels] == pytest.approx((after - before).tolist())


def test_the_verdict_knows_which_way_is_better():
    weak, strong = model([1.0] * 6), model([3.0] * 6)
    found = compare(weak, strong, draws=100)
    assert found.metrics["ranking_loss"].difference.value < 0
    assert found.metrics["ranking_loss"].verdict == "better"
    assert compare(strong, weak, draws=100).metrics["ranking_loss"].verdict == "worse"


def test_a_model_against_itself_differs_in_nothing(models):
    found = compare(models[0], models[0], draws=100)
    for change in found.metrics.values():
        assert change.difference == (0, 0, 0)
        assert (change.p_value, change.verdict) == (1, "unclear")
    assert found.better == found.worse == ()


def test_the_p_value_is_never_smaller_than_the_draws_can_tell():
    assert compare(model([0.0] * 6), model([4.0] * 6), draws=99).metrics["mAP"].p_value == pytest.approx(2 / 100)


@pytest.mark.slow
def test_chance_is_called_so_about_one_time_in_twenty():
    # 40 pairs of equally good models: about 2 differences in mAP are taken for real.
    pairs = [(model([1.5] * 6, seed=100 + run), model([1.5] * 6, seed=200 + run)) for run in range(40)]
    calls = [compare(*pair, draws=100).metrics["mAP"].verdict for pair in pairs]
    assert calls.count("unclear") >= 35


def test_without_draws_nothing_is_claimed(models):
    found = compare(*models, draws=0)
    assert found.metrics["mAP"].p_value is None
    assert {change.verdict for change in found.metrics.values()} == {"unclear"}


def test_images_that_changed_most_are_found(models):
    found = compare(*models, draws=0)
    gains = [change.first - change.second for change in found.better]
    assert gains == sorted(gains, reverse=True)
    assert min(gains) > 0
    assert all(change.first < change.second for change in found.worse)


def test_images_that_only_one_model_has_are_left_out(models):
    weak, strong = models
    part = replace(
        strong,
        names=strong.names[10:],
        scores=strong.scores[10:],
        targets=strong.targets[10:],
        known=strong.known[10:],
        indices=strong.indices[10:],
    )
    found = compare(weak, part, draws=0)
    assert found.num_images == 140
    assert found.notes == ("10 images with scores of one model only ignored.",)
    assert found.metrics["mAP"].second == compute_metrics(part)["mAP"]


def test_rejects_models_that_cannot_be_compared(models):
    weak, strong = models
    other = ScoredImages.from_arrays(strong.scores, strong.targets, labels=list("abcdeg"))
    with pytest.raises(LabelError, match=r"differ \(f, g\)"):
        compare(weak, other)
    with pytest.raises(ConfigError, match="no image in common"):
        compare(weak, replace(strong, indices=strong.indices + 1000))
    with pytest.raises(ConfigError, match="the targets of the two models differ"):
        compare(weak, replace(strong, targets=~strong.targets))


def test_everything_becomes_json(models):
    import json

    found = json.loads(json.dumps(compare(*models, draws=30).to_dict()))
    assert found["metrics"]["mAP"]["difference"]["value"] > 0
    assert found["labels"][0]["verdict"] == "better"
    assert found["better"][0]["name"].startswith("image")


def test_a_model_with_thresholds_against_one_without_is_noted(models):
    weak, strong = models
    [note] = compare(weak, replace(strong, thresholds=(0.3,) * 6), draws=0).notes
    assert note.startswith("strong has tuned thresholds, weak a threshold of 50 %")


def test_rejects_images_without_a_known_label(models):
    nothing = [replace(scored, known=torch.zeros_like(scored.known)) for scored in models]
    with pytest.raises(ConfigError, match="no label is known to be present in any of 150 images"):
        compare(*nothing)
