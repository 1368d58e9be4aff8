import threading
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from itertools import count

import numpy as np
import pytest

import manylabel.image_files as image_files
import manylabel.inference.pipeline as pipeline
from manylabel.errors import ConfigError
from manylabel.images import prepare
from manylabel.inference.pipeline import prepare_batches
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
