"""The page in a real browser: uploads, the slider, heat maps, new tags, errors, a phone, the keyboard."""

import json
from dataclasses import replace

import numpy as np
import pytest
import torch
from PIL import Image
from selenium.webdriver.common.action_chains import ActionChains
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.support.wait import WebDriverWait

from colour_model import SPEC, write_colour_model
from manylabel import Classifier, heads
from manylabel.classifier.typed_labels import TypedLabel
from manylabel.label_text import TAG_COLUMNS, join_labels
from manylabel.predictions import InferenceSpec
from manylabel.server import ServedModel, create_app
from manylabel.text import StoredVectors, TextVocabulary
from manylabel.types import LabelSpace
from sample_files import encode, photo
from server_apps import listening, slow_app

pytestmark = pytest.mark.slow

SECONDS = 60


@pytest.fixture(scope="module")
def images(tmp_path_factory):
    folder = tmp_path_factory.mktemp("images")
    for number in range(3):
        (folder / f"photo {number}.jpg").write_bytes(encode(photo(80 + number, 60), "JPEG"))
    (folder / "<b>bad.jpg").write_bytes(b"<html>no image</html>")
    return folder


@pytest.fixture(scope="module")
def address(tiny_model):
    with listening(create_app(ServedModel.open(tiny_model, engine="torch"))) as (address, _):
        yield address


@pytest.fixture
def page(browser, address):
    browser.set_window_size(1200, 900)
    open_page(browser, address)
    return browser


def open_page(browser, address):
    browser.get_log("browser")
    browser.get_log("performance")
    browser.get(address)
    until(browser, lambda: text(browser, "#model"))


def until(browser, found):
    return WebDriverWait(browser, SECONDS, poll_frequency=0.05).until(lambda _: found())


def text(browser, selector):
    return texts(browser, selector)[0]


def texts(browser, selector):
    """What is shown, read in one step: the page may draw its lists again between two."""
    return browser.execute_script(
        "return [...document.querySelectorAll(arguments[0])].map((each) => each.innerText)", selector
    )


def upload(browser, *paths):
    before = len(browser.find_elements(By.TAG_NAME, "article"))
    browser.find_element(By.ID, "files").send_keys("\n".join(map(str, paths)))
    until(browser, lambda: len(browser.find_elements(By.CSS_SELECTOR, "[aria-busy=false]")) == before + len(paths))


def slide(browser, value):
    script = "arguments[0].value = arguments[1]; arguments[0].dispatchEvent(new Event('input'))"
    browser.execute_script(script, browser.find_element(By.ID, "threshold"), value)


def test_several_images_get_tags_and_the_slider_chooses_them(page, images):
    upload(page, images / "photo 0.jpg", images / "photo 1.jpg")
    assert texts(page, "article h2") == ["photo 0.jpg", "photo 1.jpg"]
    slide(page, 0)
    assert sorted(texts(page, "article:first-child .tag b")) == ["cat", "dog"]
    assert text(page, "#threshold-shown") == "tags at or above 0 %"
    slide(page, 100)
    assert texts(page, ".tag b") == []
    assert "Most likely:" in text(page, "article .hint")
    page.find_element(By.ID, "own").click()
    assert text(page, "#threshold-shown") == "tags at or above the model's thresholds"
    assert page.find_element(By.ID, "threshold").get_attribute("aria-valuetext") == text(page, "#threshold-shown")


def test_a_model_of_one_label_an_image_shows_the_most_confident_whatever_its_score(browser, images, tmp_path):
    one_label = replace(SPEC, thresholds=None, single_label=True)
    model = ServedModel.open(write_colour_model(tmp_path / "colours.onnx", one_label))
    Image.new("RGB", (40, 40), (90, 40, 40)).save(tmp_path / "dim.png")
    with listening(create_app(model)) as (address, _):
        open_page(browser, address)
        upload(browser, tmp_path / "dim.png")
        assert (texts(browser, ".tag b"), texts(browser, ".tag span")) == (["red"], ["35 %"])
        assert (text(browser, "#threshold-shown"), text(browser, "#own")) == (
            "the most confident tag",
            "Most confident only",
        )
        slide(browser, 10)
        assert len(texts(browser, ".tag b")) == 3
        slide(browser, 50)
        assert texts(browser, ".tag b") == []


