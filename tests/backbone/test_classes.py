"""A pretrained model's own classes: its classifier on any map, compared with the whole model."""

import pytest
import timm
import torch

from manylabel.backbone import Backbone, PretrainedClasses, load_classes
from manylabel.backbone.blueprint import examine
from manylabel.backbone.weights import offline_tensors
from manylabel.errors import ConfigError


@pytest.mark.parametrize("name", ["test_convnext", "test_efficientnet", "test_resnet"])
def test_logits_are_those_of_the_whole_model_and_of_each_position_alone(name):
    torch.manual_seed(0)
    model, layout = timm.create_model(name).eval(), examine(name).layout
    images = torch.rand(2, 3, 160, 160)
    with torch.no_grad():
        expected, final = model(images), model.forward_features(images)
        alone = model.forward_head(final[:, :, 1:2, 2:3])
        classes = PretrainedClasses(model, layout=layout)
        pooled, local = classes(final)
    torch.testing.assert_close(pooled, expected)
    torch.testing.assert_close(local[:, :, 1, 2], alone)
    assert sum(parameter.numel() for parameter in classes.parameters()) < 600_000  # without the body


def test_offline_model_names_what_its_own_classifier_sees():
    name = "offline:efficientnet_lite0"
    whole = timm.create_model("tf_efficientnet_lite0").eval()
    whole.load_state_dict(offline_tensors(name))
    backbone, images = Backbone(name, frozen=True, stages=(-1,)), torch.rand(1, 3, 96, 96)
    with torch.no_grad():
        pooled, local = backbone.class_logits(backbone(images)[-1])
        torch.testing.assert_close(pooled, whole(images))
    torch.testing.assert_close(local.mean((2, 3)), pooled, atol=1e-4, rtol=1e-4)  # its classifier is linear
    assert len(backbone.class_names) == 1000
    assert backbone.class_names[340] == "zebra"


def test_refuses_models_whose_classes_it_cannot_name_or_find_in_the_map():
    with pytest.raises(ConfigError, match=r"the names of the 7 classes of ResNet are not known"):
        PretrainedClasses(timm.create_model("test_resnet", num_classes=7), layout="NCHW")
    with pytest.raises(ConfigError, match=r"classifies its class token"):
        PretrainedClasses(timm.create_model("test_vit"), layout="tokens")
    with pytest.raises(ConfigError, match=r"no pretrained weights for resnet10t_nonsense|timm has no"):
        load_classes("resnet10t_nonsense")
