import struct
from pathlib import Path

import pytest
from PIL import Image

from conformance.reader_suite import Example, ReaderSuite, draw
from manylabel.data import load, xmp
from manylabel.data.readers.xmp import xmp_keywords
from manylabel.errors import DataError
from manylabel.inference.sidecars import write_sidecar
from manylabel.predictions import ImagePrediction
from manylabel.types import Tag

NAMES = {
    "dc:subject": "http://purl.org/dc/elements/1.1/",
    "lr:hierarchicalSubject": "http://ns.adobe.com/lightroom/1.0/",
    "digiKam:TagsList": "http://www.digikam.org/ns/1.0/",
}


def packet(**bags: list[str]) -> bytes:
    named = {name.replace("_", ":"): words for name, words in bags.items()}
    spaces = "".join(f' xmlns:{name.partition(":")[0]}="{address}"' for name, address in NAMES.items())
    items = "".join(
        f"<{name}><rdf:Bag>{''.join(f'<rdf:li>{word}</rdf:li>' for word in words)}</rdf:Bag></{name}>"
        for name, words in named.items()
    )
    rdf = 'xmlns:rdf="http://www.w3.org/1999/02/22-rdf-syntax-ns#"'
    body = f'<rdf:RDF {rdf}><rdf:Description rdf:about=""{spaces}>{items}</rdf:Description></rdf:RDF>'
    return f'<?xpacket begin=""?><x:xmpmeta xmlns:x="adobe:ns:meta/">{body}</x:xmpmeta><?xpacket end="w"?>'.encode()


class TestXmp(ReaderSuite):
    format = "xmp"
    reader = staticmethod(xmp)

    def build(self, tmp_path: Path) -> Example:
        root = tmp_path / "photos"
        draw(root / "a.png")
        (root / "a.xmp").write_bytes(packet(dc_subject=["dog", " Müller &amp; Sohn "]))
        draw(root / "new" / "b.png")
        (root / "new" / "b.png.xmp").write_bytes(packet(dc_subject=["cat", "dog"]))
        draw(root / "new" / "untagged.png")
        return Example(
            root,
            names=["a.png", "new/b.png"],
            labels=["Müller & Sohn", "cat", "dog"],
            values=[[1, 0, 1], [0, 1, 1]],
            known=[[1, 1, 1]] * 2,
        )

    def spoil(self, dataset):
        dataset.images[0].write_bytes(b"no image")


@pytest.mark.parametrize("ending", ["jpg", "png", "webp", "tiff"])
def test_reads_keywords_inside_a_photo(tmp_path, ending):
    content = packet(dc_subject=["dog"])
    photo = tmp_path / f"a.{ending}"
    if ending == "png":
        Image.new("RGB", (8, 8)).save(photo, pnginfo=png_text(content.decode()))
    elif ending == "tiff":
        Image.new("RGB", (8, 8)).save(photo, tiffinfo={700: content})
    else:
        Image.new("RGB", (8, 8)).save(photo, xmp=content)
    assert xmp(tmp_path).labels_of(0) == ["dog"]


def png_text(text: str):
    from PIL.PngImagePlugin import PngInfo

    info = PngInfo()
    info.add_itxt("XML:com.adobe.xmp", text)
    return info


def test_reads_iptc_keywords(tmp_path):
    Image.new("RGB", (8, 8)).save(tmp_path / "a.jpg")
    words = ("dog", "Bär")
    fields = b"".join(b"\x1c\x02\x19" + struct.pack(">H", len(word.encode())) + word.encode() for word in words)
    resource = (
        b"8BIM"
        + struct.pack(">H", 0x0404)
        + b"\0\0"
        + struct.pack(">L", len(fields))
        + fields
        + b"\0" * (len(fields) % 2)
    )
    segment = b"Photoshop 3.0\0" + resource
    jpeg = (tmp_path / "a.jpg").read_bytes()
    (tmp_path / "a.jpg").write_bytes(jpeg[:2] + b"\xff\xed" + struct.pack(">H", len(segment) + 2) + segment + jpeg[2:])
    assert xmp(tmp_path).labels_of(0) == ["Bär", "dog"]


@pytest.mark.parametrize(
    ("hierarchy", "labels"),
    [
        ("levels", ["animal", "dog", "holiday", "place", "rome"]),
        ("leaf", ["dog", "holiday", "rome"]),
        ("path", ["animal|dog", "holiday", "place|rome"]),
    ],
)
def test_hierarchical_keywords_are_levels_leaves_or_paths(tmp_path, hierarchy, labels):
    draw(tmp_path / "a.png")
    bags = {"lr_hierarchicalSubject": ["animal|dog"], "digiKam_TagsList": ["place/rome"]}
    (tmp_path / "a.xmp").write_bytes(packet(dc_subject=["animal", "dog", "holiday"], **bags))
    assert load(f"xmp:{tmp_path},hierarchy={hierarchy}").labels_of(0) == labels


def test_reads_back_the_sidecars_that_predict_writes(tmp_path):
    draw(tmp_path / "a.png")
    write_sidecar(ImagePrediction(str(tmp_path / "a.png"), (Tag("animal|dog", 0.9), Tag("A & <b>", 0.8))), "xmp")
    assert xmp(tmp_path, hierarchy="path").labels_of(0) == ["A & <b>", "animal|dog"]
    assert xmp(tmp_path, hierarchy="leaf").labels_of(0) == ["A & <b>", "dog"]


@pytest.mark.parametrize(("blank", "num_images", "num_known"), [("drop", 1, 1), ("negative", 2, 2), ("unknown", 2, 1)])
def test_photos_without_keywords_are_noted(tmp_path, blank, num_images, num_known):
    draw(tmp_path / "a.png")
    draw(tmp_path / "b.png")
    (tmp_path / "a.xmp").write_bytes(packet(dc_subject=["dog"]))
    dataset = xmp(tmp_path, blank=blank)
    assert (len(dataset), dataset.targets.known.tolist()) == (num_images, [num_known])
    assert dataset.notes[0].startswith("1 photos without keywords")


def test_a_folder_without_keywords_is_refused(tmp_path):
    draw(tmp_path / "a.png")
    with pytest.raises(DataError, match=r"no photo in .* has keywords; looked at 1 photos"):
        xmp(tmp_path)


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b'<!DOCTYPE x [<!ENTITY a "aaaa"><!ENTITY b "&a;&a;&a;">]><x>&b;</x>', "document type declaration"),
        (b'<!DOCTYPE x SYSTEM "file:///etc/passwd"><x/>', "document type declaration"),
        ('<!DOCTYPE x [<!ENTITY a "b">]><x>&a;</x>'.encode("utf-16"), "document type declaration"),
        (b"<x>", "not well-formed"),
        (b"<x>&a;</x>", "not well-formed"),
        (b"<x>" + b" " * 4_000_000 + b"</x>", "more than 4,000,000"),
        (packet(dc_subject=["y" * 20_000]), "a keyword of more than 10,000 characters"),
    ],
)
def test_hostile_xml_is_refused_and_costs_only_its_own_keywords(tmp_path, content, reason, caplog):
    with pytest.raises(DataError, match=reason):
        xmp_keywords(content)
    draw(tmp_path / "a.png")
    draw(tmp_path / "b.png")
    (tmp_path / "a.xmp").write_bytes(packet(dc_subject=["dog"]))
    (tmp_path / "b.xmp").write_bytes(content)
    caplog.set_level("WARNING", "manylabel")
    assert len(xmp(tmp_path)) == 1
    assert reason in caplog.text