def test_the_tags_are_those_of_the_api(page, images, address):
    import httpx2

    upload(page, images / "photo 2.jpg")
    slide(page, 0)
    files = {"images": (images / "photo 2.jpg").read_bytes()}
    (answer,) = httpx2.post(f"{address}/v1/predict?top=2", files=files, timeout=60).json()["images"]
    shown = list(zip(texts(page, ".tag b"), texts(page, ".tag span"), strict=True))
    assert shown == [(tag["label"], f"{100 * tag['score']:.0f} %") for tag in answer["tags"]]


def test_a_tag_shows_its_heat_map_on_hover_and_keeps_it_on_click(page, images):
    upload(page, images / "photo 0.jpg")
    slide(page, 0)
    tag = page.find_element(By.CSS_SELECTOR, "button.tag")
    name = tag.find_element(By.TAG_NAME, "b").text
    ActionChains(page).move_to_element(tag).perform()
    until(page, lambda: page.find_elements(By.CSS_SELECTOR, "article.heated"))
    assert text(page, "figcaption").startswith(name)
    heat = page.find_element(By.CSS_SELECTOR, "img.heat")
    assert heat.get_attribute("src").startswith("data:image/jpeg")
    assert page.execute_script("return arguments[0].naturalWidth", heat) == 80
    away = page.find_element(By.TAG_NAME, "h1")
    ActionChains(page).move_to_element(away).perform()
    until(page, lambda: not page.find_elements(By.CSS_SELECTOR, "article.heated"))
    tag.click()
    assert tag.get_attribute("aria-pressed") == "true"
    ActionChains(page).move_to_element(away).perform()
    assert page.find_elements(By.CSS_SELECTOR, "article.heated")


def test_a_bad_image_says_why_and_is_shown_as_text(page, images):
    upload(page, images / "<b>bad.jpg", images / "photo 0.jpg")
    assert texts(page, "article h2") == ["<b>bad.jpg", "photo 0.jpg"]
    assert "it is not an image in a supported format" in text(page, ".problem")
    assert "1 could not be tagged" in text(page, "#status")
    assert page.find_element(By.CLASS_NAME, "frame").size["height"] < 80, "no empty box where there is no image"
    page.find_element(By.CSS_SELECTOR, "article .remove").click()
    assert texts(page, "article h2") == ["photo 0.jpg"]


def test_results_can_be_downloaded(page, images):
    upload(page, images / "photo 0.jpg", images / "<b>bad.jpg")
    slide(page, 0)
    good, bad = page.execute_script("return results()")
    assert {tag["label"] for tag in good["tags"]} == {"cat", "dog"}
    assert "not an image" in bad["error"]
    lines = page.execute_script("return csv()").split("\r\n")
    assert lines[0] == ",".join(TAG_COLUMNS)
    odd = ["=1+1", "a|b", "50 %41", "bell\x07"]
    assert [page.execute_script("return joinLabels(arguments[0])", odd[n:]) for n in range(4)] == [
        join_labels(odd[n:]) for n in range(4)
    ]
    assert lines[1].startswith('"photo 0.jpg","')
    page.execute_script("window.saved = []; download = (...given) => saved.push(given)")
    for name in ("json", "csv"):
        page.find_element(By.ID, name).click()
    saved = page.execute_script("return saved")
    assert [name for name, _, _ in saved] == ["tags.json", "tags.csv"]
    assert json.loads(saved[0][2])[0][TAG_COLUMNS[0]] == "photo 0.jpg"


def test_tags_can_be_copied(page, images):
    upload(page, images / "photo 0.jpg")
    slide(page, 0)
    page.execute_script("navigator.clipboard.writeText = async (text) => { window.copied = text; }")
    page.find_element(By.ID, "copy").click()
    until(page, lambda: "clipboard" in text(page, "#status"))
    assert page.execute_script("return copied").startswith("photo 0.jpg\t")


