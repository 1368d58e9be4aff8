"""The pages, as text and in a browser."""

from dataclasses import replace

import numpy as np
import pytest
from selenium.webdriver.common.by import By

from manylabel.data import scenes
from manylabel.evaluation import ScoredImages, compare, comparison_page, evaluate, evaluation_page
from manylabel.types import BadImage


@pytest.fixture(scope="module")
def dataset():
    return scenes(24)


@pytest.fixture(scope="module")
def models(dataset):
    targets, _ = dataset.targets.dense()
    generator = np.random.default_rng(0)
    return [
        replace(
            ScoredImages.from_arrays(
                (weight * targets + (1 - weight) * generator.random(targets.shape)).clip(0, 1),
                targets,
                labels=dataset.labels,
                names=[dataset.images.name(index) for index in range(len(dataset))],
                model=name,
            ),
            areas=dataset.areas,
        )
        for name, weight in (("weak <b>", 0.1), ("strong", 0.5))
    ]


def table(page, head):
    """Return the table with this head as rows of text."""
    for frame in page.find_elements(By.TAG_NAME, "table"):
        if head in frame.find_element(By.TAG_NAME, "thead").text:
            rows = frame.find_elements(By.CSS_SELECTOR, "tbody tr")
            return [[cell.text for cell in row.find_elements(By.TAG_NAME, "td")] for row in rows]
    raise AssertionError(head)


def test_the_page_of_an_evaluation_opens_from_disk_and_reads_right(browser, tmp_path, dataset, models):
    found = evaluate(models[1], metrics=["all"], draws=50)
    browser.get_log("browser")
    browser.get(evaluation_page(found, dataset).write(tmp_path / "page.html").as_uri())
    assert browser.find_element(By.TAG_NAME, "h1").text == "Evaluation of strong"
    assert browser.find_element(By.CSS_SELECTOR, ".tiles b").text == f"{100 * found.metrics['mAP'].value:.1f}"
    metrics = {row[0]: row[1] for row in table(browser, "meaning")}
    assert metrics["one-error"] == f"{100 * found.metrics['one_error'].value:.1f} %"
    assert metrics["coverage"] == f"{round(found.metrics['coverage'].value, 2):g}"
    labels = table(browser, "average precision")
    assert len(labels) == len(dataset.labels)
    rated = [float(row[2].split()[0]) for row in labels if row[2]]
    assert rated == sorted(rated)
    images = browser.find_elements(By.CSS_SELECTOR, ".images img")
    assert len(images) == 24
    assert all(image.get_property("naturalWidth") > 0 for image in images)
    assert len(browser.find_elements(By.CSS_SELECTOR, "svg")) == 5
    assert browser.get_log("browser") == []


def test_no_page_is_wider_than_a_phone(browser, tmp_path, dataset, models):
    browser.set_window_size(500, 900)  # the narrowest that Chromium makes
    pages = (
        evaluation_page(evaluate(models[1], draws=30), dataset),
        comparison_page(compare(*models, draws=30), dataset),
    )
    for number, page in enumerate(pages):
        browser.get(page.write(tmp_path / f"{number}.html").as_uri())
        size = "document.documentElement.scrollWidth - document.documentElement.clientWidth"
        assert browser.execute_script(f"return {size}") == 0


def test_the_page_of_a_comparison_opens_from_disk_and_reads_right(browser, tmp_path, dataset, models):
    found = compare(*models, draws=100)
    browser.get_log("browser")
    browser.get(comparison_page(found, dataset).write(tmp_path / "page.html").as_uri())
    assert browser.find_element(By.TAG_NAME, "h1").text == "strong against weak <b>"
    assert "significantly higher mAP" in browser.find_element(By.CSS_SELECTOR, ".note.good").text
    first = table(browser, "verdict")[0]
    assert first[:2] == ["mAP", f"{100 * found.metrics['mAP'].first:.1f} %"]
    assert first[-1] == "better"
    assert browser.get_log("browser") == []


@pytest.mark.slow
def test_the_page_warns_of_what_was_left_out(dataset, models):
    bad = BadImage(3, "scene<3>.jpg", "it is empty")
    targets = models[0].targets.clone()
    targets[:, 1:] = False
    one_left = replace(models[0], targets=targets, bad=(bad,), notes=("Beware.",))
    html = evaluation_page(evaluate(one_left, draws=0), dataset).html()
    assert "1 image could not be evaluated: scene&lt;3&gt;.jpg (it is empty)" in html
    assert f"{len(dataset.labels) - 1} labels without results" in html
    assert "Beware." in html
    assert "No intervals: the bootstrap was turned off." in html


@pytest.mark.slow
def test_a_image_that_is_gone_leaves_its_caption(dataset, models):
    from manylabel.data import Files

    gone = replace(dataset, images=Files("nowhere", models[0].names))
    html = evaluation_page(evaluate(models[0], draws=0), gone).html()
    assert html.count("no image</span>") == 24


@pytest.mark.slow
def test_a_thousand_labels_still_make_a_page_that_can_be_read(dataset):
    generator = np.random.default_rng(0)
    labels = [f"label {number}" for number in range(1000)]
    scored = ScoredImages.from_arrays(generator.random((24, 1000)), generator.random((24, 1000)) < 0.2, labels=labels)
    many = replace(dataset.select_labels([]), labels=scored.labels, targets=_targets(scored), areas=None)
    html = evaluation_page(evaluate(scored, draws=0), many).html()
    assert "Shown: the first 20 and the last 20 of" in html
    assert len(html) < 3_000_000


def _targets(scored):
    from scipy.sparse import csr_array

    from manylabel.targets import Targets

    return Targets(csr_array(scored.targets.numpy()))
