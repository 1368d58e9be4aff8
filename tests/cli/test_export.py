import pytest
import torch
from typer.testing import CliRunner

from manylabel import heads
from manylabel.classifier import Classifier
from manylabel.cli.main import app
from manylabel.data import scenes
from manylabel.deploy import Predictor
from manylabel.errors import ConfigError


def run(*arguments):
    return CliRunner().invoke(app, ["export", *map(str, arguments)], catch_exceptions=False)


def test_a_model_is_exported_and_made_smaller(tmp_path):
    torch.manual_seed(0)
    model = Classifier.create(
        "test_resnet", head=heads.LinearHead, labels=scenes(1).labels, pretrained=False, image_size=32
    )
    folder, out = model.save(tmp_path / "model"), tmp_path / "model.onnx"
    result = run(folder, "--out", out, "--data", "scenes:30", "--int8", "--calibration-pictures", "8", "--fixed-size")
    assert result.exit_code == 0
    assert "Largest difference from the model's scores: " in result.output
    assert "times smaller" in result.output
    assert "mAP on 22 other pictures: " in result.output
    assert Predictor.load(tmp_path / "model.int8.onnx").labels == model.labels


def test_whole_numbers_want_pictures(tmp_path):
    for arguments in (["--int8"], ["--int8", "--data", "scenes:3", "--to", "torch-export"]):
        with pytest.raises(ConfigError, match="int8 wants --to onnx and --data"):
            run(tmp_path, *arguments)
