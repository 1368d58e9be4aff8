from collections.abc import Callable

import pytest
import timm
import torch
import torchvision
from torch import Tensor, nn

from manylabel.errors import ConfigError
from manylabel.heads import CSRA, HybridSharingQuery, LinearClassifier, MLDecoder, RepresentationMixup, replace_head

SMALL = {"depths": (1, 1, 1, 1), "dims": (8, 16, 24, 32)}


def small_vit() -> nn.Module:
    return torchvision.models.VisionTransformer(
        image_size=64, patch_size=16, num_layers=2, num_heads=2, hidden_dim=32, mlp_dim=64
    )


def small_swin() -> nn.Module:
    return torchvision.models.SwinTransformer(
        patch_size=[4, 4], embed_dim=8, depths=[1, 1], num_heads=[2, 2], window_size=[4, 4]
    )


MODELS: dict[str, Callable[[], nn.Module]] = {
    "torchvision resnet50": torchvision.models.resnet50,
    "torchvision vit": small_vit,
    "torchvision swin": small_swin,
    "timm resnet": lambda: timm.create_model("test_resnet"),
    "timm convnext": lambda: timm.create_model("convnext_tiny", **SMALL),
    "timm vit": lambda: timm.create_model("vit_tiny_patch16_224", img_size=64, depth=2, embed_dim=48),
    "timm swin": lambda: timm.create_model(
        "swin_tiny_patch4_window7_224", img_size=64, window_size=4, depths=(1, 1), num_heads=(2, 2), embed_dim=16
    ),
}


# The other residual network is enough for `make quick`.
NAMES = [pytest.param(name, marks=pytest.mark.slow) if name == "torchvision resnet50" else name for name in MODELS]


@pytest.fixture(params=NAMES)
def model(request: pytest.FixtureRequest) -> nn.Module:
    torch.manual_seed(0)
    return MODELS[request.param]().eval()


def images(count: int = 2) -> Tensor:
    return torch.rand(count, 3, 64, 64, generator=torch.Generator().manual_seed(0))


@pytest.mark.slow
def test_trains_every_parameter_of_the_model_and_the_head(model: nn.Module) -> None:
    tagger = replace_head(model, MLDecoder, num_labels=20, width=32, feedforward=32)
    logits = tagger(images())
    assert logits.shape == (2, 20)
    logits.sum().backward()
    trained = {name for name, value in tagger.named_parameters() if value.requires_grad}
    assert trained == {name for name, value in tagger.named_parameters() if value.grad is not None}
    assert not any(name.endswith(("fc.weight", "head.weight", "heads.head.weight")) for name in tagger.state_dict())


@pytest.mark.parametrize("name", [name for name in NAMES if "vit" not in str(name)])  # which read the class token
def test_head_reads_what_the_models_own_classifier_pools(name: str) -> None:
    model, expected = MODELS[name]().eval(), list[Tensor]()
    linear = [module for module in model.modules() if isinstance(module, nn.Linear)][-1]
    linear.register_forward_pre_hook(lambda _module, inputs: expected.append(inputs[0]))
    with torch.no_grad():
        model(images())
        pooled = replace_head(model, LinearClassifier, 3).backbone(images())[-1].mean((2, 3))
    if isinstance(model, timm.models.ConvNeXt):  # norms after the pooling
        pooled = model.head.norm(pooled[:, :, None, None]).flatten(1)
    torch.testing.assert_close(pooled, expected[0].flatten(1), atol=1e-5, rtol=1e-5)


def test_weights_are_saved_and_loaded(model: nn.Module) -> None:
    first = replace_head(model, CSRA, 4).eval()
    before = first(images())
    state = {name: value.clone() for name, value in first.state_dict().items()}
    with torch.no_grad():
        for parameter in first.parameters():
            parameter.add_(0.1)
    assert not torch.allclose(first(images()), before)
    first.load_state_dict(state)
    torch.testing.assert_close(first(images()), before)


@pytest.mark.slow
@pytest.mark.parametrize("head", [RepresentationMixup, HybridSharingQuery])
def test_heads_of_several_stages_read_earlier_maps(head: type[nn.Module]) -> None:
    for build in (lambda: timm.create_model("test_resnet"), torchvision.models.resnet18):
        assert replace_head(build(), head, 5)(images()).shape == (2, 5)


@pytest.mark.slow
def test_torchvision_model_stays_as_it_was() -> None:
    model = torchvision.models.resnet18().eval()
    before = model(images())
    tagger = replace_head(model, LinearClassifier, 2)
    torch.testing.assert_close(model(images()), before)
    assert tagger.backbone.model.model.layer1 is model.layer1


def test_names_a_model_without_maps() -> None:
    with pytest.raises(ConfigError, match="Sequential has no feature map at 224 x 224 pixels"):
        replace_head(nn.Sequential(nn.Flatten(), nn.Linear(3 * 224 * 224, 5)), LinearClassifier, 2)


def test_names_a_module_that_takes_no_images() -> None:
    with pytest.raises(
        ConfigError, match=r"Linear cannot be run on images \[2, 3, 224, 224\] .*pass an image classifier"
    ):
        replace_head(nn.Linear(3, 3), LinearClassifier, 2)


@pytest.mark.parametrize("head", ["ml_decoder", LinearClassifier(512, 2)])
def test_a_head_that_is_no_class_is_refused(head: object) -> None:
    with pytest.raises(ConfigError, match=r"head must be a class, such as manylabel.heads.MLDecoder, got"):
        replace_head(nn.Identity(), head, 2)


def test_a_misspelt_setting_of_the_head_is_named() -> None:
    with pytest.raises(ConfigError, match="MLDecoder has no setting 'num_group'; did you mean 'num_groups'"):
        replace_head(nn.Identity(), MLDecoder, 2, num_group=3)


@pytest.mark.slow  # runs a compiler
@pytest.mark.parametrize("name", ["timm resnet", "torchvision vit", "timm vit"])
def test_exports_and_compiles(name: str) -> None:
    tagger = replace_head(MODELS[name](), MLDecoder, 3, width=32, feedforward=32).eval()
    with torch.no_grad():
        expected = tagger(images())
        program = torch.export.export(tagger, (images(),))
        torch.testing.assert_close(program.module()(images()), expected, atol=1e-5, rtol=1e-5)
        torch.testing.assert_close(torch.compile(tagger, backend="eager")(images()), expected, atol=1e-5, rtol=1e-5)
