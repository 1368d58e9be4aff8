"""What a backbone must do whatever timm model is inside; a test file subclasses `BackboneSuite` and lists families.

    class TestConvolutional(BackboneSuite):
        families = {"resnet": Family("resnet10t")}

Models are untrained. One that is bound to a size is built for a small one, with `image_size`.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import ClassVar

import pytest
import torch
from torch import Tensor, nn

from manylabel.backbone import Backbone


@dataclass(frozen=True)
class Family:
    """A timm model that stands for its family.

    Args:
        name: timm's name.
        size: Height and width of the images to try, other than the model's own wherever it takes others.
        image_size: What to build it for.
        pre_logits: What the model's own head makes of the averaged final map; None where it pools otherwise.
    """

    name: str
    size: tuple[int, int] = (64, 96)
    image_size: int | None = None
    pre_logits: Callable[[nn.Module, Tensor], Tensor] | None = lambda _model, pooled: pooled


class BackboneSuite:
    """The contract of a backbone: `backbone(images) -> maps [B, C, H, W]`, finest first, the final one last."""

    families: ClassVar[Mapping[str, Family]] = {}

    def pytest_generate_tests(self, metafunc: pytest.Metafunc) -> None:
        if "family" in metafunc.fixturenames:
            # the scope groups the tests by family, so that each model is built once and one is held at a time
            metafunc.parametrize("family", self.families.values(), ids=list(self.families), scope="class")

    @pytest.fixture
    def backbone(self, family: Family) -> Backbone:
        backbone = _build(family)
        backbone.select(None)
        return backbone.eval()

    @pytest.fixture
    def images(self, family: Family) -> Tensor:
        return torch.rand(2, 3, *family.size, generator=torch.Generator().manual_seed(0))

    def test_channels_and_strides_tell_the_truth(self, backbone: Backbone, images: Tensor) -> None:
        with torch.no_grad():
            maps = backbone(images)
        assert [stage.shape[:2] for stage in maps] == [(2, channels) for channels in backbone.channels]
        for stage, stride in zip(maps, backbone.strides, strict=True):
            for cells, pixels in zip(stage.shape[2:], images.shape[2:], strict=True):
                assert cells in {math.floor(pixels / stride), math.ceil(pixels / stride)}
        assert list(backbone.strides) == sorted(backbone.strides)

    def test_final_map_is_what_the_models_own_head_pools(
        self, family: Family, backbone: Backbone, images: Tensor
    ) -> None:
        model = backbone.model
        with torch.no_grad():
            pooled, own = backbone(images)[-1].mean((2, 3)), model.forward_features(images)
            if family.pre_logits is None:
                expected = own[:, model.num_prefix_tokens :].mean(1)
            else:
                pooled = family.pre_logits(model, pooled)
                expected = model.forward_head(own, pre_logits=True)
        torch.testing.assert_close(pooled, expected, atol=1e-4, rtol=1e-4)

    def test_some_stages_are_the_same_as_all(self, backbone: Backbone, images: Tensor) -> None:
        with torch.no_grad():
            everything = backbone(images)
            for stages in ((0,), (-1,), (0, -1)):
                backbone.select(stages)
                for stage, stage_map in zip(stages, backbone(images), strict=True):
                    torch.testing.assert_close(stage_map, everything[stage])

    def test_gradient_reaches_every_parameter_that_asks_for_one(self, backbone: Backbone, images: Tensor) -> None:
        torch.stack([stage.square().mean() for stage in backbone(images)]).sum().backward()
        without = [name for name, value in backbone.named_parameters() if value.requires_grad and value.grad is None]
        backbone.zero_grad()
        assert not without

    def test_frozen_stops_gradients_and_keeps_statistics(self, backbone: Backbone, images: Tensor) -> None:
        asked = {name: value.requires_grad for name, value in backbone.named_parameters()}
        before = {name: value.clone() for name, value in backbone.named_buffers()}
        backbone.frozen = True
        maps = backbone.requires_grad_(False).train()(images)
        backbone.frozen = False
        for name, parameter in backbone.named_parameters():
            parameter.requires_grad_(asked[name])
        assert not any(stage.requires_grad for stage in maps)
        assert not any(module.training for module in backbone.model.modules())
        assert all(torch.equal(value, before[name]) for name, value in backbone.named_buffers())

    def test_fused_copy_gives_the_same_maps(self, backbone: Backbone, images: Tensor) -> None:
        with torch.no_grad():
            expected, fused = backbone(images), backbone.fuse(channels_last=True)(images)
        for stage, other in zip(expected, fused, strict=True):
            torch.testing.assert_close(other, stage, atol=1e-4 * float(stage.abs().max()), rtol=1e-4)

    def test_bottom_then_top_equals_the_whole(self, backbone: Backbone, images: Tensor) -> None:
        cuts, size = backbone.cuts(size=tuple(images.shape[2:])), tuple(images.shape[2:])
        assert [cut.stage for cut in cuts] == list(range(backbone.num_stages - 1))
        assert [cut.top_macs for cut in cuts] == sorted((cut.top_macs for cut in cuts), reverse=True)
        for cut in {cuts[0], cuts[len(cuts) // 2], cuts[-1]}:
            bottom, top = backbone.split(cut.stage, size=size)
            with torch.no_grad():
                expected, features = backbone(images), bottom(images)
                found, fused = top(features), bottom.fuse(channels_last=True)(images)[-1]
            assert features[-1].shape[1:] == cut.shape
            torch.testing.assert_close(found, expected, atol=1e-5, rtol=1e-5)
            torch.testing.assert_close(fused, features[-1], atol=1e-4 * float(fused.abs().max()), rtol=1e-4)
        backbone.freeze(False)

    def test_training_the_top_trains_the_backbone_above_the_cut(self, backbone: Backbone, images: Tensor) -> None:
        bottom, top = backbone.split(-2, size=tuple(images.shape[2:]))
        torch.stack([stage.square().mean() for stage in top.train()(bottom(images))]).sum().backward()
        trained = {name for name, value in backbone.named_parameters() if value.requires_grad}
        assert trained == {name for name, value in top.named_parameters() if value.grad is not None}
        assert trained == {name for name, value in backbone.named_parameters() if value.grad is not None}
        assert 0 < len(trained) < len(list(backbone.parameters()))
        assert not any(value.requires_grad for value in bottom.parameters())
        backbone.zero_grad()
        backbone.freeze(False)


@lru_cache(maxsize=1)
def _build(family: Family) -> Backbone:
    torch.manual_seed(0)
    backbone = Backbone(family.name, pretrained=False, image_size=family.image_size)
    _unsettle(backbone)
    return backbone


def _unsettle(backbone: Backbone) -> None:
    """Give batch-norms statistics and weights that matter, as training would."""
    for module in backbone.modules():
        if isinstance(module, nn.BatchNorm2d) and module.running_mean is not None and module.running_var is not None:
            module.running_mean.uniform_(-0.2, 0.2)
            module.running_var.uniform_(0.6, 1.4)
            nn.init.uniform_(module.weight, 0.7, 1.3)
            nn.init.uniform_(module.bias, -0.3, 0.3)
