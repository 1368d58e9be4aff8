"""The reader of people's own tables, in both forms and every file format."""

import json
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from conformance.reader_suite import Example, SplitReaderSuite, draw
from manylabel.data import table
from manylabel.errors import DataError


class TestJoinedTagsInCsv(SplitReaderSuite):
    format = "csv"
    reader = staticmethod(table)

    def build(self, tmp_path: Path) -> Example:
        for name in ("a b.png", "c, d.png", "鸟.png"):
            draw(tmp_path / "set" / "photos" / name)
        path = tmp_path / "set" / "labels.csv"
        lines = ["image,labels,split", "a b.png,dog|cat,train", '"c, d.png",,val', "鸟.png,птица,train"]
        path.write_text("\r\n".join(lines) + "\r\n", encoding="utf-8-sig", newline="")
        return Example(
            path,
            names=["a b.png", "c, d.png", "鸟.png"],
            labels=["cat", "dog", "птица"],
            values=[[1, 1, 0], [0, 0, 0], [0, 0, 1]],
            known=[[1, 1, 1]] * 3,
            splits={"train": [0, 2], "val": [1]},
            options={"images": "photos"},
        )


class TestLabelColumnsInTsv(SplitReaderSuite):
    format = "tsv"
    reader = staticmethod(table)

    def build(self, tmp_path: Path) -> Example:
        for name in "abc":
            draw(tmp_path / f"{name}.png")
        path = tmp_path / "labels.tsv"
        path.write_text("cat\tfile\tdog\tsplit\n1\ta.png\t0\ttrain\n\tb.png\ttrue\ttest\n-1\tc.png\t1.0\ttest\n")
        return Example(
            path,
            names=["a.png", "b.png", "c.png"],
            labels=["cat", "dog"],
            values=[[1, 0], [0, 1], [0, 1]],
            known=[[1, 1], [0, 1], [0, 1]],
            splits={"train": [0], "test": [1, 2]},
        )


class TestListsInJsonLines(SplitReaderSuite):
    format = "jsonl"
    reader = staticmethod(table)

    def build(self, tmp_path: Path) -> Example:
        rows = [
            {"file_name": "a.png", "tags": ["dog, small", "cat"], "split": "train"},
            {"file_name": "b.png", "tags": [], "split": "val"},
        ]
        for row in rows:
            draw(tmp_path / str(row["file_name"]))
        path = tmp_path / "labels.jsonl"
        path.write_text("\n".join(map(json.dumps, rows)))
        return Example(
            path,
            names=["a.png", "b.png"],
            labels=["cat", "dog, small"],
            values=[[1, 1], [0, 0]],
            known=[[1, 1], [1, 1]],
            splits={"train": [0], "val": [1]},
        )


class TestLabelColumnsInParquet(SplitReaderSuite):
    format = "parquet"
    reader = staticmethod(table)

    def build(self, tmp_path: Path) -> Example:
        columns = {
            "path": ["a.png", "b.png"],
            "cat": [True, False],
            "dog": [None, 1],
            "cow": [float("nan"), 0.0],
            "split": ["train", "val"],
        }
        for name in columns["path"]:
            draw(tmp_path / str(name))
        path = tmp_path / "labels.parquet"
        pl.DataFrame(columns).with_columns(pl.col("path").cast(pl.Categorical)).write_parquet(path)
        return Example(
            path,
            names=["a.png", "b.png"],
            labels=["cat", "dog", "cow"],
            values=[[1, 0, 0], [0, 1, 0]],
            known=[[1, 0, 0], [1, 1, 1]],
            splits={"train": [0], "val": [1]},
        )


def write(folder: Path, text: str, name: str = "labels.csv") -> Path:
    path = folder / name
    path.write_bytes(text.encode())
    return path


def read(path: Path, **options):
    """Read a table whose images do not exist."""
    return table(path, **{"images": path.parent} | options)


def tags_of(dataset) -> list[list[str]]:
    present = dataset.targets.present.toarray()
    return [[label for label, there in zip(dataset.labels, row, strict=True) if there] for row in present]


