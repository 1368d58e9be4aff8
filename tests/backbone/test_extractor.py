from pathlib import Path
from urllib.error import URLError

import pytest
import timm
import torch
from torch import nn
from torchvision import models

from manylabel.backbone import Backbone
from manylabel.classifier import Classifier
from manylabel.errors import ConfigError
from manylabel.heads import LinearClassifier


def small_resnet() -> nn.Module:
    return models.ResNet(models.resnet.BasicBlock, [1, 1, 1, 1]).eval()


@pytest.mark.parametrize(
    ("name", "channels", "strides"),
    [
        ("resnet18", (64, 128, 256, 512), (4, 8, 16, 32)),
        pytest.param("mobilenet_v3_small", (16, 24, 48, 576), (4, 8, 16, 32), marks=pytest.mark.slow),
        pytest.param("regnet_y_400mf", (48, 104, 208, 440), (4, 8, 16, 32), marks=pytest.mark.slow),
        pytest.param("shufflenet_v2_x0_5", (24, 48, 96, 1024), (4, 8, 16, 32), marks=pytest.mark.slow),
        ("squeezenet1_1", (128, 256, 512), (4, 8, 17)),
    ],
)
@pytest.mark.slow
def test_finds_the_stages_of_torchvision_models(name: str, channels: tuple[int, ...], strides: tuple[int, ...]) -> None:
    model = models.get_model(name, weights=None).eval()
    backbone = Backbone(model)
    with torch.no_grad():
        maps = backbone(torch.rand(1, 3, 96, 64))
    assert (backbone.channels, backbone.strides) == (channels, strides)
    assert tuple(stage.shape[1] for stage in maps) == channels
    assert maps[0].shape[2:] in {(24, 16), (23, 15)}
    assert backbone.takes_any_size


@pytest.mark.slow
def test_cuts_a_torchvision_model() -> None:
    backbone = Backbone(small_resnet(), stages=(-1,))
    bottom, top = backbone.split(2, size=(64, 64))
    images = torch.rand(2, 3, 64, 64)
    with torch.no_grad():
        torch.testing.assert_close(top(bottom(images)), backbone(images))
    assert {name.split(".")[2] for name, _ in top.named_parameters()} == {"layer4"}


@pytest.mark.slow
def test_fused_torchvision_model_gives_the_same_maps() -> None:
    backbone = Backbone(small_resnet(), stages=(-1,))
    images = torch.rand(1, 3, 64, 64)
    with torch.no_grad():
        torch.testing.assert_close(backbone.fuse()(images), backbone(images), atol=1e-4, rtol=1e-4)


def test_timm_model_has_its_weights_and_no_classifier() -> None:
    model = timm.create_model("resnet10t", num_classes=7)
    weight = model.conv1[0].weight.detach().clone()
    backbone = Backbone(model, stages=(-1,))
    assert backbone.model is model
    assert backbone.name == "resnet10t"
    torch.testing.assert_close(backbone.model.conv1[0].weight, weight)
    assert not any(name.startswith("fc") for name in model.state_dict())


def test_knows_the_size_that_a_timm_model_was_built_for() -> None:
    backbone = Backbone(timm.create_model("test_vit", img_size=96, dynamic_img_size=False)).eval()
    assert (backbone.image_size, backbone.input_spec.size) == (96, (96, 96))
    with pytest.raises(ConfigError, match="built for 96 x 96 pixels, got 64 x 64"):
        backbone(torch.zeros(1, 3, 64, 64))


def test_model_stays_in_its_mode() -> None:
    assert not Backbone(models.squeezenet1_1().eval()).training
    assert Backbone(models.squeezenet1_1()).training


def test_rejects_weights_for_a_model_that_has_some(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="weights need a model name"):
        Backbone(small_resnet(), weights=tmp_path / "weights.pth")


@pytest.mark.slow
def test_saves_a_timm_model_by_its_name_and_refuses_others(tmp_path: Path) -> None:
    images = torch.rand(1, 3, 64, 64)
    backbone = Backbone(timm.create_model("test_vit", img_size=64), stages=(-1,))
    model = Classifier(backbone, LinearClassifier(64, 2), ["cat", "dog"]).eval()
    loaded = Classifier.from_pretrained(model.save_pretrained(tmp_path / "model"))
    torch.testing.assert_close(loaded(images), model(images))
    other = Backbone(timm.create_model("test_vit", img_size=64, depth=2), stages=(-1,))
    for strange in (other, Backbone(small_resnet(), stages=(-1,))):
        head = LinearClassifier(strange.channels[-1], 2)
        with pytest.raises(ConfigError, match="cannot be saved: neither timm nor torchvision can build it by name"):
            Classifier(strange, head, ["cat", "dog"]).save_pretrained(tmp_path / "strange")


@pytest.mark.slow
@pytest.mark.parametrize("name", ["mobilenet_v3_small", "mnasnet0_5", "regnet_y_400mf", "swin_t"])
def test_saves_a_torchvision_model_by_its_name_there(name: str, tmp_path: Path) -> None:
    backbone = Backbone(models.get_model(name, weights=None, num_classes=7), stages=(-1,))
    model = Classifier(backbone, LinearClassifier(backbone.channels[-1], 2), ["cat", "dog"]).eval()
    loaded = Classifier.from_pretrained(model.save_pretrained(tmp_path / "model"))
    assert loaded.backbone.name == backbone.name == f"torchvision:{name}"
    images = torch.rand(1, 3, 64, 64)
    torch.testing.assert_close(loaded(images), model(images))


@pytest.mark.slow
def test_a_changed_torchvision_model_has_no_name() -> None:
    dilated = models.resnet50(replace_stride_with_dilation=[False, False, True])  # the same tensors
    with pytest.raises(
        ConfigError, match="a classifier with this ResNet cannot be saved: neither timm nor torchvision can build it"
    ):
        Backbone(dilated).check_name()


@pytest.mark.slow
def test_builds_a_torchvision_model_by_name_for_the_images_it_was_trained_on() -> None:
    spec = Backbone("torchvision:efficientnet_b1", pretrained=False).input_spec
    assert (spec.size, spec.interpolation, spec.mean[0]) == ((240, 240), "bilinear", 0.485)
    assert spec.crop_fraction == pytest.approx(240 / 255)
    sized = Backbone("torchvision:vit_b_32", pretrained=False, image_size=64)
    assert (sized.input_spec.size, sized.strides, sized.channels) == ((64, 64), (32,), (768,))


def test_suggests_the_nearest_name_in_torchvision() -> None:
    with pytest.raises(ConfigError, match="torchvision has no model 'resnet5'; did you mean 'resnet50'"):
        Backbone("torchvision:resnet5")


@pytest.mark.slow
def test_loads_a_file_of_torchvision_weights_without_the_classifier(tmp_path: Path) -> None:
    trained = models.squeezenet1_1(num_classes=3)
    torch.save(trained.state_dict(), tmp_path / "weights.pth")
    backbone = Backbone("torchvision:squeezenet1_1", weights=tmp_path / "weights.pth")
    assert torch.equal(backbone.model.model.features[0].weight, trained.features[0].weight)


def test_says_what_to_do_when_torchvision_cannot_download(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object, **__: object) -> None:
        raise URLError("no network")

    monkeypatch.setattr("torchvision.models._api.load_state_dict_from_url", fail)
    with pytest.raises(ConfigError, match="the weights of torchvision:squeezenet1_1 are not on this machine"):
        Backbone("torchvision:squeezenet1_1")
