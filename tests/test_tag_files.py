import csv
import json

import polars as pl
import pytest

from manylabel.data import load
from manylabel.errors import ConfigError, DataError, OutputExistsError
from manylabel.predictions import ImagePrediction
from manylabel.tag_files import open_output
from manylabel.types import Tag
from sample_files import ODD_NAMES

IMAGES = [
    ImagePrediction("a.jpg", (Tag("cat", 0.9), Tag("traffic light", 0.25))),
    ImagePrediction("empty.jpg"),
    ImagePrediction('bad, "really".jpg', error="it is empty (0 bytes)"),
    *(ImagePrediction(name, (Tag("cat", 0.5),)) for name in ODD_NAMES),
]
KINDS = ("jsonl", "csv", "parquet")


def write(path, images, **settings):
    writer, done = open_output(path, **settings)
    writer.write(images)
    writer.close()
    return done


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_written_is_known_when_a_run_goes_on(tmp_path, kind):
    path = tmp_path / f"tags.{kind}"
    assert len(write(path, IMAGES[:4])) == 0
    assert len(write(path, IMAGES[4:], resume=True)) == 4
    done = write(path, [], resume=True)
    assert len(done) == len(IMAGES)
    assert all(image.name in done for image in IMAGES)
    assert "other.jpg" not in done


def test_json_lines_hold_tags_or_a_reason(tmp_path):
    write(tmp_path / "tags.jsonl", IMAGES)
    rows = [json.loads(line) for line in (tmp_path / "tags.jsonl").read_text(encoding="utf-8").splitlines()]
    assert rows == [image.to_dict() for image in IMAGES]
    assert rows[2] == {"image": 'bad, "really".jpg', "error": "it is empty (0 bytes)"}


def test_a_table_of_tags_is_read_back_as_a_data_set(tmp_path):
    write(tmp_path / "tags.csv", IMAGES[:2])
    frame = pl.read_csv(tmp_path / "tags.csv")
    assert frame["scores"].to_list() == ["0.9|0.25", None]
    dataset = load(f"csv:{tmp_path / 'tags.csv'},label_column=tags,images={tmp_path}")
    assert set(dataset.labels) == {"cat", "traffic light"}


def test_a_folder_of_parts_is_one_table(tmp_path, monkeypatch):
    monkeypatch.setattr("manylabel.tag_files.ROWS_PER_PART", 3)
    path = tmp_path / "tags.parquet"
    writer, _ = open_output(path)
    for start in range(0, len(IMAGES), 2):
        writer.write(IMAGES[start : start + 2])
    assert len(list(path.iterdir())) == len(IMAGES) // 4  # whole parts, before the writer is closed
    assert len(list(tmp_path.glob(".tags.parquet.part-*"))) == 1  # the rest is in the journal
    writer.close()
    assert list(tmp_path.iterdir()) == [path]
    frame = pl.read_parquet(path)
    assert frame["image"].to_list() == [image.name for image in IMAGES]
    assert frame["tags"][0].to_list() == ["cat", "traffic light"]
    assert frame["scores"][0].to_list() == [pytest.approx(0.9), 0.25]


LABELS = ["=1+1", "+a", "-b", "@c", "a|b", "'=d", "100%", "%7C", "\tx", "\ry", 'q"uote', "com,ma;semi", "li\nne", "|"]


def test_labels_that_would_be_formulas_or_break_the_column_are_read_back_as_they_were(tmp_path):
    images = [ImagePrediction(f"{label.strip()}.jpg", (Tag(label, 0.5),)) for label in LABELS]
    images.append(ImagePrediction("=all.jpg", tuple(Tag(label, 0.5) for label in LABELS)))
    images.append(ImagePrediction("bad.jpg", error="=HYPERLINK()"))
    write(tmp_path / "tags.csv", images)
    with (tmp_path / "tags.csv").open(newline="", encoding="utf-8") as lines:
        cells = [cell for row in list(csv.reader(lines))[1:] for cell in row]
    assert not any(cell.startswith(("=", "+", "-", "@", "\t", "\r")) for cell in cells)
    dataset = load(f"csv:{tmp_path / 'tags.csv'},images={tmp_path}")
    assert sorted(dataset.labels) == sorted(LABELS)
    names = [dataset.images.name(index) for index in range(len(dataset))]
    assert names == [image.name for image in images]
    present = dataset.targets.dense()[0].astype(bool)
    assert [{dataset.labels[int(label)] for label in row.nonzero()[0]} for row in present] == [
        {tag.label for tag in image.tags} for image in images
    ]
    assert all(image.name in write(tmp_path / "tags.csv", [], resume=True) for image in images)


@pytest.mark.parametrize("kind", ["jsonl", "csv"])
def test_half_a_row_at_the_end_is_cut_off(tmp_path, kind):
    path = tmp_path / f"tags.{kind}"
    write(path, IMAGES)
    whole = path.read_bytes()
    for lost in range(1, 60, 7):
        path.write_bytes(whole[:-lost])
        done = write(path, [], resume=True)
        assert IMAGES[-1].name not in done
        write(path, [image for image in IMAGES if image.name not in done], resume=True)
        assert path.read_bytes() == whole


def test_a_name_that_is_not_unicode_is_found_again(tmp_path):
    name = "broken\udcff.jpg"
    for kind in KINDS:
        write(tmp_path / f"tags.{kind}", [ImagePrediction(name)])
        assert name in write(tmp_path / f"tags.{kind}", [], resume=True)


def test_nothing_is_lost_unless_asked(tmp_path):
    for kind in KINDS:
        path = tmp_path / f"tags.{kind}"
        write(path, IMAGES)
        with pytest.raises(OutputExistsError, match="--overwrite"):
            open_output(path)
        assert len(write(path, IMAGES[:1], overwrite=True)) == 0
        assert len(write(path, [], resume=True)) == 1


def test_rejects_what_it_cannot_go_on_with(tmp_path):
    (tmp_path / "other.csv").write_text("a,b\n1,2")
    (tmp_path / "other.jsonl").write_text('{"a":\n1}')
    (tmp_path / "other.parquet").touch()
    for kind in KINDS:
        before = (tmp_path / f"other.{kind}").read_bytes()
        with pytest.raises(DataError, match=r"other\."):
            open_output(tmp_path / f"other.{kind}", resume=True)
        assert (tmp_path / f"other.{kind}").read_bytes() == before
    with pytest.raises(ConfigError, match=r"cannot write tags to tags\.txt"):
        open_output(tmp_path / "tags.txt")
    with pytest.raises(ConfigError, match="cannot be combined"):
        open_output(tmp_path / "tags.csv", resume=True, overwrite=True)


def test_the_journal_of_another_file_is_left_alone(tmp_path):
    other = tmp_path / ".tags.csv.part-000000.jsonl"
    other.touch()
    write(tmp_path / "[t]*.csv", IMAGES)
    write(tmp_path / "[t]*.csv", IMAGES, overwrite=True)
    write(tmp_path / "*.csv", IMAGES)
    write(tmp_path / "*.csv", IMAGES, overwrite=True)
    assert other.exists()


def test_a_folder_of_other_files_is_never_overwritten(tmp_path):
    for kind in KINDS:
        note = tmp_path / f"photos.{kind}" / "note.txt"
        note.parent.mkdir()
        note.write_text("mine")
        with pytest.raises(ConfigError, match=r"other files \(note\.txt\) and is not overwritten"):
            open_output(note.parent, overwrite=True)
        assert note.read_text() == "mine"
