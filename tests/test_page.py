"""Pages: everything inside one file, everything escaped, tables that sort."""

import base64
import io
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
from PIL import Image
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.support.wait import WebDriverWait

import manylabel
from manylabel import page
from manylabel.errors import ConfigError, OutputExistsError
from manylabel.page import ACCENT, Fraction, Page, Thumbnail, new_figure, plural

NASTY = "<script>alert('x')</script> & \"quotes\""


def drawing(name="a"):
    figure, axes = new_figure()
    axes.bar([name, "b"], [1, 2], color=ACCENT)
    return figure


def full_page(text="plain"):
    image = Image.new("RGB", (300, 200), "orange")
    rows = [[text, 10, Fraction(0.1)], ["b", 9, None], ["a", 100, Fraction(1.0)]]
    parts = [
        page.heading(text),
        page.tiles([("5", text, text)]),
        page.note(text, "warning"),
        page.table([f"label {text}", "images", "fraction"], rows),
        page.columns(*(page.figure(drawing(text), f"{place} {text}") for place in ("First", "Second"))),
        page.thumbnails([Thumbnail.of(image, text), Thumbnail(b"", text)], title=text),
        page.section(text, page.text(text)),
    ]
    return Page(f"Title {text}", text, parts)


def test_everything_is_escaped():
    html = full_page(NASTY).html()
    assert "<script>alert" not in html
    assert html.count("<script>") == 1
    assert 'aria-label="First &lt;script&gt;' in html


def test_nothing_is_requested_from_anywhere():
    html = full_page().html()
    assert "default-src 'none'" in html
    addresses = set(re.findall(r"""(?:src|href)=["']([^"']{0,20})""", html)) | set(re.findall(r"url\((.{0,5})", html))
    assert addresses
    assert all(address.startswith(("data:", "#")) for address in addresses)


def test_two_drawings_share_no_ids():
    ids = re.findall(r'id="([^"]+)"', page.columns(page.figure(drawing(), "one"), page.figure(drawing(), "two")))
    assert len(ids) == len(set(ids)) > 1


@pytest.mark.slow
def test_the_same_page_is_the_same_text():
    assert full_page().html() == full_page().html()


def test_labels_with_dollars_and_rare_letters_are_drawn_as_they_are():
    figure, axes = new_figure()
    axes.text(0.5, 0.5, r"$\nonsense$ 猫")
    axes.set_title("$5 and $6")
    html = page.figure(figure, "caption")
    assert r"$\nonsense$ 猫" in html
    assert "$5 and $6" in html


def test_a_thumbnail_is_a_small_jpeg():
    html = Thumbnail.of(Image.new("RGBA", (3000, 1000), (255, 0, 0, 255)), "red", size=(100, 50)).html()
    encoded = re.search(r"base64,([^\"]+)", html).group(1)
    thumbnail = Image.open(io.BytesIO(base64.b64decode(encoded)))
    assert (thumbnail.format, thumbnail.size) == ("JPEG", (100, 33))


def test_a_row_with_a_cell_too_many_is_refused():
    with pytest.raises(ConfigError, match=r"2 cells \(a, b\), got 3 in row 1"):
        page.table(["a", "b"], [[1, 2], [1, 2, 3]])


def test_a_name_that_is_not_utf8_does_not_spoil_the_page(tmp_path):
    name = b"caf\xe9.jpg".decode("utf-8", "surrogateescape")
    path = Page(name, name, [page.text(name)]).write(tmp_path / "page.html")
    assert "caf?.jpg" in path.read_text(encoding="utf-8")


def test_writing_overwrites_only_when_asked(tmp_path):
    path = Page("one", "", []).write(tmp_path / "deep" / "page.html")
    with pytest.raises(OutputExistsError):
        Page("two", "", []).write(path)
    Page("two", "", []).write(path, overwrite=True)
    assert "<title>two</title>" in path.read_text(encoding="utf-8")


def column(browser, position):
    return [row.text for row in browser.find_elements(By.CSS_SELECTOR, f"tbody td:nth-child({position})")]


@pytest.fixture
def opened(browser, tmp_path):
    browser.get_log("performance")
    browser.get_log("browser")
    browser.get(full_page("c").write(tmp_path / "page.html").as_uri())
    return browser


def test_a_table_sorts_by_click(opened):
    heads = opened.find_elements(By.CSS_SELECTOR, "th button")
    heads[1].click()
    assert column(opened, 2) == ["100", "10", "9"]
    heads[1].click()
    assert column(opened, 2) == ["9", "10", "100"]
    assert opened.find_elements(By.TAG_NAME, "th")[1].get_attribute("aria-sort") == "ascending"
    heads[0].click()
    assert column(opened, 1) == ["a", "b", "c"]
    assert opened.find_elements(By.TAG_NAME, "th")[1].get_attribute("aria-sort") is None