@pytest.mark.parametrize("event", ["drop", "paste"])
def test_images_can_be_dropped_and_pasted(page, event):
    script = """
        const data = new DataTransfer();
        const letters = Uint8Array.from(atob(arguments[1]), (letter) => letter.charCodeAt(0));
        data.items.add(new File([letters], "given.png", { type: "image/png" }));
        const given = arguments[0] === "paste"
            ? new ClipboardEvent("paste", { clipboardData: data, bubbles: true })
            : new DragEvent("drop", { dataTransfer: data, bubbles: true });
        document.body.dispatchEvent(given);
    """
    import base64

    content = encode(Image.new("RGB", (20, 10), "red"), "PNG")
    page.execute_script(script, event, base64.b64encode(content).decode())
    until(page, lambda: page.find_elements(By.CSS_SELECTOR, "[aria-busy=false]"))
    assert texts(page, "article h2") == ["given.png"]
    assert not page.find_elements(By.CSS_SELECTOR, ".problem")


def test_everything_is_reached_by_keyboard(page, images):
    upload(page, images / "photo 0.jpg")
    slide(page, 0)
    page.execute_script("document.getElementById('files').focus()")
    reached = []
    while len(reached) < 12 and "tag" not in reached:
        ActionChains(page).send_keys(Keys.TAB).perform()
        active = page.switch_to.active_element
        reached.append(active.get_attribute("id") or active.get_attribute("class"))
    assert reached == ["threshold", "own", "copy", "json", "csv", "clear", "remove", "tag"]
    until(page, lambda: page.find_elements(By.CSS_SELECTOR, "article.heated"))  # focus shows it, too
    page.switch_to.active_element.send_keys(Keys.ENTER)
    assert page.switch_to.active_element.get_attribute("aria-pressed") == "true"
    page.find_element(By.ID, "threshold").send_keys(Keys.ARROW_RIGHT)
    assert text(page, "#threshold-shown") == "tags at or above 1 %"


def test_fits_a_phone_follows_dark_mode_and_asks_nobody_else(page, images, address):
    upload(page, images / "photo 0.jpg", images / "<b>bad.jpg")
    light = page.execute_script("return getComputedStyle(document.body).backgroundColor")
    page.execute_cdp_cmd(
        "Emulation.setDeviceMetricsOverride", {"width": 390, "height": 844, "deviceScaleFactor": 1, "mobile": True}
    )
    page.execute_cdp_cmd(
        "Emulation.setEmulatedMedia", {"features": [{"name": "prefers-color-scheme", "value": "dark"}]}
    )
    try:
        assert page.execute_script("return document.documentElement.scrollWidth") == 390
        assert page.execute_script("return getComputedStyle(document.body).backgroundColor") != light
    finally:
        page.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
        page.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": []})
    events = [json.loads(entry["message"])["message"] for entry in page.get_log("performance")]
    requests = [event["params"]["request"]["url"] for event in events if event["method"] == "Network.requestWillBeSent"]
    assert f"{address}/v1/predict?top=100" in requests
    assert all(url.startswith((address, "blob:", "data:")) for url in requests)
    complaints = [entry["message"] for entry in page.get_log("browser") if "422" not in entry["message"]]
    assert [words for words in complaints if "blob:" not in words] == []  # the bad image cannot be drawn either


def test_the_api_can_be_tried_in_its_docs_which_ask_nobody_else(browser, address):
    browser.get_log("browser")
    browser.get_log("performance")
    browser.get(f"{address}/docs")
    until(browser, lambda: len(texts(browser, ".opblock")) >= 6)
    assert "/v1/predict" in text(browser, "main")
    browser.find_element(By.CSS_SELECTOR, "#operations-default-health_healthz_get button").click()
    until(browser, lambda: browser.find_elements(By.CSS_SELECTOR, ".opblock .execute"))
    browser.find_element(By.CSS_SELECTOR, ".opblock .execute").click()
    until(browser, lambda: '"status": "ok"' in "".join(texts(browser, ".live-responses-table")))
    events = [json.loads(entry["message"])["message"] for entry in browser.get_log("performance")]
    requests = [event["params"]["request"]["url"] for event in events if event["method"] == "Network.requestWillBeSent"]
    assert f"{address}/healthz" in requests
    assert all(url.startswith((address, "blob:", "data:")) for url in requests)
    assert browser.get_log("browser") == []
    dark = {"features": [{"name": "prefers-color-scheme", "value": "dark"}]}
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", dark)
    try:
        until(browser, lambda: browser.find_elements(By.CSS_SELECTOR, "html.dark-mode"))
    finally:
        browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": []})


