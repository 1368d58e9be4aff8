from pathlib import Path

import huggingface_hub
import numpy as np
import pytest
import torch
from PIL import Image
from safetensors.torch import save_file
from skimage import data
from torch import Tensor

from manylabel.backbone import OFFLINE_MODELS, Backbone, weights
from manylabel.builtin import DEFAULT_MODEL
from manylabel.classifier import Classifier
from manylabel.errors import ConfigError, ModelFormatError
from manylabel.types import InputSpec

CATS = {281, 282, 285}  # ImageNet's tabby, tiger cat and Egyptian cat
HELMETS = {518, 560}  # crash helmet, football helmet


@pytest.fixture
def state() -> dict[str, Tensor]:
    torch.manual_seed(1)
    return Backbone("resnet10t", pretrained=False).model.state_dict()


def as_classification_models_want_it(array: np.ndarray, spec: InputSpec) -> Tensor:
    """Resize the short side, cut out the centre, normalise."""
    image = Image.fromarray(array)
    scale = spec.size[0] / spec.crop_fraction / min(image.size)
    image = image.resize((round(image.width * scale), round(image.height * scale)), Image.Resampling.BICUBIC)
    left, top = (image.width - spec.size[1]) // 2, (image.height - spec.size[0]) // 2
    pixels = np.asarray(image.crop((left, top, left + spec.size[1], top + spec.size[0])), dtype=np.float32) / 255
    normalised = (pixels - np.array(spec.mean, dtype=np.float32)) / np.array(spec.std, dtype=np.float32)
    return torch.from_numpy(normalised).permute(2, 0, 1).unsqueeze(0)


@pytest.mark.parametrize("name", sorted(set(OFFLINE_MODELS) - {weights.EVERYDAY}))
@pytest.mark.slow
def test_offline_weights_see_a_cat_and_an_astronauts_helmet(name: str) -> None:
    backbone, tensors = Backbone(name, frozen=True, stages=(-1,)), weights.offline_tensors(name)
    tops = []
    for image in (data.chelsea(), data.astronaut()):
        images = as_classification_models_want_it(image, backbone.input_spec)
        with torch.no_grad():
            pooled = backbone(images)[-1].mean((2, 3))
            logits = pooled @ tensors["classifier.weight"].T + tensors["classifier.bias"]
            tops.append(logits[0].topk(5).indices.tolist())
    assert set(tops[0][:3]) == CATS
    assert HELMETS & set(tops[1])


def test_everyday_is_the_backbone_of_the_builtin_model() -> None:
    everyday, model = Backbone(weights.EVERYDAY), Classifier.from_pretrained(DEFAULT_MODEL)
    assert everyday.input_spec.size == (288, 288)  # as it was trained; the model uses 320
    for name, tensor in model.backbone.model.state_dict().items():
        assert torch.equal(everyday.model.state_dict()[name], tensor), name


