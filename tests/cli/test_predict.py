import errno
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time

import pytest
from PIL import Image
from typer.testing import CliRunner

from colour_model import InferenceSpec, write_colour_model
from manylabel.backbone import Backbone
from manylabel.builtin import sample_photos
from manylabel.cli.main import app
from manylabel.data import write_scenes
from manylabel.errors import ConfigError, DataError, DiskFullError, ModelFormatError, OutputExistsError
from manylabel.explain import METHODS
from manylabel.image_files import list_images
from manylabel.types import InputSpec, LabelSpace
from tiny_runs import make_model


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return write_colour_model(tmp_path_factory.mktemp("model") / "colours.onnx")


@pytest.fixture
def photos(tmp_path):
    folder = tmp_path / "photos"
    (folder / "inner").mkdir(parents=True)
    for name, colour in (("a.png", "red"), ("b.png", "black"), ("inner/c.png", "blue")):
        Image.new("RGB", (20, 10), colour).save(folder / name)
    (folder / "z.jpg").write_bytes(b"no image")
    return folder


def run(*arguments, **settings):
    return CliRunner().invoke(app, ["predict", *map(str, arguments)], catch_exceptions=False, **settings)


def rows(path):
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def test_tags_of_a_folder_are_printed_and_what_is_bad_is_named(model, photos):
    result = run(photos, "--model", model)
    assert result.exit_code == 0
    lines = result.stdout.splitlines()
    assert lines == [f"{photos}/a.png\tred 1.00", f"{photos}/b.png\t", f"{photos}/inner/c.png\tblue 1.00"]
    assert "z.jpg': it is not an image" in result.stderr


def test_a_file_of_tags_goes_on_where_it_was(model, photos, tmp_path):
    out = tmp_path / "tags.jsonl"
    assert run(photos / "a.png", "--model", model, "--out", out).exit_code == 0
    with pytest.raises(OutputExistsError, match="--overwrite"):
        run(photos, "--model", model, "--out", out)
    result = run(photos, "--model", model, "--out", out, "--resume")
    assert "3 images to" in result.stderr
    assert "1 skipped" in result.stderr
    assert [row["image"].rpartition("/")[2] for row in rows(out)] == ["a.png", "b.png", "c.png", "z.jpg"]
    assert "error" in rows(out)[3]


def test_a_list_is_read_from_the_standard_input(model, photos, tmp_path):
    out = tmp_path / "tags.jsonl"
    run("-", "--model", model, "--out", out, "--top", "1", input=f"{photos}/b.png\n\n{photos}/a.png\n")
    assert [row["tags"][0]["label"] for row in rows(out)] == ["red", "red"]


@pytest.mark.slow
def test_thresholds_are_a_number_or_those_of_the_model(model, photos, tmp_path):
    for threshold, count in (("0", 3), ("1", 1), ("tuned", 1)):
        out = tmp_path / f"{threshold}.jsonl"
        run(photos / "a.png", "--model", model, "--out", out, "--threshold", threshold)
        assert len(rows(out)[0]["tags"]) == count
    with pytest.raises(ConfigError, match=r"number in 0\.\.1 or 'tuned', got 'high'"):
        run(photos, "--model", model, "--threshold", "high")
    plain = write_colour_model(
        tmp_path / "plain.onnx", InferenceSpec(LabelSpace(["r", "g", "b"]), InputSpec(size=(8, 8)))
    )
    with pytest.raises(ConfigError, match="manylabel tune"):
        run(photos, "--model", plain, "--threshold", "tuned", "--out", tmp_path / "never.csv")
    assert not (tmp_path / "never.csv").exists()


def test_copies_and_sidecars_are_made(model, photos, tmp_path):
    result = run(photos, "--model", model, "--copy-to", tmp_path / "sorted", "--sidecar", "txt")
    assert result.exit_code == 0
    copies = sorted(str(path.relative_to(tmp_path / "sorted")) for path in (tmp_path / "sorted").glob("*/*"))
    assert copies == ["blue/c.png", "no tags/b.png", "red/a.png"]
    assert (photos / "inner" / "c.txt").read_text() == "blue\n"
    assert "3 existing sidecar files left unchanged" in run(photos, "--model", model, "--sidecar", "txt").stderr


