import torch
from torch import nn

from manylabel.training import LoopSettings, make_optimizer, parameter_groups


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