def test_offline_model_needs_no_package_when_untrained(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("manylabel.backbone.weights.offline_tensors", lambda name: pytest.fail("read the package"))
    assert Backbone("offline:efficientnet_lite0", pretrained=False).channels[-1] == 1280


def test_takes_the_weights_that_the_hub_gives(monkeypatch: pytest.MonkeyPatch, state: dict[str, Tensor]) -> None:
    def from_hub(*_: object, **__: object) -> dict[str, Tensor]:  # a stand-in: the hub cannot be reached from here
        return {**state, "fc.weight": torch.zeros(1000, 512), "fc.bias": torch.zeros(1000)}

    monkeypatch.setattr("timm.models._builder.load_state_dict_from_hf", from_hub)
    loaded = Backbone("resnet10t", pretrained=True).model.state_dict()
    assert all(torch.equal(loaded[name], tensor) for name, tensor in state.items())


def test_says_what_to_do_when_the_hub_cannot_be_reached(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(tmp_path))
    with pytest.raises(ConfigError, match=r"hub cannot be reached; connect, or use weights=FILE, or one of offline:"):
        Backbone("resnet10t.c3_in1k")


@pytest.mark.slow
def test_says_when_there_are_no_pretrained_weights() -> None:
    with pytest.raises(ConfigError, match="no pretrained weights for coatnet_0_224; use pretrained=False"):
        Backbone("coatnet_0_224")


@pytest.mark.parametrize("ending", ["safetensors", "pth"])
def test_loads_a_file_and_leaves_its_classifier_out(ending: str, state: dict[str, Tensor], tmp_path: Path) -> None:
    path = tmp_path / f"weights.{ending}"
    complete = {**state, "fc.weight": torch.zeros(1000, 512), "fc.bias": torch.zeros(1000)}
    save_file(complete, path) if ending == "safetensors" else torch.save(complete, path)
    loaded = Backbone("resnet10t", weights=path).model.state_dict()
    assert all(torch.equal(loaded[key], value) for key, value in state.items())


def test_loads_a_training_checkpoint(state: dict[str, Tensor], tmp_path: Path) -> None:
    path = tmp_path / "last.ckpt"
    torch.save({"state_dict": {f"module.{key}": value for key, value in state.items()}, "epoch": 3}, path)
    loaded = Backbone("resnet10t", weights=str(path)).model.state_dict()
    assert all(torch.equal(loaded[key], value) for key, value in state.items())


def test_names_the_tensors_that_do_not_fit(state: dict[str, Tensor], tmp_path: Path) -> None:
    path = tmp_path / "weights.pth"
    del state["bn1.bias"]
    torch.save({**state, "stem.weight": torch.zeros(1), "bn1.weight": torch.zeros(3)}, path)
    with pytest.raises(ModelFormatError) as error:
        Backbone("resnet10t", weights=path)
    for text in ("1 missing (bn1.bias)", "1 unexpected (stem.weight)", "1 of another shape (bn1.weight)", "resnet10t"):
        assert text in str(error.value)


@pytest.mark.parametrize("name", ["weights.pth", "weights.safetensors"])
def test_rejects_a_damaged_file(name: str, tmp_path: Path) -> None:
    path = tmp_path / name
    path.write_bytes(b"not a model")
    with pytest.raises(ModelFormatError, match="is not a weights file that can be read safely"):
        Backbone("resnet10t", weights=path)


def test_never_runs_code_from_a_file(tmp_path: Path) -> None:
    path = tmp_path / "weights.pth"
    torch.save(Backbone("resnet10t", pretrained=False).model, path)  # a pickled module, not a state dict
    with pytest.raises(ModelFormatError, match="read safely"):
        Backbone("resnet10t", weights=path)


def test_rejects_a_file_without_tensors(tmp_path: Path) -> None:
    torch.save([1, 2], tmp_path / "weights.pth")
    with pytest.raises(ModelFormatError, match="does not hold a state dict"):
        Backbone("resnet10t", weights=tmp_path / "weights.pth")


def test_rejects_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(ModelFormatError, match="there is no weights file"):
        Backbone("resnet10t", weights=tmp_path / "nothing.pth")


@pytest.mark.slow
def test_resamples_the_positions_of_a_transformer_for_another_image_size(tmp_path: Path) -> None:
    torch.manual_seed(0)
    small, path = Backbone("test_vit", pretrained=False, image_size=160), tmp_path / "vit.safetensors"
    complete = {**small.model.state_dict(), "head.weight": torch.zeros(10, 64), "head.bias": torch.zeros(10)}
    save_file(complete, path)
    large = Backbone("test_vit", weights=path, image_size=224)
    before, after = (backbone.model.state_dict() for backbone in (small, large))
    assert before["pos_embed"].shape[1] == 1 + 10 * 10
    assert after["pos_embed"].shape[1] == 1 + 14 * 14
    torch.testing.assert_close(after["pos_embed"][:, :1], before["pos_embed"][:, :1])
    assert all(torch.equal(after[name], value) for name, value in before.items() if name != "pos_embed")


@pytest.mark.slow
@pytest.mark.parametrize(("name", "shape"), [("cait_xxs24_224", (1, 100, 192)), ("volo_d1_224", (1, 10, 10, 384))])
def test_resamples_positions_that_timm_does_not_convert(name: str, shape: tuple[int, ...], tmp_path: Path) -> None:
    table = torch.linspace(0, 1, 14).view(1, 14, 1, 1).expand(1, 14, 14, shape[-1])  # rises from top to bottom
    state = Backbone(name, pretrained=False, image_size=224).model.state_dict()
    state["pos_embed"] = table.reshape(state["pos_embed"].shape).contiguous()
    save_file(state, tmp_path / "weights.safetensors")
    resampled = Backbone(name, weights=tmp_path / "weights.safetensors", image_size=160).model.pos_embed
    assert resampled.shape == shape
    rows = resampled.reshape(10, 10, -1).mean((1, 2))
    torch.testing.assert_close(rows, torch.linspace(0.02, 0.98, 10), atol=0.03, rtol=0)


def test_names_positions_that_cannot_be_resampled(tmp_path: Path) -> None:
    state = Backbone("test_vit", pretrained=False, image_size=64).model.state_dict()
    state["pos_embed"] = torch.zeros(1, 8, 64)  # no square grid
    save_file(state, tmp_path / "vit.safetensors")
    with pytest.raises(ModelFormatError, match=r"1 of another shape \(pos_embed\)"):
        Backbone("test_vit", weights=tmp_path / "vit.safetensors", image_size=64)


@pytest.mark.slow
def test_names_what_timm_cannot_convert(tmp_path: Path) -> None:
    save_file({"pos_embed": torch.zeros(3)}, tmp_path / "vit.safetensors")
    with pytest.raises(ModelFormatError, match=r"does not fit test_vit: \d+ missing"):
        Backbone("test_vit", weights=tmp_path / "vit.safetensors")