@pytest.mark.parametrize(
    ("cells", "tags"),
    [
        (["cat|dog; big", "cat"], [["cat", "dog; big"], ["cat"]]),
        (["cat;dog", "cat, tom"], [["cat", "dog"], ["cat, tom"]]),
        (["cat, dog", "cat"], [["cat", "dog"], ["cat"]]),
        (["haze primary", "clear primary", "clear"], [["haze", "primary"], ["clear", "primary"], ["clear"]]),
        (["traffic light", "fire hydrant"], [["traffic light"], ["fire hydrant"]]),
        ([" cat | | dog |", "|"], [["cat", "dog"], []]),
    ],
)
def test_finds_the_separator_by_the_documented_rule(tmp_path, cells, tags):
    rows = [f'{position}.jpg,"{cell}"' for position, cell in enumerate(cells)]
    assert tags_of(read(write(tmp_path, "\n".join(["image,labels", *rows])))) == tags


@pytest.mark.parametrize(
    ("separator", "tags"),
    [(";", [["a,b", "c d"]]), (",", [["a", "b;c d"]]), (" ", [["a,b;c", "d"]]), ("", [["a,b;c d"]])],
)
def test_takes_the_separator_given(tmp_path, separator, tags):
    dataset = read(write(tmp_path, 'image,labels\n1.jpg,"a,b;c d"\n'), separator=separator)
    assert tags_of(dataset) == tags


@pytest.mark.parametrize("delimiter", [",", ";", "\t"])
@pytest.mark.parametrize("line_end", ["\n", "\r\n"])
def test_finds_the_delimiter_between_columns(tmp_path, delimiter, line_end):
    lines = [["image", "labels", "note"], ["1.jpg", "cat|dog", '"two\nlines, one; field"'], ["2.jpg", '"a ""b"""', ""]]
    dataset = read(write(tmp_path, line_end.join(delimiter.join(line) for line in lines)))
    assert tags_of(dataset) == [["cat", "dog"], ['a "b"']]


def test_skips_empty_lines_and_columns_without_a_name(tmp_path):
    dataset = read(write(tmp_path, ",image,cat,dog,\n0,1.jpg,1,0,\n\n17,2.jpg,0,1,\n"))
    assert list(dataset.labels) == ["cat", "dog"]
    assert tags_of(dataset) == [["cat"], ["dog"]]


@pytest.mark.parametrize(
    ("header", "found"),
    [
        ("Image,tags", "Image"),
        ("file name,tags", "file name"),
        ("x,tags", "x"),
        ("photo,image_path,tags", "image_path"),
    ],
)
def test_finds_the_column_of_images(tmp_path, header, found):
    values = ["cat.jpg" if column == found else "many" for column in header.split(",")]
    assert read(write(tmp_path, f"{header}\n{','.join(values)}\n")).images.name(0) == "cat.jpg"


def test_takes_the_columns_given(tmp_path):
    path = write(tmp_path, "image,original,labels,names,part\n1.jpg,o1.jpg,7,cat,x\n2.jpg,o2.jpg,8,dog,y\n")
    dataset = read(path, image_column="original", label_column="names", split_column="part", split="y")
    assert dataset.images.name(0) == "o2.jpg"
    assert tags_of(dataset) == [["dog"]]


def test_a_single_column_of_flags_is_a_label_and_of_words_are_tags(tmp_path):
    assert list(read(write(tmp_path, "image,cat\n1.jpg,1\n2.jpg,0\n")).labels) == ["cat"]
    assert list(read(write(tmp_path, "image,animal\n1.jpg,cat\n2.jpg,dog\n")).labels) == ["cat", "dog"]


@pytest.mark.parametrize("as_file", [True, False])
def test_labels_choose_and_order(tmp_path, as_file):
    labels = str(write(tmp_path, "dog\nowl\n", "labels.txt")) if as_file else "dog|owl"
    tags = read(write(tmp_path, "image,tags\n1.jpg,cat|dog\n2.jpg,cat\n"), labels=labels)
    assert list(tags.labels) == ["dog", "owl"]
    assert tags_of(tags) == [["dog"], []]
    columns = read(write(tmp_path, "image,width,owl,dog\n1.jpg,640,0,1\n"), labels=labels)
    assert list(columns.labels) == ["dog", "owl"]
    assert tags_of(columns) == [["dog"]]


