import errno
import json
import os
import shutil
import signal
import subprocess
import sys
import time

import pytest
from PIL import Image
from typer.testing import CliRunner

from colour_model import InferenceSpec, write_colour_model
from manylabel.builtin import sample_photos
from manylabel.cli.main import app
from manylabel.errors import ConfigError, DataError, DiskFullError, ModelFormatError, OutputExistsError
from manylabel.types import InputSpec, LabelSpace


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
