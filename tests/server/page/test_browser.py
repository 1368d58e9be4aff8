"""The page of `manylabel export --web` in a real browser: a model in onnxruntime-web, without a server of ours."""

import base64
import functools
import http.server
import json
import os
import shutil
import subprocess
import tarfile
import threading

import msgspec
import numpy as np
import pytest
from PIL import ExifTags, Image
from selenium.webdriver.common.by import By
from selenium.webdriver.support.wait import WebDriverWait
from typer.testing import CliRunner

from manylabel.builtin import sample_photos
from manylabel.cli.main import app
from manylabel.cli.models import RUNTIME_FILES, RUNTIME_VERSION
from manylabel.images import prepare
from manylabel.inference import open_engine
from manylabel.types import InputSpec
from sample_files import encode, photo

pytestmark = pytest.mark.slow

TOLERANCE = 1e-5  # of scores, from the same pixels


@pytest.fixture(scope="module")
def runtime(tmp_path_factory):
    """The files of onnxruntime-web, from npm."""
    if shutil.which("npm") is None:
        missing = "npm is not installed, so no model was run in a browser"
        if os.environ.get("MANYLABEL_REQUIRE_BROWSER") == "1":
            pytest.fail(missing)
        pytest.skip(missing)
    folder = tmp_path_factory.mktemp("npm")
    name = f"onnxruntime-web@{RUNTIME_VERSION}"
    subprocess.run(["npm", "pack", name], cwd=folder, check=True, capture_output=True, timeout=240)
    (archive,) = folder.glob("*.tgz")
    with tarfile.open(archive) as files:
        for file in RUNTIME_FILES:
            (folder / file).write_bytes(files.extractfile(f"package/dist/{file}").read())
    return folder


@pytest.fixture(scope="module")
def site(tiny_model, tmp_path_factory):
    """A page as the command writes it, without onnxruntime-web."""
    folder = tmp_path_factory.mktemp("exported")
    paths = [folder / "model.onnx", folder / "site"]
    command = ["export", "--model", tiny_model, "--out", paths[0], "--web", paths[1], "--fixed-size"]
    result = CliRunner().invoke(app, list(map(str, command)), catch_exceptions=False)
    assert result.exit_code == 0
    assert f"npm pack onnxruntime-web@{RUNTIME_VERSION}" in result.output
    return paths[1]


@pytest.fixture(scope="module")
def address(site):
    class Files(http.server.SimpleHTTPRequestHandler):
        extensions_map = http.server.SimpleHTTPRequestHandler.extensions_map | {".mjs": "text/javascript"}

        def log_message(self, *_):
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Files, directory=site))
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}/"
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture
def page(browser, address, site, runtime):
    for file in RUNTIME_FILES:
        shutil.copy(runtime / file, site / file)
    browser.get_log("performance")
    browser.get(address)
    until(browser, lambda: browser.find_element(By.ID, "model").text)
    return browser


def until(browser, found):
    return WebDriverWait(browser, 60, poll_frequency=0.05).until(lambda _: found())


def call(browser, content, script):
    """Return the value of an expression about `file`, in the page."""
    wrapped = (
        "const done = arguments[arguments.length - 1];"
        "const bytes = Uint8Array.from(atob(arguments[0]), (each) => each.charCodeAt(0));"
        f"const file = new File([bytes], 'image'); ({script}).then(done, (error) => done(String(error)))"
    )
    return browser.execute_async_script(wrapped, base64.b64encode(content).decode())


def test_without_onnxruntime_web_the_page_says_so(browser, address, site):
    for file in RUNTIME_FILES:
        (site / file).unlink(missing_ok=True)
    browser.get(address)
    until(browser, lambda: "onnxruntime-web is missing" in browser.find_element(By.ID, "status").text)


