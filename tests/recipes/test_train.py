"""`manylabel.train`: one call from data to a classifier, with names or ready objects."""

import csv

import numpy as np
import pytest
import timm
import torch
import yaml
from PIL import Image
from torch import nn
from torchvision.models import ResNet, resnet18
from torchvision.models.resnet import BasicBlock
from torchvision.transforms import v2

import manylabel as ml
from manylabel.classifier import Classifier
from manylabel.errors import ConfigError, DataError, ModelFormatError, TrainingError
from manylabel.inference.engine import OnnxEngine
from manylabel.inference.export import export_onnx
from manylabel.recipes import (
    PRESETS,
    RECIPES,
    Finetune,
    Parts,
    Probe,
    RepresentationMixup,
)
from manylabel.recipes.setup import CustomLoss, resolve
from manylabel.settings import RECIPE_SETTINGS

SMALL = {"backbone": "resnet10t", "pretrained": False, "image_size": 64, "epochs": 1, "batch_size": 4, "workers": 0}
SMALL |= {"device": "cpu", "logger": "none", "views": 1}


@pytest.fixture
def pairs(tmp_path):
    """A list of (path, tags) of eight small images."""
    rng = np.random.default_rng(0)
    found = []
    for number in range(8):
        path = tmp_path / "photos" / f"{number}.png"
        path.parent.mkdir(exist_ok=True)
        Image.fromarray(rng.integers(0, 255, (64, 64, 3), dtype=np.uint8)).save(path)
        found.append((str(path), ["cat", "sofa"] if number % 2 else ["dog"]))
    return found


class Corner(nn.Module):
    def __init__(self, in_channels, num_labels):
        super().__init__()
        self.in_channels, self.num_labels = in_channels, num_labels
        self.linear = nn.Linear(in_channels, num_labels)

    def forward(self, features):
        return self.linear(features[-1][:, :, 0, 0])


def squared(logits, targets, known):
    return ((logits.sigmoid() - targets) ** 2 * known).mean()


@pytest.mark.slow
def test_a_list_of_tags_becomes_a_model_that_knows_its_run(pairs, tmp_path, monkeypatch, capfd):
    monkeypatch.chdir(tmp_path)
    first = ml.train(pairs, head="linear", **SMALL)
    second = ml.train(pairs, head="linear", progress=False, **SMALL)
    assert first.labels.names == ("cat", "dog", "sofa")
    assert [str(model.run_folder) for model in (first, second)] == ["runs/probe", "runs/probe-2"]
    assert not first.training
    assert first.predict(pairs[0][0]).scores.shape == (1, 3)
    shown = capfd.readouterr().err
    assert shown.count("the model is in runs/probe") == 1
    assert "epoch 1/1" in shown
    config = yaml.safe_load((first.run_folder / "config.yaml").read_text())
    assert config["data"] == "<list>"


@pytest.mark.slow
def test_ready_objects_are_trained_and_recorded(pairs, tmp_path):
    torch.manual_seed(1)
    head = Corner(512, 3)
    before = {name: value.clone() for name, value in head.state_dict().items()}
    transform = v2.Compose([v2.Resize((64, 64)), v2.PILToTensor(), v2.ToDtype(torch.float32, scale=True)])
    model = ml.train(
        pairs, val=pairs[:4], head=head, loss=squared, transform=transform, out=tmp_path / "run", **SMALL | {"views": 2}
    )
    config = yaml.safe_load((tmp_path / "run" / "config.yaml").read_text())
    assert config["head"] == f"{__name__}:Corner"
    assert config["loss"] == f"{__name__}:squared"
    assert config["transform"] == "torchvision.transforms.v2._container:Compose"
    assert all(torch.equal(value, head.state_dict()[name]) for name, value in before.items())
    assert not torch.equal(model.head.linear.weight, before["linear.weight"])
    with pytest.raises(ModelFormatError, match=r"custom head, .*Corner, but none was passed"):
        Classifier.from_pretrained(tmp_path / "run" / "model")


