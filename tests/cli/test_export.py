import shutil
from dataclasses import replace

import pytest
import torch
from typer.testing import CliRunner

from manylabel import heads
from manylabel.classifier import Classifier
from manylabel.cli.main import app
from manylabel.data import scenes
from manylabel.errors import ConfigError, OutputExistsError
from manylabel.inference import open_engine
from manylabel.inference.export import Quantised, export_onnx


def run(*arguments):
    return CliRunner().invoke(app, ["export", *map(str, arguments)], catch_exceptions=False)


def make():
    torch.manual_seed(0)
    return Classifier.create(
        "test_resnet", head=heads.LinearClassifier, labels=scenes(1).labels, pretrained=False, image_size=32
    )


@pytest.mark.slow
def test_a_model_is_exported_and_made_smaller(tmp_path):
    model = make()
    folder, out = model.save_pretrained(tmp_path / "model"), tmp_path / "model.onnx"
    result = run("scenes:30", "--model", folder, "--out", out, "--int8", "--fixed-size")
    assert result.exit_code == 0
    assert "Largest difference from the model's scores: " in result.output
    assert "times smaller" in result.output
    assert "Flipped tags on 15 other images: " in result.output
    assert "mAP on them: " in result.output
    assert open_engine(tmp_path / "model.int8.onnx").spec.labels == model.labels


@pytest.fixture(scope="module")
def exported(tmp_path_factory):
    """A file of the model; its export takes seconds."""
    return export_onnx(make(), tmp_path_factory.mktemp("exported") / "model.onnx", any_size=False)


@pytest.fixture
def quick(exported, monkeypatch):
    """Give every export that file."""

    def write(model, path, **_):
        shutil.copy(exported.path, path)
        return replace(exported, path=path)

    monkeypatch.setattr("manylabel.inference.export.export_onnx", write)


@pytest.fixture
def quantised(quick, monkeypatch):
    """Make it small without the work, and tell what the calibration saw."""
    seen = []

    def quantise(path, small, images, **_):
        seen.append(len(images))
        small.write_bytes(path.read_bytes())
        return Quantised(small, num_bytes=1, size_ratio=1.0, speed_ratio=1.0, weights_only=False)

    monkeypatch.setattr("manylabel.inference.export.quantise", quantise)
    return seen


def write_photos(folder, *, bad=()):
    folder.mkdir()
    for index in range(8):
        (folder / f"{index}.png").write_bytes(b"bad" if index in bad else scenes(8).images[index])
    return folder


@pytest.mark.slow
@pytest.mark.parametrize(
    ("table", "reason"),
    [
        (None, "none of the other images has a label"),
        ("cow", "the dataset has 1 labels that the model lacks, such as cow"),
    ],
)
def test_what_cannot_be_compared_is_told(tmp_path, quantised, table, reason):
    photos = write_photos(tmp_path / "photos")
    rows = "".join(f"{index}.png,{table}\n" for index in range(8))
    (tmp_path / "labels.csv").write_text(f"image,labels\n{rows}")
    data = f"files:{photos}" if table is None else f"csv:{tmp_path / 'labels.csv'},images={photos}"
    model, out = make().save_pretrained(tmp_path / "model"), tmp_path / "model.onnx"
    result = run(data, "--model", model, "--out", out, "--int8", "--fixed-size")
    assert result.output.endswith(f"mAP was not compared: {reason}\n")


@pytest.mark.slow
def test_mAP_is_compared_on_images_behind_those_for_calibration(tmp_path, quantised, monkeypatch):  # noqa: N802
    photos, label = write_photos(tmp_path / "photos", bad=(0, 2)), scenes(1).labels[0]
    (tmp_path / "labels.csv").write_text("image,labels\n" + "".join(f"{index}.png,{label}\n" for index in range(8)))
    data = f"csv:{tmp_path / 'labels.csv'},images={photos}"
    monkeypatch.setattr("manylabel.cli.models.CALIBRATION_IMAGES", 3)
    arguments = ("--out", tmp_path / "model.onnx", "--int8", "--fixed-size")
    result = run(data, "--model", make().save_pretrained(tmp_path / "model"), *arguments)
    assert quantised == [3]  # 1, 3 and 4
    assert "Flipped tags on 3 other images: 0 of " in result.output
    assert "mAP on them: " in result.output
    assert "not recommended" not in result.output


@pytest.mark.slow
def test_int8_that_flips_many_tags_is_not_recommended(tmp_path, quantised, monkeypatch):
    monkeypatch.setattr("manylabel.inference.export.flipped_tags", lambda *_: (6, 100))
    arguments = ("--out", tmp_path / "model.onnx", "--int8", "--fixed-size")
    result = run("scenes:6", "--model", make().save_pretrained(tmp_path / "model"), *arguments)
    assert "6 of 100 (6.0 %)" in result.output
    assert result.output.endswith("int8 is not recommended for this model: it changes more than 5 % of the tags\n")


def test_int8_needs_onnx_and_images(tmp_path):
    for arguments in (["--int8"], ["scenes:3", "--int8", "--out", "model.pt2"]):
        with pytest.raises(ConfigError, match=r"--int8 needs an \.onnx file and a dataset"):
            run(*arguments, "--model", tmp_path)


def test_the_ending_chooses_the_format(tmp_path):
    with pytest.raises(ConfigError, match=r"--out must end in .onnx or .pt2 \(torch.export\), got model.pt"):
        run("--model", tmp_path, "--out", "model.pt")


@pytest.mark.slow
def test_images_that_are_cut_short_are_left_out(tmp_path, exported, monkeypatch):
    seen = []

    def write(model, path, *, images, **_):
        seen.extend(images)
        shutil.copy(exported.path, path)
        return replace(exported, path=path)

    monkeypatch.setattr("manylabel.inference.export.export_onnx", write)
    whole, photos = scenes(2).images[0], tmp_path / "photos"
    photos.mkdir()
    for name, content in (("a.png", whole[: len(whole) // 2]), ("b.png", whole)):
        (photos / name).write_bytes(content)
    out = tmp_path / "model.onnx"
    result = run(f"files:{photos}", "--model", make().save_pretrained(tmp_path / "model"), "--out", out, "--fixed-size")
    assert result.exit_code == 0
    assert seen == [photos / "b.png"]


@pytest.mark.parametrize("there", ["model.onnx", "model.int8.onnx"])
def test_what_is_there_is_refused_before_the_export_begins(tmp_path, monkeypatch, there):
    (tmp_path / there).write_text("mine")
    monkeypatch.setattr("manylabel.inference.export.export_onnx", lambda *_, **__: pytest.fail("the export began"))
    with pytest.raises(OutputExistsError, match=there):
        run(
            "scenes:3",
            "--model",
            make().save_pretrained(tmp_path / "model"),
            "--out",
            tmp_path / "model.onnx",
            "--int8",
        )
    assert (tmp_path / there).read_text() == "mine"
