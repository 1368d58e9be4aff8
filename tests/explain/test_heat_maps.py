import numpy as np
import pytest
import torch
from PIL import Image

from manylabel.errors import ConfigError, ImageError, LabelError
from manylabel.explain import METHODS, best_method, explain, explain_models
from manylabel.explain.heat_maps import block_gradients, tap_blocks
from manylabel.heads import HEADS
from tiny_runs import make_model

LABELS = ["cat", "dog", "cow"]
SETTINGS = {
    "conse": {"text_vectors": torch.eye(3)},
    "hsq": {"width": 16, "num_shared_experts": 2},
    "ml_decoder": {"width": 16, "feedforward": 16},
    "text_map": {"text_vectors": torch.eye(3)},
    "token_encoder": {"width": 16, "num_layers": 1},
    "q2l": {"width": 16},
}
# One or two of each layout: channels first, channels last, tokens with and without a class token.
FAMILIES = [
    "convnext_atto",
    "deit_tiny_distilled_patch16_224",
    "maxvit_pico_rw_256",
    "mixer_s32_224",
    "mobilenetv3_small_050",
    "test_resnet",
    "swin_s3_tiny_224",
    "tf_efficientnet_lite0",
]


@pytest.fixture(scope="module")
def image():
    return Image.fromarray(np.random.default_rng(0).integers(0, 256, (48, 80, 3), dtype=np.uint8))


def tiny(head, **changes):
    torch.manual_seed(0)
    return make_model(head, labels=LABELS, settings=SETTINGS.get(head), **changes)


@pytest.mark.parametrize("head", sorted(HEADS))
def test_every_head_is_explained_by_what_suits_it(head, image):
    model = tiny(head)
    expected = model.predict(image).scores[0]
    found = explain(model, image, labels=LABELS, method=["auto", "grad_cam", "grad_cam_plus_plus", "eigen_cam"])
    assert [each.label for each in found[::4]] == LABELS
    assert [each.score for each in found[::4]] == pytest.approx(expected.tolist(), abs=1e-5)
    for each in found:
        assert each.heat.shape == (2, 2)
        assert 0 <= each.heat.min() <= each.heat.max() <= 1
        assert each.overlay().size == (80, 48)


@pytest.mark.parametrize("blocks", [None, [0, -1]])
def test_scores_have_the_bias_of_new_labels_as_predictions_have(blocks, image):
    model = tiny("linear")
    model.label_bias = torch.tensor([0.0, 0.0, 3.0])
    expected = model.predict(image).scores[0, 2]
    found = explain(model, image, labels="cow", method="grad_cam", **({} if blocks is None else {"blocks": blocks}))
    assert [each.score for each in found] == pytest.approx([expected.item()] * len(found), abs=1e-5)


@pytest.mark.parametrize("name", FAMILIES)
@pytest.mark.slow
def test_every_block_of_every_backbone_family_is_found(name, image):
    model = tiny("linear", backbone=name)
    images = torch.rand(1, 3, 64, 64)
    blocks = list(range(model.backbone.num_stages))
    _, logits, tapped = tap_blocks(model, images, blocks)
    assert torch.allclose(logits, model(images), atol=1e-4)
    gradients = block_gradients(logits, tapped, [0, 2])
    _, *final = tap_blocks(model, images.detach(), blocks[-1:])
    assert torch.allclose(gradients[blocks[-1]], block_gradients(*final, [0, 2])[blocks[-1]], atol=1e-6)
    for block in blocks:
        assert gradients[block].shape == (2, *tapped[block].map.shape[1:])
        assert gradients[block].abs().sum() > 0


@pytest.mark.slow
def test_grad_cam_is_the_librarys(image):
    from pytorch_grad_cam import GradCAM, GradCAMPlusPlus
    from pytorch_grad_cam.utils.model_targets import ClassifierOutputTarget

    from manylabel.data import eval_transform

    model = tiny("linear")
    tensor = eval_transform(model.input_spec)(image)[None].requires_grad_()
    for method, kind in (("grad_cam", GradCAM), ("grad_cam_plus_plus", GradCAMPlusPlus)):
        ours = explain(model, image, labels="cow", method=method, blocks=[0, 1, 2, 3])
        for block, each in enumerate(ours):
            layer = getattr(model.backbone.model, f"layer{block + 1}")
            with kind(model, [layer]) as library:
                library.get_target_width_height = lambda _, size=each.heat.shape[::-1]: tuple(size)
                theirs = library(tensor, [ClassifierOutputTarget(2)])[0]
            assert np.allclose(each.heat.numpy(), theirs, atol=1e-4)


def test_cam_weighs_the_channels_as_the_linear_layer_does(image):
    from manylabel.data import eval_transform

    model = tiny("linear")
    feature = model.backbone(eval_transform(model.input_spec)(image)[None])[-1][0]
    expected = sum(weight * channel for weight, channel in zip(model.head.linear.weight[1], feature, strict=True))
    expected = expected.clamp(min=0)
    [found] = explain(model, image, labels="dog", method="cam")
    assert torch.allclose(found.heat, (expected - expected.min()) / (expected.max() - expected.min()), atol=1e-5)


