import copy
from itertools import pairwise

import pytest
import torch
from torch import Tensor, nn

from manylabel.backbone import Backbone
from manylabel.errors import ConfigError


@pytest.fixture(scope="module")
def lite() -> Backbone:
    return Backbone("offline:efficientnet_lite0", pretrained=False, stages=(-1,)).eval()


@pytest.fixture
def small() -> Backbone:
    return Backbone("resnet10t", pretrained=False, stages=(-1,), image_size=64).eval()


def test_lists_the_cuts_of_an_offline_model(lite: Backbone) -> None:
    cuts = lite.cuts(size=(256, 256))
    assert [(cut.name, cut.shape) for cut in cuts] == [
        ("blocks.1", (24, 64, 64)),
        ("blocks.2", (40, 32, 32)),
        ("blocks.4", (112, 16, 16)),
    ]
    assert [cut.num_bytes for cut in cuts] == [196_608, 81_920, 57_344]


@pytest.mark.slow
def test_macs_of_the_top_are_those_of_its_layers() -> None:
    backbone = Backbone("test_vit", pretrained=False, image_size=64)
    macs = [cut.top_macs for cut in backbone.cuts()]
    blocks = [earlier - later for earlier, later in pairwise(macs)]
    torch.testing.assert_close(blocks, [blocks[0]] * 4)  # every block costs the same
    assert macs[0] == pytest.approx(5 * blocks[0])


@pytest.mark.slow  # the three together
@pytest.mark.parametrize(("stage", "shape"), [(1, (40, 32, 32)), (2, (112, 16, 16)), ("blocks.6", (320, 8, 8))])
def test_cuts_an_offline_model(lite: Backbone, stage: int | str, shape: tuple[int, int, int]) -> None:
    bottom, top = lite.split(stage, size=(256, 256))
    images = torch.rand(1, 3, 256, 256)
    with torch.no_grad():
        features = bottom(images)
        torch.testing.assert_close(top(features), lite(images), atol=1e-5, rtol=1e-5)
    assert [part.shape[1:] for part in features] == [shape]
    assert bottom.channels == (shape[0],)


def test_maps_below_the_cut_pass_through(small: Backbone) -> None:
    small.select((0, 2, -1))
    bottom, top = small.split(1)
    images = torch.rand(2, 3, 64, 64)
    with torch.no_grad():
        features, expected = bottom(images), small(images)
        found = top(features)
    assert [part.shape[1] for part in features] == [64, 128]
    torch.testing.assert_close(found, expected)


def test_top_takes_other_sizes_where_the_model_does(small: Backbone) -> None:
    bottom, top = small.split(1, size=(64, 64))
    images = torch.rand(1, 3, 96, 128)
    with torch.no_grad():
        torch.testing.assert_close(top(bottom(images)), small(images))


def test_batch_norms_of_the_top_keep_their_statistics(small: Backbone) -> None:
    _, top = small.split(2)
    norm = next(module for module in top.modules() if isinstance(module, nn.BatchNorm2d))
    before = norm.running_mean.clone()
    top.train()([torch.rand(2, 256, 4, 4)])
    assert top.training
    torch.testing.assert_close(norm.running_mean, before)
    top.keep_statistics(False)
    top([torch.rand(2, 256, 4, 4)])
    assert not torch.equal(norm.running_mean, before)


def test_bottom_is_not_changed_by_training_the_backbone(small: Backbone) -> None:
    images = torch.rand(2, 3, 64, 64)
    bottom, _ = small.split(2)
    before = bottom(images)
    small.train()(images)
    torch.testing.assert_close(bottom.train()(images), before)


def test_top_holds_no_batch_after_a_run_and_can_be_copied(small: Backbone) -> None:
    _, top = small.split(2)
    features = [torch.rand(2, 256, 4, 4, requires_grad=True) * 2]  # no leaf: deepcopy would refuse it
    expected = top.train()(features)
    torch.testing.assert_close(copy.deepcopy(top)(features), expected)


def test_parts_hold_the_parameters_of_their_own_layers_only(small: Backbone) -> None:
    bottom, top = small.split(2)
    whole = {name for name, _ in small.named_parameters()}
    low, high = ({name for name, _ in part.named_parameters()} for part in (bottom, top))
    assert low | high == whole
    assert not low & high
    assert all(name.startswith("model.layer4.") for name in high)


@pytest.mark.slow
def test_counts_macs_of_a_model_whose_modules_read_parameters() -> None:
    backbone = Backbone("cait_xxs24_224", pretrained=False, image_size=64, stages=(-1,))
    assert len(backbone.cuts()) == backbone.num_stages - 1


@pytest.mark.slow
def test_mirrors_a_map_and_the_grid_of_tokens() -> None:
    _, top = Backbone("resnet10t", pretrained=False, stages=(-1,), image_size=64).split(2)
    features = torch.rand(2, 256, 4, 4)
    assert torch.equal(top.mirror(features), features.flip(3))
    _, top = Backbone("test_vit", pretrained=False, stages=(-1,)).eval().split(0, size=(32, 64))
    tokens = torch.arange(1.0 + 2 * 4).view(1, 1, 9, 1)
    assert top.mirror(tokens).flatten().tolist() == [0, 4, 3, 2, 1, 8, 7, 6, 5]


def test_rejects_what_cannot_be_cut(small: Backbone) -> None:
    with pytest.raises(ConfigError, match="after its final stage, -1: no layers would be above it"):
        small.split(-1)
    with pytest.raises(ConfigError, match="has stages 0 to 3"):
        small.split(4)
    with pytest.raises(
        ConfigError, match=r"after 'layer9', which is not a module .* available: layer1, layer2, layer3"
    ):
        small.split("layer9")
    with pytest.raises(ConfigError, match=r"after 'layer3.0.conv1': the layers above need more than its output"):
        small.split("layer3.0.conv1")
    small.select((0, 1))
    with pytest.raises(ConfigError, match=r"resnet10t cannot be cut after 'layer2': no stage of \(0, 1\) is above"):
        small.split(1)


@pytest.mark.slow  # runs a compiler
@pytest.mark.parametrize("name", ["resnet10t", "test_vit"])
def test_parts_export_with_a_dynamic_batch(name: str) -> None:
    backbone = Backbone(name, pretrained=False, stages=(-1,), image_size=64).eval()
    bottom, top = backbone.split(0)
    batch = torch.export.Dim("batch", min=1, max=64)
    with torch.no_grad():
        features = bottom(torch.rand(2, 3, 64, 64))
        lower = torch.export.export(bottom, (torch.rand(2, 3, 64, 64),), dynamic_shapes=({0: batch},)).module()
        upper = torch.export.export(top, (features,), dynamic_shapes=([{0: batch}],)).module()
        images: Tensor = torch.rand(5, 3, 64, 64)
        torch.testing.assert_close(upper(lower(images)), backbone(images), atol=1e-5, rtol=1e-5)


@pytest.mark.slow  # runs a compiler
def test_top_compiles(small: Backbone) -> None:
    _, top = small.split(2)
    features = [torch.rand(2, 256, 4, 4)]
    compiled = torch.compile(top, backend="eager")
    torch.testing.assert_close(compiled(features), top(features))
