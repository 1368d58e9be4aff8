import re
import shutil

import pytest
from PIL import Image
from typer.testing import CliRunner

from manylabel.backbone import Backbone
from manylabel.cli.main import app
from manylabel.errors import ConfigError, OutputExistsError
from manylabel.explain import METHODS
from manylabel.image_files import list_images
from tiny_runs import make_model


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("explain")
    make_model("linear", labels=["cat", "dog"]).save_pretrained(folder / "first" / "model")
    make_model("csra", labels=["cat", "dog"]).save_pretrained(folder / "second")
    Image.effect_noise((90, 60), 90).convert("RGB").save(folder / "photo.jpg")
    return folder


def run(*arguments):
    return CliRunner().invoke(app, ["explain", *map(str, arguments)], catch_exceptions=False)


def test_a_image_is_explained_to_a_file(folder, tmp_path):
    out = tmp_path / "dog.png"
    result = run(folder / "photo.jpg", "--model", folder / "second", "--label", "dog", "--out", out)
    assert result.exit_code == 0
    assert result.stdout.startswith("dog ")
    assert result.stdout.endswith(f"Wrote {out}\n")
    assert out.read_bytes().startswith(b"\x89PNG")
    with pytest.raises(OutputExistsError):
        run(folder / "photo.jpg", "--model", folder / "second", "--out", out)


@pytest.mark.slow
def test_models_methods_and_blocks_multiply(folder, tmp_path):
    models = ("--model", folder / "first" / "model", "--model", folder / "second")
    methods = ("--label", "cat", "--method", "cam", "--method", "grad_cam", "--blocks", "0,-1")
    lines = run(folder / "photo.jpg", *models, *methods, "--out", tmp_path / "a.png").stdout.splitlines()
    assert [line.split(" ")[0] for line in lines[:-1]] == ["first:"] * 3 + ["second:"] * 3
    assert sum("grad_cam, block 0" in line for line in lines) == 2


@pytest.mark.slow
def test_all_blocks_are_those_of_each_model(folder, tmp_path):
    make_model("linear", labels=["cat"], backbone="test_vit", image_size=160).save_pretrained(tmp_path / "other")
    models = ("--model", folder / "second", "--model", tmp_path / "other")
    arguments = ("--label", "cat", "--blocks", "all", "--out", tmp_path / "a.png")
    lines = run(folder / "photo.jpg", *models, *arguments).stdout.splitlines()[:-1]
    counts = [sum(line.startswith(f"{name}: ") for line in lines) for name in ("second", "other")]
    assert counts == [4, Backbone("test_vit", pretrained=False).num_stages]
    assert counts[1] != 4


@pytest.mark.slow
def test_models_of_the_same_name_are_all_shown(folder, tmp_path):
    for place in ("a", "b"):
        make_model("linear", labels=["cat", "dog"]).save_pretrained(tmp_path / place / "same")
    models = [part for place in ("a", "b") for part in ("--model", tmp_path / place / "same")]
    lines = run(folder / "photo.jpg", *models, "--label", "cat", "--out", tmp_path / "a.png").stdout.splitlines()
    assert [line.startswith(str(tmp_path / place / "same")) for line, place in zip(lines, "ab", strict=False)] == [
        True
    ] * 2


@pytest.mark.slow
def test_heat_maps_go_to_the_current_folder_and_are_no_images_of_it(folder, tmp_path, monkeypatch):
    for name in ("a.jpg", "b.jpg"):
        shutil.copy(folder / "photo.jpg", tmp_path / name)
    monkeypatch.chdir(tmp_path)
    for _ in range(2):  # the second time, the heat maps of the first are in the folder
        result = run(".", "--model", folder / "second", "--label", "cat", "--overwrite")
        assert result.stdout.count("Wrote") == 2
    assert sorted(path.name for path in tmp_path.glob("*.png")) == ["a.explained.png", "b.explained.png"]
    assert list(list_images(["."])) == ["./a.jpg", "./b.jpg"]
    assert sorted(list_images(["*.*"])) == ["a.jpg", "b.jpg"]


@pytest.mark.slow
def test_several_images_go_to_a_folder(folder, tmp_path):
    shutil.copy(folder / "photo.jpg", tmp_path / "other.jpg")
    images = (folder / "photo.jpg", tmp_path / "other.jpg")
    run(*images, "--model", folder / "second", "--label", "cat", "--out", tmp_path / "maps")
    assert sorted(path.name for path in (tmp_path / "maps").iterdir()) == ["other.explained.png", "photo.explained.png"]
    with pytest.raises(ConfigError, match=r"--out must be a folder for 2 images, got maps\.png"):
        run(*images, "--out", "maps.png")
    with pytest.raises(ConfigError, match="several images have the same name"):
        run(folder / "photo.jpg", f"{folder}/../{folder.name}/photo.jpg")


def test_blocks_that_are_no_numbers_are_refused(folder, tmp_path):
    with pytest.raises(ConfigError, match="numbers such as 0,1,-1, or all, got 'some'"):
        run(folder / "photo.jpg", "--model", folder / "second", "--blocks", "some", "--out", tmp_path / "a.png")


@pytest.mark.slow
def test_teachers_stand_beside_their_student(folder, tmp_path):
    run_folder = tmp_path / "distilled"
    for name, labels in (("co-01", ["cat"]), ("co-02", ["dog"]), ("dis-01", ["dog"])):
        make_model("linear", labels=labels).save_pretrained(run_folder / "teachers" / name / "model")
    make_model("linear", labels=["cat", "dog"]).save_pretrained(run_folder / "model")
    shown = run(
        folder / "photo.jpg", "--model", run_folder, "--teachers", "--label", "dog", "--out", tmp_path / "a.png"
    )
    assert [line.partition(":")[0] for line in shown.stdout.splitlines()[:-1]] == [
        "co teachers",
        "dis teachers",
        "distilled",
    ]
    with pytest.raises(ConfigError, match="--teachers needs the folder of a self_distillation run"):
        run(folder / "photo.jpg", "--model", folder / "second", "--teachers", "--out", tmp_path / "b.png")


def test_help_lists_every_method():
    text = re.sub(r"[\s│]", "", run("--help").stdout)  # without the table's borders, at which words are broken
    assert all(method in text for method in METHODS)
