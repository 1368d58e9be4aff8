import pytest
import torch
from torch import nn
from torch.optim import SGD
from torch.optim.lr_scheduler import OneCycleLR

from manylabel.settings import LoopSettings
from manylabel.training.optimizers import make_optimizer, make_schedule, parameter_groups


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.backbone = nn.Sequential(nn.Linear(2, 3), nn.LayerNorm(3))
        self.head = nn.Linear(3, 1)
        self.fixed = nn.Linear(1, 1).requires_grad_(False)


def test_biases_and_norms_are_not_drawn_to_zero_and_the_backbone_takes_smaller_steps():
    model = Model()
    settings = LoopSettings(learning_rate=0.1, weight_decay=0.01)
    groups = make_optimizer(model, settings, backbone_scale=0.5).param_groups
    found = {id(parameter): (group["lr"], group["weight_decay"]) for group in groups for parameter in group["params"]}
    expected = {
        "backbone.0.weight": (0.05, 0.01),
        "backbone.0.bias": (0.05, 0.0),
        "backbone.1.weight": (0.05, 0.0),
        "backbone.1.bias": (0.05, 0.0),
        "head.weight": (0.1, 0.01),
        "head.bias": (0.1, 0.0),
    }
    assert {name: found.get(id(parameter)) for name, parameter in model.named_parameters()} == {
        **expected,
        "fixed.weight": None,
        "fixed.bias": None,
    }


def test_settings_reach_the_optimizer():
    model = nn.Linear(2, 1)
    assert make_optimizer(model, LoopSettings(optimizer="sgd")).defaults["momentum"] == 0.9
    assert make_optimizer(model, LoopSettings(optimizer="adam", betas=(0.9, 0.99))).defaults["betas"] == (0.9, 0.99)
    assert type(make_optimizer(model, LoopSettings(optimizer="adam"))) is torch.optim.Adam
    assert type(make_optimizer(model, LoopSettings(optimizer="adamw"))) is torch.optim.AdamW


def test_a_head_alone_has_no_backbone_group():
    assert [group["lr"] for group in parameter_groups(nn.Linear(2, 1), learning_rate=1.0, weight_decay=0.1)] == [1, 1]


STEPS = 1000


def rates(optimizer, scheduler):
    found = []
    for _ in range(STEPS):
        found.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        scheduler.step()
    return found


def optimizer():
    return SGD([torch.zeros(1, requires_grad=True)], lr=0.5)


@pytest.mark.parametrize("warmup", [0.2, 0.3])
def test_one_cycle_is_that_of_torch(warmup):
    ours, theirs = optimizer(), optimizer()
    found = rates(ours, make_schedule(ours, schedule="one_cycle", warmup=warmup, total_steps=STEPS))
    reference = OneCycleLR(theirs, max_lr=0.5, total_steps=STEPS, pct_start=warmup, cycle_momentum=False)
    # torch counts the rise in whole steps, so its peak may lie up to a step apart
    assert found == pytest.approx(rates(theirs, reference), abs=0.005)
    assert max(found) == pytest.approx(0.5, rel=0.01)
    assert found[0] == pytest.approx(0.5 / 25)
    assert found[-1] == pytest.approx(0.5 / 25e4)


@pytest.mark.parametrize(("schedule", "last"), [("cosine", 0.0), ("constant", 0.5)])
def test_the_others_rise_along_a_line(schedule, last):
    ours = optimizer()
    found = rates(ours, make_schedule(ours, schedule=schedule, warmup=0.2, total_steps=STEPS))
    assert found[:3] == pytest.approx([0, 0.5 / 199.8, 2 * 0.5 / 199.8])
    assert found[-1] == pytest.approx(last)


def test_without_a_rise_it_starts_at_the_top():
    ours = optimizer()
    assert rates(ours, make_schedule(ours, schedule="cosine", warmup=0.0, total_steps=STEPS))[0] == 0.5


def test_a_run_of_one_step_has_a_rate():
    ours = optimizer()
    make_schedule(ours, schedule="one_cycle", warmup=0.2, total_steps=1)
    assert ours.param_groups[0]["lr"] > 0
