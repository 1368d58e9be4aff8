import json
from pathlib import Path

import pytest

from conformance.reader_suite import Example, ReaderSuite, draw
from manylabel.data import label_studio, load
from manylabel.errors import DataError


def chosen(*choices, control="tags", **more):
    """An annotation as Label Studio 1.23 exports it, but for its dates and ids."""
    result = {"id": "Xj1", "from_name": control, "to_name": "image", "type": "choices", "origin": "manual"}
    return {"was_cancelled": False, "ground_truth": False, "result": [result | {"value": {"choices": choices}}]} | more


def write(path: Path, *tasks) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    rows = [
        {"id": number, "data": {"text": "a note", "image": image}, "annotations": list(annotations), "predictions": []}
        for number, (image, *annotations) in enumerate(tasks)
    ]
    path.write_text(json.dumps(rows))
    return path


class TestLabelStudio(ReaderSuite):
    format = "label_studio"
    reader = staticmethod(label_studio)

    def build(self, tmp_path: Path) -> Example:
        for name in ("a.jpg", "b c.png", "d.jpg", "e.jpg", "f.jpg"):
            draw(tmp_path / "set" / "photos" / name)
        path = write(
            tmp_path / "set" / "export.json",
            ("/data/upload/3/0f1e2d3c-a.jpg", chosen("sofa", "cat")),
            ("/data/local-files/?d=photos/b%20c.png", chosen("cat"), chosen("cat", "dog")),
            ("/data/upload/3/00000000-skipped.jpg", chosen("cat", was_cancelled=True)),
            ("/data/upload/3/00000000-later.jpg",),
            ("http://example.org/photos/d.jpg?size=1", chosen("cat"), chosen("dog", ground_truth=True)),
            ("s3://bucket/photos/e.jpg", {"result": []}),
            ("/data/upload/3/4b5a6978-f.jpg", chosen("dog")),
        )
        return Example(
            path,
            names=["a.jpg", "b c.png", "d.jpg", "e.jpg", "f.jpg"],
            labels=["cat", "dog", "sofa"],
            values=[[1, 0, 1], [1, 0, 0], [0, 1, 0], [0, 0, 0], [0, 1, 0]],
            known=[[1, 1, 1], [1, 0, 1], [1, 1, 1], [1, 1, 1], [1, 1, 1]],
            options={"images": "photos"},
        )

    def test_is_guessed_from_its_file(self, example):
        assert len(load(example.path, **example.options)) == 5

    def test_given_labels_set_the_order_and_leave_out_others(self, example):
        dataset = label_studio(example.path, images="photos", labels="owl|dog|cat")
        assert dataset.labels.names == ("owl", "dog", "cat")
        assert dataset.labels_of(0) == ["cat"]


def test_keeps_the_folders_that_the_images_lie_in(tmp_path):
    draw(tmp_path / "1" / "f00dcafe-a.jpg")
    draw(tmp_path / "2" / "f00dcafe-a.jpg")
    path = write(tmp_path / "export.json", *((f"/data/upload/{n}/f00dcafe-a.jpg", chosen(str(n))) for n in (1, 2)))
    dataset = label_studio(path)
    assert [dataset.images.name(index) for index in range(2)] == ["1/f00dcafe-a.jpg", "2/f00dcafe-a.jpg"]


def test_boxes_are_labels_of_the_image(tmp_path):
    box = {"type": "rectanglelabels", "from_name": "boxes", "value": {"x": 1, "rectanglelabels": ["cat"]}}
    relation = {"type": "relation", "from_id": "a", "to_id": "b"}
    path = write(tmp_path / "export.json", ("/data/upload/1/a.jpg", {"result": [box, box, relation]}))
    assert label_studio(path).labels_of(0) == ["cat"]


def test_reads_a_recorded_export_and_finds_the_renamed_uploads(tmp_path):
    """Label Studio 1.23.2 wrote it; uploads lose folders and spaces. The last task was skipped, then left blank."""
    photos = ["a b/0 astronaut.jpg", "a b/1 chelsea.jpg", "2 coffee.jpg"]
    for name in photos:
        draw(tmp_path / "photos" / name)
    dataset = label_studio(Path(__file__).with_name("label_studio_export.json"), images=tmp_path / "photos")
    assert [dataset.images.name(index) for index in range(3)] == photos
    assert dataset.labels.names == ("Cat", "mug", "person")
    assert dataset.targets.dense()[0].tolist() == [[0, 0, 1], [1, 0, 0], [0, 0, 0]]
    assert dataset.targets.dense()[1].tolist() == [[1, 1, 1], [1, 0, 1], [1, 1, 1]]


def test_uploads_of_equal_names_are_not_guessed(tmp_path):
    draw(tmp_path / "1" / "a b.jpg")
    draw(tmp_path / "2" / "a_b.jpg")
    path = write(tmp_path / "export.json", ("/data/upload/1/f00dcafe-a_b.jpg", chosen("cat")))
    assert label_studio(path).images.name(0) == "f00dcafe-a_b.jpg"


def test_several_control_tags_need_a_choice(tmp_path):
    both = {"result": chosen("cat")["result"] + chosen("day", control="light")["result"]}
    path = write(tmp_path / "export.json", ("/data/upload/1/a.jpg", both))
    with pytest.raises(DataError, match="several control tags; set control=NAME; available: light, tags"):
        label_studio(path)
    assert label_studio(path, control="light").labels_of(0) == ["day"]
    with pytest.raises(DataError, match=r"no answers of a control tag 'tag'; .* did you mean 'tags'"):
        label_studio(path, control="tag")


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        ('[{"image": "/data/upload/1/a.jpg", "tags": "cat", "id": 1}]', "missing required field `data`"),
        ('[{"data": {"image": "a.jpg"}, "annotations": []}]', "has 1 task without annotations"),
        ('[{"data": {"text": "hello"}, "annotations": [{"result": []}]}]', "no image in the data of a task"),
        ("[", "is damaged"),
    ],
)
def test_other_files_are_explained(content, problem, tmp_path):
    (tmp_path / "export.json").write_text(content)
    with pytest.raises(DataError, match=problem):
        label_studio(tmp_path / "export.json")


def test_an_answer_without_a_value_chooses_nothing(tmp_path):
    region = chosen("cat")
    region["result"].append({"from_name": "tags", "type": "choices", "value": {}})
    file = write(tmp_path / "export.json", ("/data/upload/1/f00dcafe-a.jpg", region))
    assert label_studio(file).labels_of(0) == ["cat"]
