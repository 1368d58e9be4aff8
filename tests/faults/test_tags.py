"""Files of tags under faults: a full disk, a kill, two writers."""

import json
import os
import signal
import subprocess
import sys

import polars as pl
import pytest
from PIL import Image
from typer.testing import CliRunner

from colour_model import write_colour_model
from faults.disk import full_after
from manylabel.cli.main import app
from manylabel.data import load
from manylabel.errors import BusyError, DiskFullError
from manylabel.predictions import ImagePrediction
from manylabel.tag_files import open_output
from manylabel.types import Tag

KINDS = ("jsonl", "csv", "parquet")
IMAGES = [ImagePrediction(f"{number}.jpg", (Tag("cat", 0.9), Tag("dog", 0.8))) for number in range(200)]


def names_in(path):
    if path.suffix == ".jsonl":
        return [json.loads(line)["image"] for line in path.read_text().splitlines()]
    frame = pl.read_parquet(path) if path.suffix == ".parquet" else pl.read_csv(path)
    return frame["image"].to_list()


def write_all(writer, images, batch=8):
    for start in range(0, len(images), batch):
        writer.write(images[start : start + batch])


@pytest.mark.parametrize("kind", KINDS)
def test_no_row_is_lost_or_doubled_on_a_full_disk(tmp_path, kind):
    for limit in range(200, 4500, 777):
        path = tmp_path / str(limit) / f"tags.{kind}"
        writer, _ = open_output(path)
        with full_after(limit), pytest.raises(DiskFullError, match="--resume"):
            write_all(writer, IMAGES)
        writer.close()
        writer, done = open_output(path, resume=True)
        assert len(done) % 8 == 0
        write_all(writer, [image for image in IMAGES if image.name not in done])
        writer.close()
        assert names_in(path) == [image.name for image in IMAGES]


@pytest.mark.parametrize("kind", KINDS)
def test_a_second_writer_is_refused_while_the_first_is_open(tmp_path, kind):
    path = tmp_path / f"tags.{kind}"
    writer, _ = open_output(path)
    writer.write(IMAGES[:3])
    for settings in ({"resume": True}, {"overwrite": True}):
        with pytest.raises(BusyError, match=rf"tags\.{kind} is being written by process {os.getpid()}"):
            open_output(path, **settings)
    writer.close()
    writer, done = open_output(path, resume=True)
    writer.close()
    assert len(done) == 3
    assert [file.name for file in tmp_path.iterdir()] == [path.name]


KILLED = """
import os, signal, sys
from manylabel.predictions import ImagePrediction
from manylabel.tag_files import open_output
writer, _ = open_output(sys.argv[1])
for number in range(50):
    writer.write([ImagePrediction(f"{number}.jpg")])
os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_a_kill_loses_no_batch_that_was_written(tmp_path, kind):
    path = tmp_path / f"tags.{kind}"
    killed = subprocess.run(
        [sys.executable, "-c", KILLED, path], env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    )
    assert killed.returncode == -signal.SIGKILL
    writer, done = open_output(path, resume=True)
    writer.close()
    assert len(done) == 50
    assert names_in(path) == [f"{number}.jpg" for number in range(50)]
    assert [file.name for file in tmp_path.iterdir()] == [path.name]


def test_a_kill_between_a_part_and_its_journal_doubles_nothing(tmp_path):
    path = tmp_path / "tags.parquet"
    writer, _ = open_output(path)
    writer.write(IMAGES[:5])
    (journal,) = tmp_path.glob(".tags.parquet.part-*")
    rows = journal.read_bytes()
    writer.close()
    journal.write_bytes(rows)  # as if the kill came right after the part was moved into place
    writer, done = open_output(path, resume=True)
    writer.close()
    assert (len(done), len(names_in(path))) == (5, 5)


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return write_colour_model(tmp_path_factory.mktemp("model") / "colours.onnx")


def predict(*arguments):
    return CliRunner().invoke(app, ["predict", *map(str, arguments)], catch_exceptions=False)


def test_predict_on_a_full_disk_fails_and_resumes(model, tmp_path):
    (tmp_path / "photos").mkdir()
    for number in range(80):
        Image.new("RGB", (8, 8), "red").save(tmp_path / "photos" / f"{number}.png")
    out = tmp_path / "tags.jsonl"
    arguments = (tmp_path / "photos", "--model", model, "--out", out, "--workers", 0)
    with full_after(9000), pytest.raises(DiskFullError, match=r"tags\.jsonl: the disk is full.*--resume"):
        predict(*arguments)
    assert "images to" in predict(*arguments, "--resume").stderr
    assert len(set(names_in(out))) == len(names_in(out)) == 80


def test_counters_agree_with_what_happened(model, tmp_path):
    for number in range(3):
        Image.new("RGB", (8, 8), "red").save(tmp_path / f"{number}.png")
    (tmp_path / "bad.png").write_bytes(b"no image")
    out = tmp_path / "out" / "tags.csv"
    first = predict(tmp_path / "0.png", tmp_path / "bad.png", "--model", model, "--out", out)
    assert f"2 images to {out}, 1 failed\n" in first.stderr
    again = predict(tmp_path / "0.png", tmp_path / "1.png", "--model", model, "--out", out, "--resume")
    assert f"1 image to {out}, 1 skipped" in again.stderr
    assert load(f"csv:{out}").labels.names == ("red",)
