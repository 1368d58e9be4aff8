import pytest
import torch
from torch.optim import SGD
from torch.optim.lr_scheduler import OneCycleLR

from manylabel.training import make_schedule

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