def test_images_that_arrive_while_the_model_is_loading_wait_for_it(page, site, address, tmp_path):
    (tmp_path / "photo.png").write_bytes(encode(photo(90, 70), "PNG"))
    hold = "const open = fetch; fetch = (name) => new Promise((done) => { release = () => done(open(name)); });"
    script = page.execute_cdp_cmd("Page.addScriptToEvaluateOnNewDocument", {"source": f"var release; {hold}"})
    try:
        page.get(address)
        until(page, lambda: page.execute_script("return Boolean(release)"))
        page.find_element(By.ID, "files").send_keys(str(tmp_path / "photo.png"))
        until(page, lambda: page.find_elements(By.CSS_SELECTOR, "[aria-busy=true]"))
        assert page.find_element(By.ID, "status").text == "Loading the model …"
        page.execute_script("fetch = open; release()")
        until(page, lambda: page.find_elements(By.CSS_SELECTOR, "[aria-busy=false]"))
    finally:
        page.execute_cdp_cmd("Page.removeScriptToEvaluateOnNewDocument", script)
    (found,) = page.execute_script("return results()")
    (expected,) = open_engine(site / "model.onnx").predict(tmp_path / "photo.png")
    assert [tag["label"] for tag in found["tags"]] == [tag.label for tag in expected.tags]


def test_images_get_the_tags_of_predict_and_nothing_leaves_the_page(page, site, address, tmp_path):
    (tmp_path / "photo.png").write_bytes(encode(photo(90, 70), "PNG"))
    (tmp_path / "bad.jpg").write_bytes(b"no image")
    page.find_element(By.ID, "files").send_keys(f"{tmp_path / 'photo.png'}\n{tmp_path / 'bad.jpg'}")
    until(page, lambda: len(page.find_elements(By.CSS_SELECTOR, "[aria-busy=false]")) == 2)
    good, bad = page.execute_script("return results()")
    (expected,) = open_engine(site / "model.onnx").predict(tmp_path / "photo.png")
    assert [tag["label"] for tag in good["tags"]] == [tag.label for tag in expected.tags]
    assert "cannot read the image" in bad["error"]
    assert page.find_element(By.ID, "model").text.endswith(" · 2 labels")
    assert "never leave this device" in page.find_element(By.ID, "privacy").text
    assert not page.find_elements(By.TAG_NAME, "footer")
    events = [json.loads(entry["message"])["message"] for entry in page.get_log("performance")]
    requests = [event["params"]["request"] for event in events if event["method"] == "Network.requestWillBeSent"]
    assert f"{address}model.onnx" in [request["url"] for request in requests]
    assert {request["method"] for request in requests} == {"GET"}
    assert all(request["url"].startswith((address, "blob:", "data:")) for request in requests)


@pytest.mark.parametrize("path", sample_photos(), ids=lambda path: path.stem)
def test_scores_are_those_of_predict(page, site, path):
    content = encode(Image.open(path), "PNG")  # large JPEG files are decoded at a smaller scale by `predict` only
    found = {tag["label"]: tag["score"] for tag in call(page, content, "predict(file, { top: 10 })")["tags"]}
    (expected,) = open_engine(site / "model.onnx").predict(content).scores
    assert [found[label] for label in ("cat", "dog")] == pytest.approx(expected.tolist(), abs=TOLERANCE)


SPECS = {
    "squash": InputSpec(size=(64, 48)),
    "bilinear": InputSpec(size=(64, 64), interpolation="bilinear"),
    "crop": InputSpec(size=(33, 40), resize="crop", crop_fraction=0.875),
}


def noise(width, height):
    return Image.fromarray(np.random.default_rng(0).integers(0, 256, (height, width, 3), dtype=np.uint8))


TURNED = Image.Exif()
TURNED[ExifTags.Base.Orientation] = 6
FILES = {
    "wide": encode(noise(120, 75), "PNG"),
    "tall": encode(noise(75, 301), "PNG"),
    "strip": encode(noise(40, 700), "PNG"),
    "small": encode(noise(20, 31), "PNG"),
    "turned": encode(noise(90, 70), "JPEG", exif=TURNED),
    "transparent": encode(Image.new("RGBA", (70, 80), (200, 0, 0, 0)), "PNG"),
}


@pytest.mark.parametrize("spec", SPECS)
@pytest.mark.parametrize("name", FILES)
def test_pixels_are_those_of_predict(page, name, spec):
    given = msgspec.json.encode(SPECS[spec]).decode()
    found = call(page, FILES[name], f"prepare(file, {given}).then((pixels) => Array.from(pixels))")
    np.testing.assert_array_equal(np.array(found), prepare(FILES[name], SPECS[spec]).ravel())