def test_images_are_drawn_with_their_tags(model, photos, tmp_path):
    result = run(photos, "--model", model, "--draw", tmp_path / "drawn")
    assert result.exit_code == 0, result.output
    drawings = sorted((tmp_path / "drawn").iterdir())
    assert [path.name for path in drawings] == ["a.jpg", "b.jpg", "c.jpg"]
    with Image.open(drawings[0]) as drawing:
        assert drawing.height > 10  # the tags are below the image


def test_a_folder_that_cannot_be_written_to_does_not_end_the_run(model, photos, tmp_path):
    (photos / "a.txt").mkdir()
    (tmp_path / "sorted").mkdir()
    (tmp_path / "sorted" / "blue").write_text("no folder")
    out = tmp_path / "tags.jsonl"
    beside = ("--copy-to", tmp_path / "sorted", "--sidecar", "txt", "--overwrite")
    result = run(photos, "--model", model, "--out", out, *beside)
    assert result.exit_code == 0
    assert f"cannot write the sidecar of '{photos}/a.png': " in result.stderr
    assert f"cannot copy '{photos}/inner/c.png': " in result.stderr
    assert (photos / "inner" / "c.txt").read_text() == "blue\n"
    assert [[tag["label"] for tag in row["tags"]] for row in rows(out)[:3]] == [["red"], [], ["blue"]]


