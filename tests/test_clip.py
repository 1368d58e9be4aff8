"""Image-text models of open_clip, with tiny random ones saved in a folder."""

import json
import logging
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from manylabel import Classifier
from manylabel.clip import load_clip
from manylabel.errors import ConfigError
from manylabel.explain import explain
from manylabel.images import prepare
from manylabel.inference import open_engine
from manylabel.inference.export import export_onnx

open_clip = pytest.importorskip("open_clip")

SIGLIP = {
    "embed_dim": 16,
    "init_logit_bias": -2.0,
    "custom_text": True,
    "vision_cfg": {"image_size": 32, "timm_model_name": "test_vit", "timm_pool": "avg", "timm_proj": "linear"},
    "text_cfg": {"context_length": 16, "vocab_size": 49408, "width": 16, "heads": 2, "layers": 1},
}
CLIP = {
    "embed_dim": 16,
    "vision_cfg": {"image_size": 32, "layers": 1, "width": 32, "head_width": 16, "patch_size": 16},
    "text_cfg": {"context_length": 16, "vocab_size": 49408, "width": 16, "heads": 2, "layers": 1},
}
PREPROCESS = {"size": 32, "mean": [0.5, 0.5, 0.5], "std": [0.5, 0.5, 0.5], "interpolation": "bicubic"}


@pytest.fixture(autouse=True)
def _quiet() -> None:
    logging.getLogger().setLevel(logging.WARNING)  # open_clip logs to the root logger


@pytest.fixture(scope="module", params=["siglip", "clip"])
def folder(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    config = {"siglip": SIGLIP, "clip": CLIP}[request.param]
    path = tmp_path_factory.mktemp("models") / request.param
    path.mkdir()
    (path / "open_clip_config.json").write_text(json.dumps({"model_cfg": config, "preprocess_cfg": PREPROCESS}))
    torch.manual_seed(0)
    settings = {key: value for key, value in config.items() if key != "custom_text"}
    model = (open_clip.CustomTextCLIP if "custom_text" in config else open_clip.CLIP)(**settings)
    tensors = {name: tensor.contiguous() for name, tensor in model.state_dict().items()}
    save_file(tensors, path / "open_clip_model.safetensors")
    return path


def _images(count: int = 3) -> list[np.ndarray]:
    return list(np.random.default_rng(0).integers(0, 255, (count, 40, 50, 3), dtype=np.uint8))


def test_scores_are_those_of_open_clip(folder: Path) -> None:
    name, images = f"clip:{folder}", _images()
    typed = Classifier.from_pretrained(name).with_labels(["zebra", "sunset"])
    found = typed.predict(images)
    model, tokenizer = load_clip(name)
    texts = ["a photo of a zebra", "a photo of a sunset", "a photo"]
    pixels = torch.tensor(np.stack([prepare(image, typed.input_spec) for image in images])) / 127.5 - 1
    with torch.no_grad():
        ours = (
            model.encode_image(pixels.permute(0, 3, 1, 2), normalize=True)
            @ model.encode_text(tokenizer(texts), normalize=True).t()
        )
        ours = model.logit_scale.exp() * ours
        if folder.name == "siglip":
            expected = (ours[:, :2] + model.logit_bias).sigmoid()
        else:  # each label against "a photo"
            expected = torch.stack([ours[:, [column, 2]].softmax(1)[:, 0] for column in (0, 1)], 1)
    np.testing.assert_allclose(found.scores, expected.numpy(), atol=1e-5)


def test_engine_gives_the_scores_of_the_classifier(folder: Path) -> None:
    engine = open_engine(f"clip:{folder}", labels=["zebra", "sunset", "zebra "], device="cpu")
    expected = Classifier.from_pretrained(f"clip:{folder}").predict(_images(), labels=["zebra", "sunset"])
    np.testing.assert_allclose(engine.predict(_images()).scores, expected.scores, atol=1e-6)


def test_labels_must_be_given(folder: Path) -> None:
    with pytest.raises(ConfigError, match="no labels of its own"):
        Classifier.from_pretrained(f"clip:{folder}").predict(_images())
    with pytest.raises(ConfigError, match="no labels of its own; give them, such as --labels"):
        open_engine(f"clip:{folder}", device="cpu")


def test_is_served_with_typed_labels(folder: Path) -> None:
    from fastapi.testclient import TestClient
    from PIL import Image

    from manylabel.server import ServedModel, create_app

    served = ServedModel.open(f"clip:{folder}", device="cpu")
    assert served.takes_new_labels
    photo = folder / "photo.png"
    Image.fromarray(_images(1)[0]).save(photo)
    with TestClient(create_app(served), base_url="http://localhost") as client:
        content = photo.read_bytes()
        answer = client.post("/v1/predict?labels=zebra&labels=sunset&top=2", content=content)
        assert {tag["label"] for tag in answer.json()["images"][0]["tags"]} == {"zebra", "sunset"}
        refused = client.post("/v1/predict", content=content)
        assert refused.status_code == 422
        assert "no labels of its own" in refused.text
        assert client.get("/v1/labels").json()["new_labels"] is True


def test_only_predicts(folder: Path, tmp_path: Path) -> None:
    typed = Classifier.from_pretrained(f"clip:{folder}").with_labels(["zebra"])
    with pytest.raises(ConfigError, match="only predicts"):
        typed.save_pretrained(tmp_path / "model")
    with pytest.raises(ConfigError, match="only predicts"):
        export_onnx(typed, tmp_path / "model.onnx")
    with pytest.raises(ConfigError, match="only predicts"):
        explain(typed, _images(1)[0])
    with pytest.raises(ConfigError, match="runs in torch"):
        open_engine(f"clip:{folder}", labels=["zebra"], engine="onnx", device="cpu")


def test_names_that_do_not_exist_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="did you mean 'ViT-B-16-SigLIP"):
        load_clip("clip:ViT-B-16-SigLPI")
    (tmp_path / "empty").mkdir()
    with pytest.raises(ConfigError, match="cannot be loaded"):
        load_clip(f"clip:{tmp_path / 'empty'}")
