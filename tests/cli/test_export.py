import pytest
import torch
from typer.testing import CliRunner

from manylabel import heads
from manylabel.classifier import Classifier
from manylabel.cli.main import app
from manylabel.data import scenes
from manylabel.deploy import Predictor
from manylabel.errors import ConfigError, OutputExistsError


def run(*arguments):
    return CliRunner().invoke(app, ["export", *map(str, arguments)], catch_exceptions=False)


def make():
    torch.manual_seed(0)
    return Classifier.create(
        "test_resnet", head=heads.LinearHead, labels=scenes(1).labels, pretrained=False, image_size=32
    )


def test_a_model_is_exported_and_made_smaller(tmp_path):
    model = make()
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


def test_pictures_that_are_cut_short_are_left_out(tmp_path):
    whole, photos = scenes(2).pictures[0], tmp_path / "photos"
    photos.mkdir()
    for name, content in (("a.png", whole[: len(whole) // 2]), ("b.png", whole)):
        (photos / name).write_bytes(content)
    out = tmp_path / "model.onnx"
    result = run(make().save(tmp_path / "model"), "--out", out, "--data", f"files:{photos}", "--fixed-size")
    assert result.exit_code == 0
    assert out.is_file()


@pytest.mark.parametrize("there", ["model.onnx", "model.int8.onnx"])
def test_what_is_there_is_refused_before_the_export_begins(tmp_path, monkeypatch, there):
    (tmp_path / there).write_text("mine")
    monkeypatch.setattr("manylabel.deploy.export.export_onnx", lambda *_, **__: pytest.fail("the export began"))
    with pytest.raises(OutputExistsError, match=there):
        run(make().save(tmp_path / "model"), "--out", tmp_path / "model.onnx", "--data", "scenes:3", "--int8")
    assert (tmp_path / there).read_text() == "mine"