@pytest.mark.slow
def test_a_ready_backbone_is_used(pairs, tmp_path):
    backbone = ml.Backbone("resnet10t", pretrained=False, image_size=64)
    given = {name: value for name, value in SMALL.items() if name not in ("backbone", "image_size")}
    model = ml.train(pairs, backbone=backbone, head="linear", out=tmp_path / "run", **given)
    weights = model.backbone.state_dict()
    assert all(torch.equal(value, weights[name]) for name, value in backbone.state_dict().items())
    config = yaml.safe_load((tmp_path / "run" / "config.yaml").read_text())
    assert config["backbone"] == "manylabel.backbone.backbone:Backbone(resnet10t)"
    with pytest.raises(ConfigError, match="image_size is 32, but the backbone was built for 64"):
        ml.train(pairs, backbone=backbone, head="linear", out=tmp_path / "other", **given, image_size=32)


@pytest.mark.slow
def test_a_timm_model_is_a_backbone_and_one_that_cannot_be_saved_is_refused_at_once(pairs, tmp_path):
    given = {name: value for name, value in SMALL.items() if name != "backbone"}
    body = timm.create_model("resnet10t")
    model = ml.train(pairs, backbone=body, head="linear", out=tmp_path / "run", **given)
    assert torch.equal(model.backbone.model.conv1[0].weight, body.conv1[0].weight)
    assert body.fc.out_features == 1000  # copied, so it keeps its classifier
    small = ResNet(BasicBlock, [1, 1, 1, 1])
    with pytest.raises(ConfigError, match="cannot be saved"):
        ml.train(pairs, backbone=small, head="linear", out=tmp_path / "other", **given)
    assert not (tmp_path / "other").exists()


@pytest.mark.slow  # exports
@pytest.mark.parametrize("kind", ["name", "object"])
def test_a_torchvision_model_is_trained_saved_loaded_and_exported(pairs, tmp_path, kind):
    given = {name: value for name, value in SMALL.items() if name != "backbone"}
    backbone = "torchvision:resnet18" if kind == "name" else resnet18()
    model = ml.train(pairs, backbone=backbone, head="linear", out=tmp_path / "run", **given)
    loaded = Classifier.from_pretrained(tmp_path / "run" / "model")
    assert loaded.backbone.name == "torchvision:resnet18"
    image = pairs[0][0]
    scores = model.predict(image).scores
    np.testing.assert_allclose(loaded.predict(image).scores, scores, atol=1e-5)
    export_onnx(loaded, tmp_path / "tagger.onnx")
    np.testing.assert_allclose(OnnxEngine(tmp_path / "tagger.onnx").predict(image).scores, scores, atol=1e-4)


def test_a_recorded_object_must_be_passed_again():
    settings = resolve(Probe(data="x"), Parts(loss=squared))
    with pytest.raises(ConfigError, match=r"the loss .*:squared is a Python object; call the recipe from Python"):
        resolve(settings)
    with pytest.raises(ConfigError, match="loss cannot be 'squared'"):
        Probe(data="x", loss="squared")


def test_a_ready_head_of_ours_is_recorded_with_its_arguments():
    settings = resolve(Probe(data="x"), Parts(head=ml.heads.LinearClassifier(8, 2, pooling="max")))
    assert (settings.head, settings.head_settings["pooling"]) == ("linear", "max")


def test_a_loss_without_a_mask_refuses_unknown_labels():
    loss, targets = CustomLoss(nn.BCEWithLogitsLoss()), torch.ones(1, 2)
    assert loss(torch.zeros(1, 2), targets, targets.bool()) == pytest.approx(0.6931, abs=1e-4)
    with pytest.raises(TrainingError, match="unknown labels, which the loss torch"):
        loss(torch.zeros(1, 2), targets, torch.tensor([[True, False]]))


