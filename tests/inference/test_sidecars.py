import xml.etree.ElementTree as ElementTree
from dataclasses import replace
from urllib.parse import unquote

import pytest
from PIL import Image

from manylabel.data import load
from manylabel.inference.sidecars import copy_by_tag, write_sidecar
from manylabel.predictions import ImagePrediction
from manylabel.types import Tag


@pytest.fixture
def image(tmp_path):
    (tmp_path / "photo.jpg").write_bytes(b"one")
    return ImagePrediction(str(tmp_path / "photo.jpg"), (Tag("cat", 0.9), Tag("rock & <roll>", 0.8)))


def test_keywords_are_what_photo_programs_read(image, tmp_path):
    assert write_sidecar(image, "xmp")
    root = ElementTree.fromstring((tmp_path / "photo.xmp").read_text(encoding="utf-8"))
    names = {"dc": "http://purl.org/dc/elements/1.1/", "rdf": "http://www.w3.org/1999/02/22-rdf-syntax-ns#"}
    items = root.findall(".//dc:subject/rdf:Bag/rdf:li", names)
    assert [item.text for item in items] == ["cat", "rock & <roll>"]


def test_a_sidecar_that_is_there_stays(image, tmp_path):
    (tmp_path / "photo.txt").write_text("mine")
    assert not write_sidecar(image, "txt")
    assert (tmp_path / "photo.txt").read_text() == "mine"
    assert write_sidecar(image, "txt", overwrite=True)
    assert "cat" in (tmp_path / "photo.txt").read_text(encoding="utf-8")


def test_what_another_photo_program_wrote_is_never_replaced(image, tmp_path):
    (tmp_path / "photo.xmp").write_text("<x:xmpmeta>crops and colours</x:xmpmeta>")
    assert not write_sidecar(image, "xmp", overwrite=True)
    assert "crops" in (tmp_path / "photo.xmp").read_text()
    (tmp_path / "photo.xmp").unlink()
    assert write_sidecar(image, "xmp")
    assert write_sidecar(replace(image, tags=(Tag("dog", 1),)), "xmp", overwrite=True)  # ours is
    assert "dog" in (tmp_path / "photo.xmp").read_text(encoding="utf-8")


def test_images_that_share_a_stem_do_not_share_a_sidecar(image, tmp_path):
    (tmp_path / "photo.png").write_bytes(b"two")
    assert write_sidecar(image, "txt")
    assert write_sidecar(ImagePrediction(str(tmp_path / "photo.png"), (Tag("dog", 1),)), "txt")
    assert (tmp_path / "photo.jpg.txt").read_text().startswith("cat")
    assert (tmp_path / "photo.png.txt").read_text() == "dog\n"


def test_bad_and_fetched_images_have_neither_sidecars_nor_copies(tmp_path):
    for image in (ImagePrediction(str(tmp_path / "a.jpg"), error="gone"), ImagePrediction("http://x.org/a.jpg")):
        assert write_sidecar(image, "txt")
        assert copy_by_tag(image, tmp_path / "copies") == []
    assert list(tmp_path.iterdir()) == []


def test_a_image_is_copied_for_each_of_its_tags_once(image, tmp_path):
    expected = [tmp_path / "copies" / folder / "photo.jpg" for folder in ("cat", "rock & %3Croll%3E")]
    assert copy_by_tag(image, tmp_path / "copies") == expected
    assert copy_by_tag(image, tmp_path / "copies") == expected
    assert [path.read_bytes() for path in expected] == [b"one", b"one"]


def test_images_of_the_same_name_do_not_replace_each_other(image, tmp_path):
    copy_by_tag(image, tmp_path / "copies")
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "photo.jpg").write_bytes(b"other")
    (copy,) = copy_by_tag(ImagePrediction(str(tmp_path / "other" / "photo.jpg"), (Tag("cat", 1),)), tmp_path / "copies")
    assert (copy.name, copy.read_bytes()) == ("photo (2).jpg", b"other")


STRANGE = (
    "a/b",
    "a\\b",
    "a|b",
    "%2F",
    "x" * 300,
    "é" * 300,
    "x" * 299 + "y",
    ".hidden",
    "..",
    "no tags",
    "end. ",
    "CON",
)


def test_strange_labels_have_folders_of_their_own_that_are_read_back(tmp_path):
    Image.new("RGB", (8, 8)).save(tmp_path / "photo.png")
    image = ImagePrediction(str(tmp_path / "photo.png"), tuple(Tag(label, 0.9) for label in STRANGE))
    copies = copy_by_tag(image, tmp_path / "copies")
    assert len(set(copies)) == len(STRANGE)
    assert {path.parent.parent for path in copies} == {tmp_path / "copies"}
    assert set(load(f"folder:{tmp_path / 'copies'}").labels) == set(STRANGE)


def test_control_characters_do_not_break_keywords(image, tmp_path):
    label = "bell\x07 and \ud800 and %41"
    write_sidecar(replace(image, tags=(Tag(label, 1),)), "xmp")
    (item,) = ElementTree.fromstring((tmp_path / "photo.xmp").read_text(encoding="utf-8")).iter(
        "{http://www.w3.org/1999/02/22-rdf-syntax-ns#}li"
    )
    assert unquote(item.text, errors="surrogatepass") == label


def test_a_image_without_tags_has_its_own_folder(tmp_path):
    (tmp_path / "photo.jpg").touch()
    (copy,) = copy_by_tag(ImagePrediction(str(tmp_path / "photo.jpg")), tmp_path / "copies")
    assert copy.parent.name == "no tags"