def test_a_table_sorts_by_keyboard_and_keeps_empty_cells_last(opened):
    opened.find_element(By.CSS_SELECTOR, ".frame").send_keys(Keys.TAB)
    opened.switch_to.active_element.send_keys(Keys.TAB)
    opened.switch_to.active_element.send_keys(Keys.TAB)
    opened.switch_to.active_element.send_keys(Keys.ENTER)
    assert column(opened, 3) == ["100.0 %", "10.0 %", ""]
    opened.switch_to.active_element.send_keys(Keys.SPACE)
    assert column(opened, 3) == ["10.0 %", "100.0 %", ""]


def test_signed_text_sorts_by_its_number(browser, tmp_path):
    rows = [[name, f"{value:+.1f} to +20.0"] for name, value in (("a", -10.0), ("b", 2.0), ("c", 10.0), ("d", -2.0))]
    browser.get(Page("t", "", [page.table(["label", "change"], rows)]).write(tmp_path / "page.html").as_uri())
    browser.find_elements(By.CSS_SELECTOR, "th button")[1].click()
    assert column(browser, 1) == ["a", "d", "b", "c"]


def test_a_browser_requests_nothing_else_and_has_nothing_to_complain_about(opened):
    events = [json.loads(entry["message"])["message"] for entry in opened.get_log("performance")]
    requests = [event["params"]["request"]["url"] for event in events if event["method"] == "Network.requestWillBeSent"]
    assert requests[0].startswith("file:")
    assert all(address.startswith("data:") for address in requests[1:])
    assert opened.get_log("browser") == []


def test_nothing_is_wider_than_a_phone(opened):
    opened.set_window_size(500, 900)  # the narrowest that Chromium makes
    width = opened.execute_script("return document.documentElement.scrollWidth - document.documentElement.clientWidth")
    assert width == 0


def test_a_table_wider_than_a_phone_becomes_cards_that_still_sort(browser, tmp_path):
    heads = ["label", *(f"a long head {number}" for number in range(7)), "images"]
    rows = [[name, *(Fraction(0.5) for _ in range(7)), count] for name, count in (("a", 2), ("b", 3), ("c", 1))]
    path = Page("Wide", "", [page.section("Folded", page.table(heads, rows))]).write(tmp_path / "wide.html")
    size = {"width": 390, "height": 844, "deviceScaleFactor": 1, "mobile": True}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    try:
        browser.get(path.as_uri())
        browser.find_element(By.TAG_NAME, "summary").click()
        WebDriverWait(browser, 10).until(lambda _: browser.find_elements(By.CSS_SELECTOR, ".cards"))
        frame = browser.find_element(By.CLASS_NAME, "frame")
        assert browser.execute_script("return arguments[0].scrollWidth - arguments[0].clientWidth", frame) == 0
        browser.find_elements(By.CSS_SELECTOR, "th button")[-1].click()
        assert column(browser, 1) == ["b", "a", "c"]
        shown = "return getComputedStyle(document.querySelector('td:last-child'), '::before').content"
        assert "images" in browser.execute_script(shown)
    finally:
        browser.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})


def test_counts_and_numbers_are_written_right():
    assert [plural(count, "image") for count in (0, 1, 2, 1000)] == ["0 images", "1 image", "2 images", "1,000 images"]
    html = page.table(["a", "b"], [[-0.0, Fraction(-0.0)], [-0.0001, Fraction(0.0001)]])
    assert "-0 " not in html
    assert ">-0<" not in html
    assert "-0.0 %" not in html


@pytest.mark.parametrize("ticks", ["a", "a name that is much longer than the others"])
def test_the_title_of_an_axis_is_never_cut_off(ticks):
    figure, axes = new_figure(width=4.0)
    axes.barh([ticks], [1])
    axes.set_xlabel("a title that is far too long for a drawing of four inches, and yet has to be read whole")
    page.figure(figure, "")
    figure.draw_without_rendering()
    title = axes.xaxis.label.get_window_extent()
    assert title.x0 >= 0
    assert title.x1 <= figure.bbox.x1
    assert title.y0 >= 0
    assert "\n" in axes.get_xlabel()


@pytest.mark.slow
def test_drawing_is_what_imports_matplotlib():
    code = "import sys, manylabel.page, manylabel.metrics; sys.exit(bool({'matplotlib', 'scipy'} & set(sys.modules)))"
    source = str(Path(manylabel.__file__).parents[1])
    assert subprocess.run([sys.executable, "-c", code], check=False, env={"PYTHONPATH": source}).returncode == 0


def test_a_long_table_is_shown_in_full_and_can_be_folded_away():
    short, long = (page.table(["row"], [[row] for row in range(count)]) for count in (100, 101))
    assert short.startswith('<div class="frame"')
    assert long.startswith("<details open><summary>101 rows</summary>")
    assert "max-height" not in Page("a", "", []).html()
