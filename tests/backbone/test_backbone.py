import pytest
import torch
from timm.layers import StdConv2d
from torch import Tensor, nn

from conformance.backbone_suite import BackboneSuite, Family
from manylabel.backbone import Backbone
from manylabel.backbone.backbone import fold_batch_norms
from manylabel.errors import ConfigError


@pytest.fixture(scope="module")
def small() -> Backbone:
    return Backbone("resnet10t", pretrained=False).eval()


def test_suggests_the_nearest_name() -> None:
    with pytest.raises(ConfigError, match="did you mean 'resnet50'"):
        Backbone("resnet-50")


def test_suggests_the_nearest_weights() -> None:
    with pytest.raises(ConfigError, match="no weights 'a1_in1' for resnet50; did you mean 'a1_in1k'"):
        Backbone("resnet50.a1_in1")


def test_names_the_offline_models_there_are() -> None:
    with pytest.raises(ConfigError, match="offline:efficientnet_lite0, offline:efficientnet_lite1"):
        Backbone("offline:resnet50")


@pytest.mark.slow
def test_rejects_a_model_that_gives_no_map() -> None:
    with pytest.raises(ConfigError, match="pit_s_224 has no feature map"):
        Backbone("pit_s_224", pretrained=False)


@pytest.mark.parametrize("stages", [(4,), (-5,), ()])
def test_rejects_stages_that_are_not_there(small: Backbone, stages: tuple[int, ...]) -> None:
    with pytest.raises(ConfigError, match="has stages 0 to 3"):
        small.select(stages)


@pytest.mark.parametrize("stages", [(-1, 0), (3, -1)])
def test_rejects_stages_that_do_not_rise(small: Backbone, stages: tuple[int, ...]) -> None:
    with pytest.raises(ConfigError, match="must be in ascending order"):
        small.select(stages)


@pytest.mark.slow
def test_says_which_size_a_bound_model_wants() -> None:
    backbone = Backbone("mixer_s32_224", pretrained=False, image_size=64)
    with pytest.raises(ConfigError, match=r"built for 64 x 64 pixels, got 96 x 96; .*image_size=96"):
        backbone(torch.zeros(1, 3, 96, 96))


@pytest.mark.slow
def test_says_which_multiples_a_patch_model_wants() -> None:
    backbone = Backbone("vit_tiny_patch16_224", pretrained=False)
    with pytest.raises(ConfigError, match="multiples of 16 pixels each way, got 64 x 70"):
        backbone(torch.zeros(1, 3, 64, 70))


@pytest.mark.slow
def test_takes_every_multiple_that_the_model_takes() -> None:
    backbone = Backbone("tresnet_m", pretrained=False, stages=(0,)).eval()
    assert backbone(torch.zeros(1, 3, 68, 72))[0].shape[2:] == (17, 18)


@pytest.mark.slow
def test_has_only_the_final_stage_where_the_others_are_no_maps() -> None:
    assert Backbone("hrnet_w18_small", pretrained=False).num_stages == 1


def test_rejects_an_image_size_below_one() -> None:
    with pytest.raises(ConfigError, match="image_size must be in 1"):
        Backbone("resnet10t", pretrained=False, image_size=0)


@pytest.mark.slow
def test_input_spec_is_that_of_the_weights() -> None:
    spec = Backbone("efficientnet_b0", pretrained=False).input_spec
    assert (spec.size, spec.mean[0], spec.resize, spec.crop_fraction) == ((224, 224), 0.485, "crop", 0.875)
    offline = Backbone("offline:efficientnet_lite2", pretrained=False).input_spec
    assert (offline.size, offline.mean, offline.std) == ((260, 260), (0.5,) * 3, (0.5,) * 3)


def test_image_size_changes_the_input_spec_of_a_free_model() -> None:
    assert Backbone("resnet10t", pretrained=False, image_size=448).input_spec.size == (448, 448)


def test_train_mode_does_not_reach_a_frozen_model() -> None:
    backbone = Backbone("resnet10t", pretrained=False, frozen=True).train()
    assert not any(module.training for module in backbone.modules())
    assert not any(parameter.requires_grad for parameter in backbone.parameters())


@pytest.mark.slow
def test_parameters_behind_the_pooling_are_not_trained() -> None:
    backbone = Backbone("convnext_atto", pretrained=False)
    frozen = [name for name, parameter in backbone.named_parameters() if not parameter.requires_grad]
    assert frozen == ["model.head.norm.weight", "model.head.norm.bias"]


def test_stops_early_when_no_late_stage_is_asked_for(small: Backbone) -> None:
    small.select((0,))
    images = torch.zeros(1, 3, 64, 64)
    ran = []
    handle = small.model.layer4.register_forward_hook(lambda *_: ran.append("layer4"))
    small(images)
    assert not ran
    small.select(None)
    small(images)
    handle.remove()
    assert ran == ["layer4"]


def test_repr_tells_the_settings() -> None:
    text = repr(Backbone("resnet10t", pretrained=False, frozen=True, stages=(0, -1)))
    assert text == (
        "Backbone('resnet10t', pretrained=False, frozen=True, stages=(0, 3), channels=(64, 512), strides=(4, 32))"
    )


@pytest.mark.slow  # runs a compiler
def test_exports_with_a_dynamic_batch(small: Backbone) -> None:
    small.select((0, -1))
    batch = torch.export.Dim("batch", min=1, max=64)
    program = torch.export.export(small, (torch.rand(2, 3, 64, 64),), dynamic_shapes=({0: batch},))
    images = torch.rand(5, 3, 64, 64)
    for exported, expected in zip(program.module()(images), small(images), strict=True):
        torch.testing.assert_close(exported, expected, atol=1e-5, rtol=1e-5)


