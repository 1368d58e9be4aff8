import pytest
import torch
from lightning import Callback

from manylabel.errors import ConfigError
from manylabel.training import MovingAverage
from tiny_training import tiny_run


class Record(Callback):
    """Keeps the weights after each step."""

    def __init__(self):
        self.weights = []

    def on_train_batch_end(self, trainer, pl_module, outputs, batch, batch_idx):
        self.weights.append({name: value.clone() for name, value in pl_module.state_dict().items()})


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
