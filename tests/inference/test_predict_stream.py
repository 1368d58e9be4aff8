import os
import resource
import subprocess
import sys

import numpy as np
import pytest
from PIL import Image

from colour_model import SPEC, write_colour_model
from manylabel.builtin import sample_photos
from manylabel.errors import ConfigError, ModelFormatError
from manylabel.inference import open_engine, predict_stream
from manylabel.predictions import TagChoice
from sample_files import encode

RED = Image.new("RGB", (40, 30), (255, 51, 0))


def test_names_what_is_in_images_of_every_kind(colour_file, tmp_path):
    RED.save(tmp_path / "red.png")
    engine = open_engine(colour_file)
    images = [RED, encode(RED, "PNG"), np.asarray(RED), tmp_path / "red.png", str(tmp_path / "red.png")]
    results = engine.predict(images, batch_size=2)
    assert [result.tags for result in results] == [(("red", 1.0),)] * 5
    assert [result.name for result in results[:3]] == ["image 0", "image 1", "image 2"]
    assert engine.predict(RED).top(2) == [(("red", 1.0), ("green", 0.2))]


def test_a_bad_image_keeps_its_place_and_says_why(colour_file):
    first, bad, last = open_engine(colour_file).predict([RED, b"", RED])
    assert (first.error, bad.error, last.error) == (None, "it is empty (0 bytes)", None)
    assert first.tags == last.tags != bad.tags
    assert open_engine(colour_file).predict([b""])[0].tags == ()


def test_many_files_are_tagged_as_one_by_one(colour_file, tmp_path):
    names = [str(tmp_path / f"{number}.png") for number in range(7)]
    for number, name in enumerate(names):
        Image.new("RGB", (20, 20), (36 * number, 255 - 36 * number, 0)).save(name)
    engine = open_engine(colour_file)
    batches = list(predict_stream(engine, names, batch_size=3))
    assert [len(batch) for batch in batches] == [3, 3, 1]
    choice = TagChoice(top=3)
    assert [image for batch in batches for image in batch.tagged(choice)] == engine.predict(names).tagged(choice)


@pytest.mark.slow
def test_an_exported_model_runs_without_torch(colour_file, tmp_path):
    RED.save(tmp_path / "red.png")
    code = (
        "import sys; from manylabel.inference import open_engine, predict_stream; "
        f"engine = open_engine({str(colour_file)!r}); "
        f"(batch,) = predict_stream(engine, [{str(tmp_path / 'red.png')!r}]); "
        "assert batch[0].tags[0].label == 'red'; sys.exit(bool({'torch', 'polars', 'scipy'} & set(sys.modules)))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


@pytest.mark.slow
def test_the_first_predict_ever_answers_soon(tmp_path):
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    environment = {**os.environ, "MANYLABEL_CACHE": str(tmp_path), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "manylabel", "predict", str(sample_photos()[1])]
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=environment)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    assert "cat 1.00" in done.stdout
    assert not done.stderr  # nothing to export, nothing to wait for
    seconds = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    assert seconds < 5  # 1 on an idle machine; importing torch alone takes 3 more


@pytest.mark.slow
def test_importing_inference_loads_no_heavy_library():
    code = (
        "import sys, manylabel.inference; print({'torch', 'polars', 'scipy', 'timm', 'onnxruntime'} & set(sys.modules))"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "set()\n"


def test_files_that_are_not_ours_are_refused(tmp_path):
    (tmp_path / "noise.onnx").write_bytes(b"noise")
    write_colour_model(tmp_path / "strange.onnx", spec=None)
    for name, words in (("gone", "there is no file"), ("noise", "cannot be opened"), ("strange", "has no labels")):
        with pytest.raises(ModelFormatError, match=words):
            open_engine(tmp_path / f"{name}.onnx")


def test_an_exported_model_keeps_its_labels_and_engine(colour_file):
    assert open_engine(colour_file).spec.labels == SPEC.labels
    for settings in ({"labels": ["cat"]}, {"engine": "torch"}):
        with pytest.raises(ConfigError, match="runs in onnxruntime on the CPU, with its own labels"):
            open_engine(colour_file, **settings)