@pytest.mark.slow  # runs a compiler
def test_compiles_without_a_graph_break(small: Backbone) -> None:
    small.select((0, -1))
    images = torch.rand(2, 3, 64, 64)
    compiled = torch.compile(small, fullgraph=True, backend="eager")
    torch.testing.assert_close(compiled(images), small(images), atol=1e-5, rtol=1e-5)


def test_fused_copy_leaves_the_original_as_it_was(small: Backbone) -> None:
    before = {name: value.clone() for name, value in small.state_dict().items()}
    fused = small.fuse()
    assert not any(isinstance(module, torch.nn.BatchNorm2d) for module in fused.modules())
    assert all(torch.equal(value, before[name]) for name, value in small.state_dict().items())
    assert not fused.train().training


def test_kept_statistics_survive_training_and_weights_still_learn():
    backbone = Backbone("resnet10t", pretrained=False, stages=(-1,))
    backbone.keep_statistics()
    before = {name: value.clone() for name, value in backbone.named_buffers()}
    backbone.eval().train()  # as after each validation
    backbone(torch.rand(2, 3, 64, 64))[0].sum().backward()
    assert all(torch.equal(value, before[name]) for name, value in backbone.named_buffers())
    assert all(parameter.grad is not None for parameter in backbone.parameters() if parameter.requires_grad)
    backbone.keep_statistics(False)
    backbone(torch.rand(2, 3, 64, 64))
    assert not all(torch.equal(value, before[name]) for name, value in backbone.named_buffers())


def test_rejects_what_is_no_model():
    with pytest.raises(ConfigError, match="model must be the name of a model, or a model, got NoneType"):
        Backbone(None)


class Residual(nn.Module):
    """A convolution whose output goes to a norm and past it."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.norm, self.second = nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.Conv2d(4, 4, 1)

    def forward(self, images: Tensor) -> Tensor:
        found = self.first(images)
        return found + self.second(self.norm(found))


class UsedTwice(nn.Module):
    """One convolution, two norms."""

    def __init__(self) -> None:
        super().__init__()
        self.convolution, self.one, self.two = nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.BatchNorm2d(4)

    def forward(self, images: Tensor) -> Tensor:
        return self.one(self.convolution(images)) + self.two(self.convolution(images))


def unsettled(model: nn.Module) -> nn.Module:
    for module in model.modules():
        if isinstance(module, nn.BatchNorm2d):
            module.running_mean.uniform_(-1, 1)
            module.running_var.uniform_(0.5, 2)
    return model.eval()


def check(model: nn.Module, folded: int) -> None:
    torch.manual_seed(0)
    images = torch.randn(2, 3, 8, 8)
    expected = unsettled(model)(images)
    assert fold_batch_norms(model, torch.zeros(1, 3, 8, 8)) == folded
    torch.testing.assert_close(model(images), expected, atol=1e-5, rtol=1e-5)


def test_folds_a_chain() -> None:
    check(nn.Sequential(nn.Conv2d(3, 4, 3, bias=False), nn.BatchNorm2d(4), nn.ReLU(), nn.Conv2d(4, 2, 1)), folded=1)


def test_leaves_a_norm_whose_input_is_read_elsewhere() -> None:
    check(Residual(), folded=0)


def test_leaves_a_convolution_that_is_used_twice() -> None:
    check(UsedTwice(), folded=0)


def test_leaves_a_convolution_that_standardises_its_weight() -> None:
    check(nn.Sequential(StdConv2d(3, 4, 3), nn.BatchNorm2d(4)), folded=0)


def test_leaves_a_norm_before_the_convolution() -> None:
    check(nn.Sequential(nn.BatchNorm2d(3), nn.Conv2d(3, 4, 3)), folded=0)


def norm_after_pooling(model: nn.Module, pooled: Tensor) -> Tensor:
    return model.head.norm(pooled[:, :, None, None]).flatten(1)


def convolution_after_pooling(model: nn.Module, pooled: Tensor) -> Tensor:
    return model.act2(model.norm_head(model.conv_head(pooled[:, :, None, None]))).flatten(1)


@pytest.mark.slow  # every architecture is built and run several times
class TestConvolutionalFamilies(BackboneSuite):
    families = {
        "resnet": Family("resnet10t"),
        "tresnet": Family("tresnet_m"),
        "resnext": Family("resnext26ts"),
        "resnetv2 (BiT)": Family("resnetv2_50x1_bit"),
        "convnext": Family("convnext_atto", pre_logits=norm_after_pooling),
        "efficientnet": Family("tf_efficientnet_lite0"),
        "regnet": Family("regnetx_002"),
        "mobilenet": Family("mobilenetv3_small_050", pre_logits=convolution_after_pooling),
        "densenet": Family("densenet121"),
    }


def fc_norm_after_pooling(model: nn.Module, pooled: Tensor) -> Tensor:
    return model.fc_norm(pooled)


def norm_in_head(model: nn.Module, pooled: Tensor) -> Tensor:
    return model.head.pre_logits(model.head.norm(pooled))


@pytest.mark.slow  # every architecture is built and run several times
class TestTokenFamilies(BackboneSuite):
    families = {
        "vit": Family("vit_tiny_patch16_224", pre_logits=None),
        "deit, two prefix tokens": Family("deit_tiny_distilled_patch16_224", pre_logits=None),
        "eva": Family("eva02_tiny_patch14_224", size=(56, 84), pre_logits=fc_norm_after_pooling),
        "swin": Family("swin_s3_tiny_224"),
        "maxvit": Family("maxvit_pico_rw_256", size=(64, 64), image_size=64),
        "coatnet": Family("coatnet_pico_rw_224", size=(64, 64), image_size=64),
        "mixer": Family("mixer_s32_224", size=(64, 64), image_size=64),
    }
