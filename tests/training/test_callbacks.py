import pytest
import torch
from lightning import Callback
from sklearn.metrics import average_precision_score

from manylabel.backbone import Backbone
from manylabel.errors import ConfigError
from manylabel.training import FreezeFirst, ValidationScores
from manylabel.training.callbacks import MovingAverage
from tiny_training import Die, tiny_run


class Record(Callback):
    """Keeps the weights after each step."""

    def __init__(self):
        self.weights = []

    def on_train_batch_end(self, trainer, pl_module, outputs, batch, batch_idx):
        self.weights.append({name: value.clone() for name, value in pl_module.state_dict().items()})


@pytest.mark.slow
def test_the_average_is_that_of_its_formula(tmp_path):
    record = Record()
    task, _ = tiny_run(tmp_path / "run", callbacks=[record], ema_decay=0.3)
    expected = record.weights[0]
    for steps, weights in enumerate(record.weights[1:], start=1):
        keep = min(0.3, (1 + steps) / (10 + steps))
        expected = {
            name: keep * value + (1 - keep) * weights[name] if value.is_floating_point() else weights[name]
            for name, value in expected.items()
        }
    found = task.state_dict()
    assert all(torch.allclose(found[name], value, atol=1e-6) for name, value in expected.items())


@pytest.mark.slow
def test_what_never_changes_stays_exactly_as_it_is(tmp_path):
    record = Record()
    task, _ = tiny_run(tmp_path / "run", callbacks=[record])
    start, end = record.weights[0], task.state_dict()
    fixed = [name for name in start if "query_bank" in name or not start[name].is_floating_point()]
    assert any(not start[name].is_floating_point() for name in fixed)  # the division of labels into groups
    assert all(torch.equal(start[name], end[name]) for name in fixed)


def test_without_averaging_the_last_weights_are_kept(tmp_path):
    record = Record()
    task, _ = tiny_run(tmp_path / "run", callbacks=[record], ema_decay=0.0)
    assert all(torch.equal(value, record.weights[-1][name]) for name, value in task.state_dict().items())


@pytest.mark.parametrize("decay", [0.0, 1.0])
def test_a_decay_that_makes_no_sense_is_refused(decay):
    with pytest.raises(ConfigError, match="decay must be above 0 and below 1"):
        MovingAverage(decay=decay)


def backbone():
    return Backbone("test_resnet", pretrained=False, stages=(-1,))


def test_the_backbone_is_frozen_and_freed_again():
    model = backbone()
    before = {name: parameter.requires_grad for name, parameter in model.named_parameters()}
    freezing = FreezeFirst(model, epochs=2)
    freezing.hold(epoch=1)
    assert not model.training
    assert not any(parameter.requires_grad for parameter in model.parameters())
    freezing.hold(epoch=2)
    assert model.training
    assert {name: parameter.requires_grad for name, parameter in model.named_parameters()} == before


def test_statistics_of_batch_norm_stay_while_frozen():
    model = backbone()
    freezing = FreezeFirst(model, epochs=1)
    images = torch.rand(2, 3, 64, 64)
    statistics = {name: value.clone() for name, value in model.named_buffers()}
    freezing.hold(epoch=0)
    model.train()  # as Lightning does at every epoch
    model(images)
    assert all(torch.equal(value, statistics[name]) for name, value in model.named_buffers())
    freezing.hold(epoch=1)
    model(images)
    assert not all(torch.equal(value, statistics[name]) for name, value in model.named_buffers())


@pytest.mark.slow
def test_scores_of_the_last_and_the_best_epoch_are_kept_also_by_a_resumed_run(tmp_path):
    whole, killed = ValidationScores(), ValidationScores()
    _, rows = tiny_run(tmp_path / "whole", callbacks=[whole])
    with pytest.raises(KeyError):
        tiny_run(tmp_path / "run", callbacks=[killed, Die(epoch=2, batch=1)])
    resumed = ValidationScores()
    tiny_run(tmp_path / "run", callbacks=[resumed])
    values = [row["val_mAP"] for row in rows]
    assert whole.best_epoch == resumed.best_epoch == 1 + values.index(max(values))
    for name in ("last", "best", "targets", "known"):
        assert torch.equal(getattr(whole, name), getattr(resumed, name))
    assert whole.of("last").shape == whole.targets.shape == (9, 5)
    expected = average_precision_score(whole.targets, whole.of("last"))
    assert values[-1] == pytest.approx(expected, abs=1e-6)
