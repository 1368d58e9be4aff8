import torch

from manylabel.backbone import Backbone
from manylabel.training import FreezeFirst


def backbone():
    return Backbone("resnet10t", pretrained=False, stages=(-1,))


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