@pytest.fixture
def open_model(tmp_path, monkeypatch):
    """A served model that scores new labels, those that its encoder knows."""
    torch.manual_seed(0)
    encoder = StoredVectors(["tram", "fire truck"], torch.randn(2, 8))
    monkeypatch.setattr("manylabel.text.open_encoder", lambda name: encoder)
    model = Classifier.create(
        "test_resnet",
        head=heads.TextMap,
        labels=["cat", "dog"],
        head_settings={"text_vectors": torch.randn(2, 8)},
        pretrained=False,
        image_size=64,
    )
    model.text = TextVocabulary("npz:secret.npz", ("{label}",), trained=("cat", "dog"))
    return ServedModel.open(model.save_pretrained(tmp_path / "open"), engine="torch")


def test_new_tags_are_asked_for_where_the_model_takes_them(browser, images, open_model):
    with listening(create_app(open_model)) as (address, _):
        open_page(browser, address)
        upload(browser, images / "photo 0.jpg")
        slide(browser, 0)
        field = browser.find_element(By.ID, "new-tag")
        field.send_keys("tram, fire truck" + Keys.ENTER)
        until(browser, lambda: len(texts(browser, ".tag b")) == 4)
        assert sorted(texts(browser, ".tag b")) == ["cat", "dog", "fire trucknew", "tramnew"]
        field.send_keys("unicorn" + Keys.ENTER)
        until(browser, lambda: "cannot encode these labels" in text(browser, "#status"))
        assert "secret" not in text(browser, "body")
        assert texts(browser, "#chips button") == ["tram", "fire truck"]
        assert browser.find_element(By.CSS_SELECTOR, "#chips button").accessible_name == "Remove tram"
        assert len(texts(browser, ".tag b")) == 4
        field.send_keys("x" * 101 + Keys.ENTER)
        until(browser, lambda: "tags of at most 100 characters can be typed" in text(browser, "#status"))
        assert texts(browser, "#chips button") == ["tram", "fire truck"]


def test_new_tags_have_thresholds_of_their_own_and_unknown_ones_are_named(browser, images, open_model, monkeypatch):
    def ask(model, pixels, labels):
        spec = InferenceSpec(LabelSpace(labels), model.spec.input_spec, thresholds=(0.3, 1.0))
        unknown = [TypedLabel("sunset", known=False, nearest=("lighter", "umbrella"))]
        return np.full((len(pixels), 2), 0.4, dtype=np.float32), spec, unknown

    monkeypatch.setattr(ServedModel, "ask", ask)
    with listening(create_app(open_model)) as (address, _):
        open_page(browser, address)
        upload(browser, images / "photo 0.jpg")
        browser.find_element(By.ID, "new-tag").send_keys("tram, sunset" + Keys.ENTER)
        until(browser, lambda: "sunset (nearest: lighter, umbrella)" in text(browser, "#status"))
        assert [name for name in texts(browser, ".tag b") if name.endswith("new")] == ["tramnew"]
        assert texts(browser, "#chips .unknown") == ["sunset"]
        browser.find_element(By.CSS_SELECTOR, "#chips .unknown").click()
        until(browser, lambda: "sunset" not in text(browser, "#status"))


def test_a_model_that_takes_no_new_tags_does_not_offer_them(page, images):
    upload(page, images / "photo 0.jpg")
    assert not page.find_element(By.ID, "new-tags").is_displayed()
    assert page.find_element(By.ID, "threshold").is_displayed()


def test_a_key_is_asked_for_and_a_large_file_is_not_sent(browser, images, tmp_path):
    _, app = slow_app(api_key="secret", max_body_bytes=3000)
    large = tmp_path / "large.png"
    large.write_bytes(encode(photo(), "PNG") + bytes(5000))
    with listening(app) as (address, _):
        browser.get(address)
        until(browser, lambda: browser.find_element(By.ID, "key").is_displayed())
        browser.find_element(By.ID, "key-text").send_keys("secret" + Keys.ENTER)
        until(browser, lambda: text(browser, "#model") == "colours · 3 labels")
        upload(browser, large, images / "photo 0.jpg")
        assert "the limit is 0.0 MB" in text(browser, ".problem")
        assert not browser.find_elements(By.CSS_SELECTOR, "button.tag")  # it cannot be explained