def test_gradients_of_all_labels_are_those_of_each():
    model = tiny("ml_decoder")
    features, logits, tapped = tap_blocks(model, torch.rand(1, 3, 64, 64), [3])
    together = block_gradients(logits, tapped, [0, 1, 2])[3]
    for label in range(3):
        feature = features[0].detach().clone().requires_grad_()
        [alone] = torch.autograd.grad(model.head([feature])[0, label], feature)
        assert torch.allclose(together[label], alone[0], atol=1e-6)
    assert all(parameter.grad is None for parameter in model.parameters())


def test_grad_cam_of_many_labels_passes_the_backbone_once(image, monkeypatch):
    model = tiny("ml_decoder")
    calls = []
    model.backbone.register_forward_hook(lambda *_: calls.append(1))
    explain(model, image, labels=LABELS, method=["grad_cam", "attention"])
    assert len(calls) == 1


def test_labels_left_out_are_those_predicted(image):
    model = tiny("linear")
    order = model.predict(image).top(3)[0]
    model.thresholds = tuple(0.0 if label in (order[0].label, order[2].label) else 1.0 for label in LABELS)
    assert [each.label for each in explain(model, image)] == [order[0].label, order[2].label]
    model.thresholds = (1.0, 1.0, 1.0)
    assert [each.label for each in explain(model, image)] == [order[0].label]


def test_a_cropping_model_shows_what_it_sees():
    from msgspec.structs import replace

    model = tiny("linear")
    model.input_spec = replace(model.input_spec, resize="crop", crop_fraction=0.5)
    [found] = explain(model, Image.new("RGB", (200, 100)), labels="cat")
    assert found.image.size == (50, 50)


def test_the_heat_lies_where_the_map_says():
    from manylabel.explain import Explanation

    heat = torch.zeros(4, 4)
    heat[3, 0] = 1
    grey = Image.new("RGB", (40, 40), (128, 128, 128))
    pixels = np.asarray(Explanation(grey, "cat", 0.5, heat, "cam").overlay(), dtype=int)
    assert pixels[35, 5].sum() > pixels[5, 35].sum() + 150


def test_models_with_other_labels_share_a_row_where_they_can(image):
    models = {"co teacher": tiny("linear"), "student": make_model("linear", labels=["cow", "horse"])}
    found = explain_models(models, image, labels=["horse", "cow"])
    assert [(each.label, each.model) for each in found] == [
        ("horse", "student"),
        ("cow", "co teacher"),
        ("cow", "student"),
    ]
    with pytest.raises(LabelError, match="did you mean 'horse'"):
        explain_models(models, image, labels=["hors"])


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"method": "gradcam"}, "did you mean 'grad_cam'"),
        ({"method": "attention"}, "LinearClassifier has no attention maps; use cam or grad_cam"),
        ({"method": "cam", "blocks": [0]}, r"support the final block only, got blocks \[0\]; add -1"),
        ({"blocks": [7]}, "has blocks 0 to 3, or -4 to -1"),
        ({"method": []}, "no method given"),
    ],
)
def test_what_cannot_be_explained_is_refused_with_a_reason(image, changes, message):
    with pytest.raises(ConfigError, match=message):
        explain(tiny("linear"), image, labels="cat", **changes)


@pytest.mark.parametrize(("head", "best"), [("linear", "cam"), ("ml_decoder", "attention")])
def test_auto_is_grad_cam_before_the_final_block(image, head, best):
    model = tiny(head)
    found = explain(model, image, labels="cat", blocks="all")
    assert [(each.method, each.block) for each in found] == [*(("grad_cam", block) for block in range(3)), (best, 3)]
    [first] = explain(model, image, labels="cat", blocks=[0])
    assert (first.method, first.block) == ("grad_cam", 0)


def test_cam_needs_a_linear_head(image):
    with pytest.raises(ConfigError, match="linear in the final map, got MLDecoder; use attention or grad_cam"):
        explain(tiny("ml_decoder"), image, labels="cat", method="cam")


def test_a_image_that_cannot_be_read_is_named(tmp_path):
    (tmp_path / "a.jpg").write_bytes(b"no image")
    with pytest.raises(ImageError, match=r"a\.jpg"):
        explain(tiny("linear"), tmp_path / "a.jpg")


@pytest.mark.slow
def test_auto_is_a_method_that_the_head_offers():
    for head in HEADS:
        assert best_method(tiny(head)) in set(METHODS) - {"auto"}


def test_an_open_image_is_explained_as_its_file(tmp_path, image):
    path, turned = tmp_path / "turned.jpg", Image.Exif()
    turned[0x0112] = 6
    image.save(path, exif=turned)
    [of_file], [of_image] = (explain(tiny("linear"), form, labels="cat") for form in (path, Image.open(path)))
    assert of_image.score == of_file.score
    assert of_image.image.size == (48, 80)


def test_rejects_an_array_of_another_kind():
    with pytest.raises(ImageError, match=r"uint8.*got float64 \[3, 8, 8\]"):
        explain(tiny("linear"), np.zeros((3, 8, 8)))
