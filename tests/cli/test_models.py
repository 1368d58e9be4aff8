import json
import shutil
from dataclasses import replace

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

from manylabel import heads
from manylabel.classifier import Classifier
from manylabel.cli.main import app
from manylabel.cost import count_parameters
from manylabel.data import scenes
from manylabel.errors import ConfigError, LabelError, OutputExistsError
from manylabel.inference import open_engine
from manylabel.inference.export import Quantised, export_onnx
from manylabel.text import TextVocabulary
from tiny_runs import make_model
from unrelated_encoder import UnrelatedEncoder


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
        ("cow", "the dataset has 1 label that the model lacks, such as cow"),
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
def test_mAP_is_compared_on_images_behind_those_for_calibration(tmp_path, quantised, monkeypatch):  # noqa: N802 (the field's spelling)
    photos, (label, rare, *_) = write_photos(tmp_path / "photos", bad=(0, 2)), scenes(1).labels
    rows = [f"{index}.png,{label}{f'|{rare}' if index == 1 else ''}" for index in range(8)]  # rare: never compared
    (tmp_path / "labels.csv").write_text("\n".join(["image,labels", *rows]))
    data = f"csv:{tmp_path / 'labels.csv'},images={photos}"
    monkeypatch.setattr("manylabel.cli.models.CALIBRATION_IMAGES", 3)
    arguments = ("--out", tmp_path / "model.onnx", "--int8", "--fixed-size")
    result = run(data, "--model", make().save_pretrained(tmp_path / "model"), *arguments)
    assert quantised == [3]  # 1, 3 and 4
    assert "Flipped tags on 3 other images: 0 of " in result.output
    assert "mAP on them: 100.00 before, 100.00 as int8 (+0.00 points)" in result.output
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


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    made = make_model("linear", labels=["cat", "dog"])
    folder = tmp_path_factory.mktemp("models") / "tagger"
    made.save_pretrained(folder)
    return made, folder


def run_cost(*arguments):
    return CliRunner().invoke(app, ["cost", *map(str, arguments)], catch_exceptions=False).output


@pytest.mark.slow
def test_the_numbers_are_those_of_the_model(model):
    made, folder = model
    found = json.loads(run_cost("--model", folder, "--json"))
    assert found["parameters"] == count_parameters(made)
    assert found["head_parameters"] == count_parameters(made.head)
    assert found["macs"] > found["parameters"]
    assert found["milliseconds"] > 0
    assert found["peak_memory_bytes"] > 3 * 64 * 64 * 4


@pytest.mark.slow
def test_prints_a_table(model):
    printed = run_cost("--model", model[1])
    assert "MACs per image" in printed
    assert "64 x 64" in printed


def test_rejects_a_device_that_is_not_there(model):
    with pytest.raises(ConfigError, match="nowhere"):
        run_cost("--model", model[1], "--device", "nowhere")


@pytest.fixture
def vocabulary_model(tmp_path):
    vectors = np.random.default_rng(0).normal(size=(4, 5)).astype(np.float32)
    np.savez(tmp_path / "vectors.npz", labels=["cat", "dog", "tram", "fire truck"], vectors=vectors)
    text = {"text_vectors": torch.from_numpy(vectors[:2])}
    made = Classifier.create(
        "test_resnet", head=heads.TextMap, labels=["cat", "dog"], head_settings=text, pretrained=False
    )
    made.text = TextVocabulary(f"npz:{tmp_path / 'vectors.npz'}", ("{label}",), trained=("cat", "dog"))
    return made.save_pretrained(tmp_path / "model")


def run_vocabulary(*arguments):
    return CliRunner().invoke(app, ["vocabulary", *map(str, arguments)], catch_exceptions=False)


def listed(vocabulary_model):
    return {
        row["label"]: row["trained"]
        for row in json.loads(run_vocabulary("list", "--json", "--model", vocabulary_model).stdout)
    }


