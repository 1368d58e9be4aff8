import numpy as np
import pytest
from PIL import Image

from manylabel.drawing import contact_sheet, draw_tags, figure_html

TAGS = [("cat", 0.98), ("собака", 0.7), ("a label that is much longer than any narrow image " * 5, 0.3), ("x", 0.0)]


@pytest.mark.parametrize("size", [(60, 300), (500, 20), (1280, 853)])
def test_tags_stand_below_the_image_and_inside_its_width(size):
    image = Image.effect_noise(size, 80).convert("RGB")
    drawn = draw_tags(image, TAGS)
    assert drawn.width == max(size[0], 240)
    left = (drawn.width - size[0]) // 2
    assert np.array_equal(np.asarray(drawn.crop((left, 0, left + size[0], size[1]))), np.asarray(image))
    bar = np.asarray(drawn.crop((0, size[1], *drawn.size)))
    assert (bar != 255).any()
    assert (bar[:, -4:] == 255).all()
    assert (bar[-4:] == 255).all()


def test_an_image_without_tags_says_so():
    untagged, tagged = (draw_tags(Image.new("RGB", (300, 200)), tags) for tags in ([], [("no tags", 0.0)]))
    assert untagged.size == tagged.size
    assert untagged.tobytes() != Image.new("RGB", untagged.size, "white").tobytes()


def test_a_sheet_holds_images_of_any_size():
    images = [Image.new("RGB", (100, 80), "red"), Image.new("RGB", (40, 120), "blue"), Image.new("RGB", (10, 10))]
    sheet = contact_sheet(images, columns=2)
    assert sheet.size == (8 + 2 * 108, 8 + 128 + 18)
    assert sheet.getpixel((8, 8)) == (255, 0, 0)
    assert sheet.getpixel((8 + 108, 8)) == (0, 0, 255)
    assert sheet.getpixel((8, 8 + 128)) == (0, 0, 0)
    assert contact_sheet([]).size == (16, 8)


def test_html_is_escaped_and_needs_no_other_file():
    page = figure_html('a/"><b>.jpg', Image.new("RGB", (8, 8)), [("<i>", 0.5)], error=None)
    assert "<b>" not in page
    assert "<i>" not in page
    assert "&lt;i&gt; 0.50" in page
    assert page.count("src=") == page.count('src="data:image/jpeg;base64,') == 1
    assert "cannot be read: it is empty" in figure_html("a.jpg", None, [], error="it is empty")