def test_the_class_of_a_loss_is_refused():
    with pytest.raises(ConfigError, match=r"got a class; write MSELoss\(\)"):
        CustomLoss(nn.MSELoss)


def test_a_transform_without_a_description_cannot_be_cached(pairs, tmp_path):
    with pytest.raises(ConfigError, match="whose repr does not describe it"):
        ml.train(pairs, transform=lambda image: image, head="linear", out=tmp_path / "run", **SMALL)


def test_data_without_labels_is_refused(pairs, tmp_path):
    with pytest.raises(DataError, match="has no labels to train on; use images with tags"):
        ml.train([path for path, _ in pairs], out=tmp_path / "run", **SMALL)
    with pytest.raises(DataError, match="there is no training set"):
        ml.train(None, out=tmp_path / "run", **SMALL)
    assert not (tmp_path / "run").exists()


def test_unknown_recipes_and_settings_are_listed(pairs, tmp_path):
    with pytest.raises(ConfigError, match="no recipe 'prob'; did you mean 'probe'"):
        ml.train(pairs, recipe="prob")
    with pytest.raises(ConfigError, match="no setting 'epoch'; did you mean 'epochs'"):
        ml.train(pairs, epoch=3, out=tmp_path / "run")
    with pytest.raises(ConfigError, match="resume needs the folder"):
        ml.train(pairs, resume=True)


@pytest.mark.slow
def test_every_recipe_has_settings_and_presets():
    assert {name: recipe.settings for name, recipe in RECIPES.items()} == RECIPE_SETTINGS
    assert list(PRESETS) == list(RECIPES)


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in RECIPES if name != "zero_shot"])  # which judges unseen labels
def test_a_recipe_leaves_a_run_and_a_model_that_predicts_what_was_measured(name, quick, sets, tmp_path):
    recipe = RECIPES[name]
    heads = {} if name == "representation_mixup" else {"head": "csra"}
    few = {"executor": "sequential", "k": 2, "teacher_epochs": 1} if name == "self_distillation" else {}
    run = recipe(recipe.settings(**quick, **heads, **few, out=tmp_path / "run"), sets=sets)
    model = Classifier.from_pretrained(run.model)
    predictions = model.predict([sets.val.images[index] for index in range(len(sets.val))])
    values, known = sets.val.targets.dense()
    from manylabel.metrics import mean_average_precision

    measured = mean_average_precision(
        torch.from_numpy(predictions.scores), torch.from_numpy(values), torch.from_numpy(known)
    )
    with run.metrics.open() as file:
        rows = list(csv.DictReader(file))
    assert float(rows[-1]["val_mAP"]) == pytest.approx(float(measured), abs=2e-3)  # features are kept in float16
    assert yaml.safe_load((run.path / "config.yaml").read_text())["backbone"] == "resnet10t"


@pytest.mark.slow
def test_the_papers_settings():
    decoder = Finetune(data="x", **PRESETS["finetune"]["ml_decoder"])
    assert (decoder.optimizer, decoder.learning_rate, decoder.weight_decay) == ("adam", 1e-4, 1e-4)
    assert (decoder.epochs, decoder.batch_size, decoder.image_size, decoder.ema_decay) == (40, 56, 448, 0.9997)
    sharing = Finetune(data="x", **PRESETS["finetune"]["hsq"])
    assert (sharing.betas, sharing.epochs, sharing.image_size) == ((0.9, 0.9999), 100, 576)
    assert Finetune(data="x", **PRESETS["finetune"]["q2l"]).loss_settings["gamma_negative"] == 2
    mixup = RepresentationMixup(data="x", **PRESETS["representation_mixup"]["paper"])
    assert (mixup.optimizer, mixup.learning_rate) == ("sgd", 0.1)
    assert (mixup.schedule, mixup.epochs, mixup.loss) == ("one_cycle", 30, "soft_margin")
