import pytest

from manylabel.data.readers.voc import voc_boxes
from manylabel.errors import DataError

OBJECT = """<object><name>{name}</name><difficult>{difficult}</difficult>
<bndbox><xmin>{box[0]}</xmin><ymin>{box[1]}</ymin><xmax>{box[2]}</xmax><ymax>{box[3]}</ymax></bndbox></object>"""


def write(folder, *objects, size="<size><width>200</width><height>100</height></size>"):
    file = folder / "a.xml"
    file.write_text(f"<annotation>{size}{''.join(objects)}</annotation>", encoding="utf-8")
    return file


def test_boxes_are_shares_of_the_picture(tmp_path):
    dog = OBJECT.format(name="dog", difficult=0, box=(1, 1, 200, 100))
    cat = OBJECT.format(name="cat", difficult=1, box=(101, 51, 150, 75))
    assert voc_boxes(write(tmp_path, dog, cat)) == [
        ("dog", (0, 0, 1, 1), False),
        ("cat", (0.5, 0.5, 0.75, 0.75), True),
    ]


@pytest.mark.parametrize("size", ["", "<size><width>0</width><height>5</height></size>"])
def test_a_picture_without_a_size_is_refused(tmp_path, size):
    with pytest.raises(DataError, match=r"a\.xml: it does not tell the picture's size"):
        voc_boxes(write(tmp_path, size=size))


def test_a_file_that_is_not_there_is_named(tmp_path):
    with pytest.raises(DataError, match=r"none\.xml"):
        voc_boxes(tmp_path / "none.xml")