def test_a_full_disk_ends_the_run(model, photos, tmp_path, monkeypatch):
    def fail(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("manylabel.inference.sidecars.shutil.copy2", fail)
    with pytest.raises(DiskFullError, match="--resume"):
        run(photos, "--model", model, "--copy-to", tmp_path / "sorted")


def test_nothing_but_bad_images_is_a_failure(model, photos):
    assert run(photos / "z.jpg", photos / "gone.jpg", "--model", model).exit_code == 1


@pytest.mark.slow
def test_mistakes_are_told_before_anything_is_written(model, photos, tmp_path):
    out = tmp_path / "tags.jsonl"
    (tmp_path / "empty").mkdir()
    with pytest.raises(DataError, match="no images in"):
        run(tmp_path / "empty", "--model", model, "--out", out)
    with pytest.raises(ConfigError, match="--allow-urls"):
        run("http://127.0.0.1/a.jpg", "--model", model, "--out", out)
    with pytest.raises(ModelFormatError, match="no model 'builtin:nothing' ships"):
        run(photos, "--model", "builtin:nothing", "--out", out)
    with pytest.raises(ConfigError, match="set it with --out"):
        run(photos, "--model", model, "--resume")
    with pytest.raises(ConfigError, match="with its own labels"):
        run(photos, "--model", model, "--labels", "cat,dog")
    with pytest.raises(DataError, match=r"no file of labels 'missing.txt'"):
        run(photos, "--model", model, "--labels", "missing.txt")
    assert not out.exists()


@pytest.mark.slow
def test_a_killed_run_leaves_whole_rows_and_goes_on(model, tmp_path):
    folder, out = tmp_path / "many", tmp_path / "tags.jsonl"
    folder.mkdir()
    photo = shutil.copy(sample_photos()[0], tmp_path)
    for number in range(3000):
        os.link(photo, folder / f"{number:04}.jpg")
    command = [sys.executable, "-m", "manylabel", "predict", folder, "--model", model, "--out", out, "--workers", "0"]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    while process.poll() is None and not (out.exists() and out.stat().st_size):
        time.sleep(0.01)
    process.send_signal(signal.SIGKILL)
    process.wait()
    before = len(rows(out))
    assert 0 < before < 3000
    for path in sorted(folder.iterdir())[before + 50 :]:
        path.unlink()
    run(folder, "--model", model, "--out", out, "--resume", "--workers", "0")
    names = [row["image"] for row in rows(out)]
    assert names == [str(folder / f"{number:04}.jpg") for number in range(before + 50)]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("explain")
    make_model("linear", labels=["cat", "dog"]).save_pretrained(folder / "first" / "model")
    make_model("csra", labels=["cat", "dog"]).save_pretrained(folder / "second")
    Image.effect_noise((90, 60), 90).convert("RGB").save(folder / "photo.jpg")
    return folder


def run_explain(*arguments):
    return CliRunner().invoke(app, ["explain", *map(str, arguments)], catch_exceptions=False)


def test_a_image_is_explained_to_a_file(folder, tmp_path):
    out = tmp_path / "dog.png"
    result = run_explain(folder / "photo.jpg", "--model", folder / "second", "--label", "dog", "--out", out)
    assert result.exit_code == 0
    assert result.stdout.startswith("dog ")
    assert result.stdout.endswith(f"Wrote {out}\n")
    assert out.read_bytes().startswith(b"\x89PNG")
    with pytest.raises(OutputExistsError):
        run_explain(folder / "photo.jpg", "--model", folder / "second", "--out", out)


@pytest.mark.slow
def test_models_methods_and_blocks_multiply(folder, tmp_path):
    models = ("--model", folder / "first" / "model", "--model", folder / "second")
    methods = ("--label", "cat", "--method", "cam", "--method", "grad_cam", "--blocks", "0,-1")
    lines = run_explain(folder / "photo.jpg", *models, *methods, "--out", tmp_path / "a.png").stdout.splitlines()
    assert [line.split(" ")[0] for line in lines[:-1]] == ["first:"] * 3 + ["second:"] * 3
    assert sum("grad_cam, block 0" in line for line in lines) == 2


@pytest.mark.slow
def test_all_blocks_are_those_of_each_model(folder, tmp_path):
    make_model("linear", labels=["cat"], backbone="test_vit", image_size=160).save_pretrained(tmp_path / "other")
    models = ("--model", folder / "second", "--model", tmp_path / "other")
    arguments = ("--label", "cat", "--blocks", "all", "--out", tmp_path / "a.png")
    lines = run_explain(folder / "photo.jpg", *models, *arguments).stdout.splitlines()[:-1]
    counts = [sum(line.startswith(f"{name}: ") for line in lines) for name in ("second", "other")]
    assert counts == [4, Backbone("test_vit", pretrained=False).num_stages]
    assert counts[1] != 4


@pytest.mark.slow
def test_models_of_the_same_name_are_all_shown(folder, tmp_path):
    for place in ("a", "b"):
        make_model("linear", labels=["cat", "dog"]).save_pretrained(tmp_path / place / "same")
    models = [part for place in ("a", "b") for part in ("--model", tmp_path / place / "same")]
    lines = run_explain(
        folder / "photo.jpg", *models, "--label", "cat", "--out", tmp_path / "a.png"
    ).stdout.splitlines()
    assert [line.startswith(str(tmp_path / place / "same")) for line, place in zip(lines, "ab", strict=False)] == [
        True
    ] * 2


@pytest.mark.slow
def test_heat_maps_go_to_the_current_folder_and_are_no_images_of_it(folder, tmp_path, monkeypatch):
    for name in ("a.jpg", "b.jpg"):
        shutil.copy(folder / "photo.jpg", tmp_path / name)
    monkeypatch.chdir(tmp_path)
    for _ in range(2):  # the second time, the heat maps of the first are in the folder
        result = run_explain(".", "--model", folder / "second", "--label", "cat", "--overwrite")
        assert result.stdout.count("Wrote") == 2
    assert sorted(path.name for path in tmp_path.glob("*.png")) == ["a.explained.png", "b.explained.png"]
    assert list(list_images(["."])) == ["./a.jpg", "./b.jpg"]
    assert sorted(list_images(["*.*"])) == ["a.jpg", "b.jpg"]


@pytest.mark.slow
def test_several_images_go_to_a_folder(folder, tmp_path):
    shutil.copy(folder / "photo.jpg", tmp_path / "other.jpg")
    images = (folder / "photo.jpg", tmp_path / "other.jpg")
    run_explain(*images, "--model", folder / "second", "--label", "cat", "--out", tmp_path / "maps")
    assert sorted(path.name for path in (tmp_path / "maps").iterdir()) == ["other.explained.png", "photo.explained.png"]
    with pytest.raises(ConfigError, match=r"--out must be a folder for 2 images, got maps\.png"):
        run_explain(*images, "--out", "maps.png")
    with pytest.raises(ConfigError, match="several images have the same name"):
        run_explain(folder / "photo.jpg", f"{folder}/../{folder.name}/photo.jpg")


def test_blocks_that_are_no_numbers_are_refused(folder, tmp_path):
    with pytest.raises(ConfigError, match="numbers such as 0,1,-1, or all, got 'some'"):
        run_explain(folder / "photo.jpg", "--model", folder / "second", "--blocks", "some", "--out", tmp_path / "a.png")


@pytest.mark.slow
def test_teachers_stand_beside_their_student(folder, tmp_path):
    run_folder = tmp_path / "distilled"
    for name, labels in (("co-01", ["cat"]), ("co-02", ["dog"]), ("dis-01", ["dog"])):
        make_model("linear", labels=labels).save_pretrained(run_folder / "teachers" / name / "model")
    make_model("linear", labels=["cat", "dog"]).save_pretrained(run_folder / "model")
    shown = run_explain(
        folder / "photo.jpg", "--model", run_folder, "--teachers", "--label", "dog", "--out", tmp_path / "a.png"
    )
    assert [line.partition(":")[0] for line in shown.stdout.splitlines()[:-1]] == [
        "co teachers",
        "dis teachers",
        "distilled",
    ]
    with pytest.raises(ConfigError, match="--teachers needs the folder of a self_distillation run"):
        run_explain(folder / "photo.jpg", "--model", folder / "second", "--teachers", "--out", tmp_path / "b.png")


def test_help_lists_every_method():
    text = re.sub(r"[\s│]", "", run_explain("--help").stdout)  # without the table's borders, at which words are broken
    assert all(method in text for method in METHODS)


@pytest.mark.slow
def test_suggest_writes_a_table_to_fill_in(tmp_path, monkeypatch):
    monkeypatch.setenv("MANYLABEL_CACHE", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    table = write_scenes(tmp_path / "scenes", 40)
    header, *lines = table.read_text().splitlines()
    table.write_text("\n".join([header, *lines[:20]]) + "\n")
    (tmp_path / "scenes" / "broken.jpg").write_bytes(b"no image")

    def suggest(*words):
        words = ["suggest", str(table), "--images", "scenes", "--workers", "0", *words]
        return CliRunner().invoke(app, [*words, "--backbone", "offline:efficientnet_lite0"])

    found = suggest("--num-images", "15", "--out", "next.csv")
    assert found.exit_code == 0, found.output
    assert "\n15  " in found.stdout
    written = (tmp_path / "next.csv").read_text().splitlines()
    assert written[0] == "image,tags,predicted,uncertainty"
    images = {line.split(",")[0] for line in written[1:]}
    assert len(images) == 15
    assert images <= {f"scenes/{line.split(',')[0]}" for line in lines[20:]}
    again = suggest("--num-images", "15", "--out", "next.csv")
    assert isinstance(again.exception, OutputExistsError)
    assert isinstance(suggest("--num-images", "0").exception, SystemExit)
    refused = suggest("--out", "next.xml")
    assert "cannot write tags to next.xml" in str(refused.exception)
    assert refused.stdout == ""  # before any work
    tasks = suggest("--n", "2", "--out", "tasks.label_studio.json")
    assert tasks.exit_code == 0
    assert len(json.loads((tmp_path / "tasks.label_studio.json").read_text())) == 2
