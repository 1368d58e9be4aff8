import os
import pickle
import resource
import subprocess
import sys
import threading
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from itertools import count

import numpy as np
import pytest
from PIL import Image

import manylabel.image_files as image_files
import manylabel.inference.pipeline as pipeline
from manylabel.builtin import sample_photos
from manylabel.errors import ConfigError
from manylabel.images import prepare
from manylabel.inference import open_engine, predict_stream
from manylabel.inference.pipeline import _Replica, prepare_batches
from manylabel.predictions import TagChoice
from manylabel.types import InputSpec
from sample_files import bad_files, encode, photo, write_files

SPEC = InputSpec(size=(16, 16))


def batches_of(names, spec, **settings):
    return prepare_batches(((name, name) for name in names), spec, **settings)


@pytest.fixture
def folder(tmp_path):
    write_files(tmp_path, {f"good{number}.jpg": encode(photo(40 + number, 30), "JPEG") for number in range(9)})
    write_files(tmp_path, {name: content for name, (content, _) in bad_files().items()})
    return tmp_path


@pytest.mark.parametrize("workers", [0, pytest.param(2, marks=pytest.mark.slow)])
def test_batches_come_in_order_with_reasons_for_what_is_bad(folder, workers):
    names = sorted(map(str, folder.iterdir()))
    batches = list(batches_of(names, SPEC, batch_size=4, num_workers=workers))
    assert [name for batch in batches for name in batch.names] == names
    reasons = dict(zip(names, (reason for batch in batches for reason in batch.errors), strict=True))
    assert {name for name, reason in reasons.items() if reason is None} == {n for n in names if "good" in n}
    good = [name for name, reason in reasons.items() if reason is None]
    expected = np.stack([prepare(name, SPEC) for name in good])
    assert np.array_equal(np.concatenate([batch.pixels for batch in batches]), expected)


def test_takes_names_only_as_they_are_needed():
    numbers = count()
    names = (f"{next(numbers)}.jpg" for _ in range(10**9))
    batches = batches_of(names, SPEC, batch_size=4)
    next(batches)
    assert next(numbers) <= 4 * 5
    batches.close()


def test_a_few_images_start_no_process(monkeypatch):
    monkeypatch.setattr(pipeline, "WorkerProcess", None)
    assert len(list(batches_of(["a.jpg"] * 8, SPEC, batch_size=4, num_workers=2))) == 2


@pytest.mark.slow
def test_an_image_that_kills_its_worker_is_named_and_the_others_go_on(monkeypatch):
    monkeypatch.setattr(pipeline, "TARGET", "deadly_decoder:decode_batch")
    names = [f"{number}.jpg" for number in range(9)]
    names[5] = "deadly.jpg"
    batches = list(batches_of(names, SPEC, batch_size=2, num_workers=1))
    assert [name for batch in batches for name in batch.names] == names
    reasons = [reason for batch in batches for reason in batch.errors]
    assert [place for place, reason in enumerate(reasons) if reason] == [5]
    assert "worker process that decoded it died" in reasons[5]
    assert sum(len(batch.pixels) for batch in batches) == 8


class QuietHandler(SimpleHTTPRequestHandler):
    def log_message(self, *_):
        pass


@pytest.mark.slow
def test_addresses_are_fetched_and_what_cannot_be_says_why(folder, monkeypatch):
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(QuietHandler, directory=folder)) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        address = f"http://127.0.0.1:{server.server_port}"
        (batch,) = batches_of([f"{address}/good0.jpg", f"{address}/gone.jpg", "http://127.0.0.1:9/a.jpg"], SPEC)
        assert np.array_equal(batch.pixels[0], prepare(folder / "good0.jpg", SPEC))
        assert batch.errors[1] == "it could not be fetched: HTTP 404"
        assert "refused" in batch.errors[2]
        (batch,) = batches_of([f"{address}/my photo.jpg", f"{address}/good0.jpg"], SPEC)
        assert "could not be fetched" in batch.errors[0]
        assert batch.errors[1] is None
        monkeypatch.setattr(image_files, "MAX_BYTES", 10)
        (batch,) = batches_of([f"{address}/good0.jpg"], SPEC)
        assert batch.errors == ("it has more than 10 bytes",)
        server.shutdown()


def test_a_malformed_address_ends_no_run(folder):
    names = [str(folder / "good0.jpg"), "http://[::1/a.jpg", str(folder / "good1.jpg")]
    (batch,) = batches_of(names, SPEC, num_workers=0)
    assert [reason is None for reason in batch.errors] == [True, False, True]


def test_rejects_wrong_settings():
    for settings in ({"batch_size": 0}, {"num_workers": -1}):
        with pytest.raises(ConfigError, match="at least 1"):
            next(batches_of(["a.jpg"], SPEC, **settings))


RED = Image.new("RGB", (40, 30), (255, 51, 0))


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
    assert "cat 0.99" in done.stdout
    assert not done.stderr  # nothing to export, nothing to wait for
    seconds = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    assert seconds < 5  # 1 on an idle machine; importing torch alone takes 3 more


@pytest.mark.slow
def test_importing_inference_loads_no_heavy_library():
    code = (
        "import sys, manylabel.inference; print({'torch', 'polars', 'scipy', 'timm', 'onnxruntime'} & set(sys.modules))"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "set()\n"


ODD_NAME = "caf\udce9.png" if sys.platform == "linux" else "cafe.png"  # only Linux lets a file name be any bytes


@pytest.mark.slow
def test_a_replica_tags_as_one_machine_does(colour_file, tmp_path):
    names = [f"{number}.png" for number in range(5)] + [ODD_NAME, "gone.png"]
    for number, name in enumerate(names[:-1]):
        Image.new("RGB", (30 + number, 20), (40 * number, 200, 255 - 40 * number)).save(tmp_path / name)
    replica = _Replica(partial(open_engine, colour_file), TagChoice(top=2), batch_size=3)
    with replica.pool:
        found = replica(pickle.loads(pickle.dumps([(name, str(tmp_path / name)) for name in names])))
    expected = open_engine(colour_file).predict([tmp_path / name for name in names]).tagged(TagChoice(top=2))
    assert [image.name for image in found] == names
    assert not any(len(image.labels) for image in found)  # only names and tags travel
    assert [(image.tags, image.error) for image in found] == [(each.tags, each.error) for each in expected]
