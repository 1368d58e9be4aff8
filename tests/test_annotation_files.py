"""Files for annotation tools, in the forms that FiftyOne 1.22, CVAT 2 and Label Studio 1.23 document."""

import json
import os
from urllib.parse import unquote_to_bytes
from xml.etree import ElementTree

import numpy as np
import pytest

from conformance.reader_suite import draw
from manylabel.errors import ConfigError, OutputExistsError
from manylabel.predictions import Predictions
from manylabel.tag_files import open_output
from manylabel.types import BadImage, LabelSpace


@pytest.fixture
def predictions(tmp_path):
    names = [str(draw(tmp_path / "photos" / name)) for name in ("a b.jpg", "c.png")]
    scores = np.array([[0.9, 0.7], [0.1, 0.2], [np.nan, np.nan]])
    bad = [BadImage(2, "gone.jpg", "it does not exist")]
    return Predictions(scores, LabelSpace(["cat", "dog <3"]), [*names, "gone.jpg"], bad=bad)


def test_fiftyone_gets_classifications_by_absolute_path(predictions, tmp_path):
    found = json.loads(predictions.save(tmp_path / "tags.fiftyone.json").read_text())
    first = [{"label": "cat", "confidence": 0.9}, {"label": "dog <3", "confidence": 0.7}]
    assert found == {"classes": None, "labels": {predictions.names[0]: first, predictions.names[1]: []}}


def test_cvat_gets_tags_with_the_sizes_of_the_images(predictions, tmp_path):
    root = ElementTree.parse(predictions.save(tmp_path / "tags.cvat.xml")).getroot()
    assert root.findtext("version") == "1.1"
    assert [label.findtext("name") for label in root.iterfind("meta/task/labels/label")] == ["cat", "dog <3"]
    first, second = root.iterfind("image")
    assert first.attrib == {"id": "0", "name": "photos/a b.jpg", "width": "8", "height": "6"}
    assert [tag.attrib for tag in first] == [{"label": name, "source": "auto"} for name in ("cat", "dog <3")]
    assert not list(second)


def test_label_studio_gets_tasks_with_predictions(predictions, tmp_path):
    first, second = json.loads(predictions.save(tmp_path / "tasks.label_studio.json").read_text())
    assert first["data"] == {"image": "/data/local-files/?d=photos/a%20b.jpg"}
    (prediction,) = first["predictions"]
    assert prediction["score"] == pytest.approx(0.8)
    value = {"choices": ["cat", "dog <3"]}
    assert prediction["result"] == [{"from_name": "tags", "to_name": "image", "type": "choices", "value": value}]
    assert second["predictions"][0]["result"] == []


def test_are_written_batch_by_batch_and_not_resumed(predictions, tmp_path):
    path = tmp_path / "tags.cvat.xml"
    writer, done = open_output(path)
    for image in predictions:
        writer.write([image])
    writer.close()
    assert len(done) == 0
    assert path.read_text() == predictions.save(tmp_path / "same.cvat.xml").read_text()
    with pytest.raises(ConfigError, match="cannot be resumed"):
        open_output(path, resume=True)
    with pytest.raises(OutputExistsError):
        open_output(path)


@pytest.mark.parametrize("ending", ["fiftyone.json", "label_studio.json", "cvat.xml"])
def test_batches_wait_on_disk_and_those_of_a_killed_run_are_dropped(predictions, tmp_path, ending):
    path = tmp_path / f"tags.{ending}"
    killed, _ = open_output(path)
    killed.write(predictions[:1])
    killed.lock.release()
    writer, _ = open_output(path)
    writer.write(predictions)
    assert vars(writer).keys() == {"path", "lock", "annotations", "_journal"}  # nothing grows with the images
    (journal,) = tmp_path.glob(".tags*.jsonl")
    assert len(journal.read_text().splitlines()) == 3
    writer.close()
    assert path.read_text() == predictions.save(tmp_path / f"same.{ending}").read_text()
    assert not list(tmp_path.glob(".tags*"))


def test_other_endings_list_these(predictions, tmp_path):
    with pytest.raises(ConfigError, match=r"\.fiftyone\.json"):
        predictions.save(tmp_path / "tags.xml")


@pytest.mark.parametrize("name", ["caf\udce9.jpg", "bell\a.jpg", "https://example.org/photos/a.jpg"])
def test_odd_names_of_images_and_labels_never_end_a_run(name, tmp_path):
    image = name if name.startswith("https:") else str(tmp_path / name)
    odd = Predictions(np.array([[0.9]]), LabelSpace(["c\x02at"]), [image])
    found = json.loads(odd.save(tmp_path / "tags.fiftyone.json").read_text())
    assert list(found["labels"]) == [image]
    (task,) = json.loads(odd.save(tmp_path / "tags.label_studio.json").read_text())
    address = task["data"]["image"]
    assert address == image or unquote_to_bytes(address.removeprefix("/data/local-files/?d=")) == os.fsencode(name)
    (element,) = ElementTree.parse(odd.save(tmp_path / "tags.cvat.xml")).getroot().iterfind("image")
    assert element.get("name") == name.replace("\udce9", "\ufffd").replace("\a", "\ufffd")
    assert [tag.get("label") for tag in element] == ["c\ufffdat"]
