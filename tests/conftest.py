"""What several test files share: settings of property tests, a cache, a port, and a browser, where there is one."""

import os
import shutil
import socket

import pytest
from hypothesis import settings

# Machines differ and CI is busy: no test fails because it was slow, and every run tries the same examples.
settings.register_profile("manylabel", deadline=None, derandomize=True)
settings.load_profile("manylabel")


@pytest.hookimpl(tryfirst=True)  # before tests are chosen by their marks
def pytest_collection_modifyitems(items):
    """Mark whatever starts a browser as slow."""
    for item in items:
        if "browser" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.slow)


@pytest.fixture(autouse=True, scope="session")
def own_cache(tmp_path_factory):
    """A cache for the tests and the processes that they start, so that they leave the user's alone."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MANYLABEL_CACHE", str(tmp_path_factory.mktemp("cache")))
        yield


@pytest.fixture(scope="session")
def free_port():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return free.getsockname()[1]


@pytest.fixture(scope="session")
def colour_file(tmp_path_factory):
    """An exported model whose scores are the fractions of red, green and blue."""
    from colour_model import write_colour_model

    return write_colour_model(tmp_path_factory.mktemp("colours") / "colours.onnx")


@pytest.fixture(scope="session")
def tiny_model(tmp_path_factory):
    """The folder of a tiny model with two labels."""
    from manylabel import Classifier, heads

    model = Classifier.create(
        "test_resnet", head=heads.LinearClassifier, labels=["cat", "dog"], pretrained=False, image_size=64
    )
    model.thresholds = (0.4, 0.6)
    return model.save_pretrained(tmp_path_factory.mktemp("tiny") / "model")


@pytest.fixture(scope="session")
def browser(tmp_path_factory):
    """Chromium, driven by selenium, without a network; it logs what it requests and what goes wrong."""
    chromium, driver = shutil.which("chromium") or shutil.which("chromium-browser"), shutil.which("chromedriver")
    if not (chromium and driver):
        missing = "Chromium and chromedriver are not both installed, so the pages were not tried in a browser"
        if os.environ.get("MANYLABEL_REQUIRE_BROWSER") == "1":
            pytest.fail(missing)
        pytest.skip(missing)
    from selenium import webdriver

    options = webdriver.ChromeOptions()
    options.binary_location = chromium
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    for flag in (
        "--headless=new",
        "--no-sandbox",
        "--disable-gpu",
        "--disable-quic",
        "--no-first-run",
        "--disable-background-networking",
        "--disable-component-update",
        "--disable-sync",
        f"--user-data-dir={tmp_path_factory.mktemp('chromium')}",
    ):
        options.add_argument(flag)
    window = webdriver.Chrome(options=options, service=webdriver.ChromeService(executable_path=driver))
    yield window
    window.quit()
