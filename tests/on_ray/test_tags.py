"""Tagging on a real Ray of two CPUs; most of the time goes into starting Ray."""

import json
import os
import shutil
import sys

import polars as pl
import pytest
from PIL import Image
from typer.testing import CliRunner

from manylabel.cli.main import app
from manylabel.errors import ClusterError, ConfigError, MissingExtraError, ModelFormatError
from manylabel.inference import open_engine, predict_stream, tag_with_ray
from manylabel.on_ray import map_on_ray
from manylabel.predictions import TagChoice

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(600),  # on a busy machine Ray needs more than one attempt to start
    pytest.mark.filterwarnings("default"),  # Ray warns of its own code
]


ODD_NAME = "caf\udce9.png" if sys.platform == "linux" else "cafe.png"  # only Linux lets a file name be any bytes


@pytest.fixture(scope="module")
def photos(tmp_path_factory):
    """Good and bad images, among them one whose name is not Unicode where that can be, and the names of all."""
    folder = tmp_path_factory.mktemp("photos")
    names = [f"{number:02}.png" for number in range(19)] + [ODD_NAME]
    for number, name in enumerate(names):
        Image.new("RGB", (40 + number, 30), (12 * number, 255 - 12 * number, 7 * number)).save(folder / name)
    (folder / "broken.jpg").write_bytes(b"no image")
    return folder, [*names[:7], "broken.jpg", *names[7:], "gone.jpg"]


def here(model, names, *, choice, batch_size):
    batches = predict_stream(open_engine(model), names, batch_size=batch_size)
    return [image for batch in batches for image in batch.tagged(choice)]


def flat(batches):
    return [image for batch in batches for image in batch]


def test_tags_equal_those_of_one_machine(local_ray, colour_file, photos, monkeypatch):
    monkeypatch.chdir(photos[0])  # names need not be absolute
    settings = {"choice": TagChoice(threshold=0.1), "batch_size": 2}
    there = tag_with_ray(photos[1], model=os.path.relpath(colour_file), replicas=2, **settings)
    found = flat(there)
    assert found == here(colour_file, photos[1], **settings)
    assert [image.name for image in found if image.error] == ["broken.jpg", "gone.jpg"]
    assert local_ray.is_initialized()  # it was found running


def test_a_model_folder_is_exported_once_and_tags_the_same(local_ray, tiny_model, photos):
    names = [str(photos[0] / name) for name in photos[1]]
    found = flat(tag_with_ray(names, model=tiny_model, choice=TagChoice(top=2), batch_size=8))
    assert found == here(tiny_model, names, choice=TagChoice(top=2), batch_size=8)


@pytest.mark.parametrize("ending", ["jsonl", "csv", "parquet"])
def test_the_command_writes_what_it_writes_on_one_machine(ending, local_ray, colour_file, photos, tmp_path):
    files = tmp_path / f"local.{ending}", tmp_path / f"ray.{ending}"
    for file, flags in zip(files, ([], ["--executor", "ray", "--replicas", "1"]), strict=True):
        arguments = ["predict", photos[0], "--model", colour_file, "--out", file, *flags]
        result = CliRunner().invoke(app, [*map(str, arguments)], catch_exceptions=False)
        assert result.exit_code == 0
        assert "21 images to" in result.stderr
        assert "broken.jpg': it is not an image" in result.stderr
    if ending == "parquet":
        assert pl.read_parquet(files[0]).equals(pl.read_parquet(files[1]))
    else:
        assert files[0].read_bytes() == files[1].read_bytes()


def test_the_command_goes_on_where_it_was(local_ray, colour_file, photos, tmp_path):
    out = tmp_path / "tags.jsonl"
    base = ["predict", "--model", str(colour_file), "--out", str(out)]
    CliRunner().invoke(app, [*base, str(photos[0] / "00.png")], catch_exceptions=False)
    again = CliRunner().invoke(app, [*base, str(photos[0]), "--resume", "--executor", "ray"], catch_exceptions=False)
    assert "20 images to" in again.stderr
    rows = [json.loads(line)["image"] for line in out.read_text().splitlines()]
    assert len(set(rows)) == len(rows) == 21


def test_no_images_are_no_tags(local_ray, colour_file):
    assert list(tag_with_ray([], model=colour_file)) == []


def test_actors_that_cannot_open_the_model_are_an_error(local_ray, colour_file, tmp_path):
    model = shutil.copy(colour_file, tmp_path / "colours.onnx")
    batches = tag_with_ray(["a.png"], model=model)
    model.unlink()  # as on a machine that does not see the folder
    with pytest.raises(ClusterError, match="work on Ray failed"):
        next(batches)


def test_a_replica_that_dies_is_started_anew_and_its_items_are_tried_again(local_ray, tmp_path):
    def build():
        def work(number):
            mark = tmp_path / str(number)
            if number % 3 == 1 and not mark.exists():
                mark.touch()
                os._exit(1)
            return 10 * number

        return work

    assert list(map_on_ray(build, range(4), replicas=1)) == [0, 10, 20, 30]


def test_more_replicas_than_cpus_are_refused(local_ray, colour_file):
    with pytest.raises(ConfigError, match="replicas must be at most 2, one for each CPU, got 3"):
        next(tag_with_ray(["a.png"], model=colour_file, replicas=3))


def test_mistakes_show_before_anything_starts(colour_file, tmp_path, monkeypatch):
    out = tmp_path / "tags.jsonl"
    command = ["predict", "a.png", "--executor", "ray", "--model", str(tmp_path / "gone.onnx"), "--out", str(out)]
    with pytest.raises(ModelFormatError, match="there is no file"):
        CliRunner().invoke(app, command, catch_exceptions=False)
    assert not out.exists()
    with pytest.raises(ConfigError, match="batch_size and replicas must be at least 1, got 0"):
        tag_with_ray(["a.png"], model=colour_file, batch_size=0)
    with pytest.raises(ConfigError, match="need --executor ray"):
        CliRunner().invoke(app, ["predict", "a.png", "--replicas", "2"], catch_exceptions=False)
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(MissingExtraError, match=r'pip install "manylabel\[ray\]"'):
        tag_with_ray(["a.png"], model=colour_file)