def test_rows_of_one_image_add_up_their_tags(tmp_path):
    dataset = read(write(tmp_path, "image,tags\n1.jpg,cat\n2.jpg,owl\n1.jpg,dog|cat\n"))
    assert [dataset.images.name(index) for index in range(len(dataset))] == ["1.jpg", "2.jpg"]
    assert tags_of(dataset) == [["cat", "dog"], ["owl"]]


def test_rows_of_one_image_fill_blanks(tmp_path):
    values, known = read(write(tmp_path, "image,cat,dog,owl\n1.jpg,1,,\n1.jpg,,0,\n")).targets.dense()
    assert values.tolist() == [[1, 0, 0]]
    assert known.tolist() == [[True, True, False]]


def test_a_image_with_a_blank_split_is_in_none(tmp_path):
    dataset = read(write(tmp_path, "image,tags,split\n1.jpg,cat,train\n2.jpg,dog,\n"))
    assert {name: members.tolist() for name, members in dataset.splits.items()} == {"train": [0]}
    assert len(dataset) == 2


def test_both_forms_agree_with_a_slow_reference(tmp_path):
    generator = np.random.default_rng(0)
    flags = generator.integers(-1, 2, size=(50, 7))
    labels = [f"label {number}" for number in range(7)]
    spellings = {1: ["1", "1.0", "True", "TRUE "], 0: ["0", "0.0", "false"], -1: ["", "-1", " ", "NaN"]}
    rows = [[f"{row}.jpg", *(generator.choice(spellings[flag]) for flag in line)] for row, line in enumerate(flags)]
    path = write(tmp_path, "\n".join(",".join(line) for line in [["image", *labels], *rows]))
    values, known = read(path).targets.dense()
    for row in range(50):
        for column in range(7):
            assert values[row, column] == (flags[row, column] == 1)
            assert known[row, column] == (flags[row, column] != -1)
    tags = [
        f"{row}.jpg," + "|".join(label for label, flag in zip(labels, line, strict=True) if flag == 1)
        for row, line in enumerate(flags)
    ]
    joined = read(write(tmp_path, "\n".join(["image,tags", *tags])))
    assert joined.targets.dense()[0].tolist() == (flags == 1).tolist()


@pytest.mark.parametrize(
    ("text", "options", "words"),
    [
        ("image,cat,dog\n1.jpg,1,0\n2.jpg,0,maybe\n", {}, ["'dog'", "'maybe'", "row 2", "2.jpg", "labels="]),
        ("image,cat\n1.jpg,1\n2.jpg,0.5\n", {"labels": "cat"}, ["'0.5'"]),
        ("image,cat,dog\n1.jpg,1,0\n1.jpg,0,0\n", {}, ["1.jpg", "'cat'", "rows 1, 2"]),
        ("image,tags,split\n1.jpg,cat,train\n1.jpg,cat,val\n", {}, ["1.jpg", "'train'", "'val'"]),
        ("a,b,tags\n1.jpg,2.jpg,cat\n", {}, ["'a' and 'b'", "image_column"]),
        ("a,b\n1,2\n", {}, ["none looks like it", "image_column", "a, b"]),
        ("image,tags,labels\n1.jpg,cat,dog\n", {}, ["label_column", "labels, tags"]),
        ("image,tags\n1.jpg,cat\n", {"label_column": "tag"}, ["label_column=tag", "did you mean 'tags'"]),
        ("image,tags\n1.jpg,cat\n", {"image_column": "imag"}, ["image_column=imag", "'image'"]),
        ("image,tags\n1.jpg,cat\n", {"split_column": "set"}, ["split_column=set"]),
        ("image,tags\n1.jpg,cat\n", {"split": "train"}, ["no split 'train'"]),
        ("image,tags\n1.jpg,cat\n", {"images": "fotos"}, ["fotos"]),
        ("image,tags\n1.jpg,\n", {}, ["'tags'", "no tag"]),
        ("image,tags\n1.jpg,cat\n,dog\n", {}, ["'image'", "row 2"]),
        ("image\n1.jpg\n", {}, ["no column of labels"]),
        ("image,cat,dog\n1.jpg,1,0\n", {"separator": ";"}, ["separator=';'", "label_column"]),
        ("image,cat,dog\n1.jpg,1,0\n", {"labels": "cat|owl"}, ["labels=owl", "cat, dog"]),
        ("image,tags\n1.jpg,cat\n", {"labels": "missing.txt"}, ["missing.txt"]),
        ("1.jpg,cat\n2.jpg,dog\n", {}, ["'1.jpg'", "header"]),
        ("image,cat,cat\n1.jpg,1,1\n", {}, ["two columns called 'cat'"]),
        ("image,tags\n1.jpg,cat,dog\n", {}, ["more fields", "quotes"]),
        ("image,tags\n", {}, ["no rows"]),
        ("image,tags\r1.jpg,cat\r", {}, ["old Macs", "save it again"]),
        ("image,tags\n1.jpg,ca\0t\n", {}, ["NUL bytes", "UTF-8"]),
        ("", {}, ["empty"]),
    ],
)
def test_says_what_is_wrong_and_what_there_is(tmp_path, text, options, words):
    path = write(tmp_path, text)
    with pytest.raises(DataError) as error:
        read(path, **options)
    assert all(word in str(error.value) for word in words), error.value