@pytest.mark.slow
def test_adds_lists_and_removes(vocabulary_model, tmp_path):
    assert (
        "now has 4 labels (+2)"
        in run_vocabulary("add", "tram", "fire truck", "cat", "--model", vocabulary_model).stdout
    )
    assert listed(vocabulary_model) == {"cat": True, "dog": True, "tram": False, "fire truck": False}
    assert "from text" in run_vocabulary("list", "--model", vocabulary_model).stdout
    assert "now has 2 labels (-2)" in run_vocabulary("remove", "tram", "cat", "--model", vocabulary_model).stdout
    assert listed(vocabulary_model) == {"dog": True, "fire truck": False}
    run_vocabulary("add", "cat", "--model", vocabulary_model)
    assert listed(vocabulary_model)["cat"]  # it was trained on, though it was gone for a while


def test_reads_labels_from_a_file_and_writes_elsewhere(vocabulary_model, tmp_path):
    (tmp_path / "new.txt").write_text("tram\n")
    run_vocabulary("add", tmp_path / "new.txt", "--out", tmp_path / "other", "--model", vocabulary_model)
    assert list(listed(tmp_path / "other")) == ["cat", "dog", "tram"]
    assert list(listed(vocabulary_model)) == ["cat", "dog"]


def test_a_model_that_is_changed_in_place_keeps_its_form_and_the_files_beside_it(vocabulary_model):
    loaded = Classifier.from_pretrained(vocabulary_model)
    loaded.save_pretrained(vocabulary_model, half=True, overwrite=True)
    (vocabulary_model / "README.md").write_text("my card")
    size = (vocabulary_model / "model.safetensors").stat().st_size
    run_vocabulary("add", "tram", "--model", vocabulary_model)
    assert (vocabulary_model / "README.md").read_text() == "my card"
    assert (vocabulary_model / "model.safetensors").stat().st_size < 1.1 * size


@pytest.mark.slow
def test_takes_the_folder_of_a_run_and_replaces_only_when_asked(vocabulary_model, tmp_path):
    vocabulary_model.rename(tmp_path / "moved")
    (tmp_path / "run").mkdir()
    (tmp_path / "moved").rename(tmp_path / "run" / "model")
    run_vocabulary("add", "tram", "--out", tmp_path / "other", "--model", tmp_path / "run")
    with pytest.raises(OutputExistsError):
        run_vocabulary("remove", "cat", "--out", tmp_path / "other", "--model", tmp_path / "run")
    run_vocabulary("remove", "cat", "--out", tmp_path / "other", "--overwrite", "--model", tmp_path / "run")
    assert list(listed(tmp_path / "other")) == ["dog"]


@pytest.mark.slow
def test_refuses_what_makes_no_sense(vocabulary_model):
    assert run_vocabulary("add", "--model", vocabulary_model).exit_code == 2
    with pytest.raises(LabelError, match="the model has no label 'tarm'"):
        run_vocabulary("remove", "tarm", "--model", vocabulary_model)
    with pytest.raises(ConfigError, match="needs at least one"):
        run_vocabulary("remove", "cat", "dog", "--model", vocabulary_model)
    with pytest.raises(LabelError, match="no vector for 'boat'"):
        run_vocabulary("add", "boat", "--model", vocabulary_model)
    assert list(listed(vocabulary_model)) == ["cat", "dog"]


def test_says_which_recipe_to_use_where_labels_are_fixed(tmp_path, monkeypatch):
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)  # no retries
    monkeypatch.setattr("manylabel.classifier.typed_labels.open_encoder", UnrelatedEncoder)
    made = Classifier.create("test_resnet", head=heads.LinearClassifier, labels=["cat"], pretrained=False)
    folder = made.save_pretrained(tmp_path / "model")
    assert "was not trained with the recipe zero_shot" in run_vocabulary("list", "--model", folder).stdout
    with pytest.raises(ConfigError, match="use the recipe zero_shot"):
        run_vocabulary("add", "tram", "--model", folder)


def test_labels_in_brackets_are_shown(tmp_path):
    labels = ["cat [pet]", "dog[/]"]
    made = Classifier.create("test_resnet", head=heads.LinearClassifier, labels=labels, pretrained=False)
    shown = run_vocabulary("list", "--model", made.save_pretrained(tmp_path / "model")).stdout
    assert all(label in shown for label in labels)