@pytest.mark.parametrize("encoding", ["latin-1", "utf-16", "utf-16-le", "utf-32-be"])
def test_text_that_is_not_utf_8_is_refused(tmp_path, encoding):
    path = tmp_path / "labels.csv"
    path.write_bytes("image,tags\nä.jpg,Bär\n".encode(encoding))
    with pytest.raises(DataError, match="UTF-8"):
        read(path)


@pytest.mark.parametrize(("name", "text"), [("labels.xlsx", "PK"), ("labels.jsonl", "{"), ("labels.parquet", "no")])
def test_files_of_another_kind_are_refused(tmp_path, name, text):
    with pytest.raises(DataError, match="labels"):
        read(write(tmp_path, text, name))


def test_tags_that_are_objects_are_refused(tmp_path):
    path = write(tmp_path, '{"image": "1.jpg", "labels": [{"name": "cat"}]}', "labels.jsonl")
    with pytest.raises(DataError, match="lists of strings"):
        read(path)


def test_images_inside_a_parquet_file_are_refused(tmp_path):
    path = tmp_path / "labels.parquet"
    pl.DataFrame({"image": [{"bytes": b"x"}], "tags": ["cat"]}).write_parquet(path)
    with pytest.raises(DataError, match="file names"):
        read(path)


def test_finds_images_in_obvious_folders_and_lists_those_it_tried(tmp_path):
    draw(tmp_path / "photos" / "new" / "1.png")
    (tmp_path / "labels").mkdir()
    rows = "image,tags\nnew/1.png,cat\nnew/gone.png,dog\n"
    for path in (write(tmp_path, rows), write(tmp_path / "labels", rows)):
        assert table(path).images[0].samefile(tmp_path / "photos" / "new" / "1.png")
    with pytest.raises(DataError, match=r"'2\.png'; looked in .*photos.*images=FOLDER"):
        table(write(tmp_path, "image,tags\n2.png,cat\n"))


@pytest.mark.parametrize("blank", ["negative", "unknown", "drop"])
def test_blank_cells_are_negatives_unknown_or_dropped(tmp_path, blank):
    path = write(tmp_path, "image,tags\n1.jpg,cat\n2.jpg,\n")
    dataset = read(path, blank=blank)
    expected = {"negative": [[1], [1]], "unknown": [[1], [0]], "drop": [[1]]}[blank]
    assert dataset.targets.dense()[1].astype(int).tolist() == expected
    only_dogs = read(write(tmp_path, "image,tags\n1.jpg,cat\n2.jpg,dog\n"), blank="drop", labels="dog")
    assert len(only_dogs) == 2  # a tag that is ignored is not a blank


def test_notes_merged_and_conflicting_rows(tmp_path):
    lines = ["1.jpg,cat|dog", "1.jpg,dog|cat", "2.jpg,cat", "2.jpg,dog", "3.jpg,dog"]
    notes = read(write(tmp_path, "\n".join(["image,tags", *lines]))).notes
    assert notes == (
        "2 images are in several rows, which were merged: '1.jpg', '2.jpg'",
        "1 image is in several rows, which have different tags (all were added): '2.jpg'",
    )
