"""Every way from an image to its tags gives the same pixels, scores and errors."""

import inspect
import json
import sys
from pathlib import Path

import numpy as np
import pytest
from fastapi.testclient import TestClient
from typer.testing import CliRunner

import manylabel
from manylabel import Classifier, LabelSpace
from manylabel.builtin import sample_photos
from manylabel.cli.main import app
from manylabel.data import Files, ImageDataset
from manylabel.evaluation import score
from manylabel.inference import open_engine, predict_stream
from manylabel.server import ServedModel, create_app
from manylabel.targets import Targets

LABELS = ["cat", "dog"]
TOLERANCE = 2e-6  # fused and exported models round otherwise, tags to six places


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Photos of several sizes and kinds, and one that is cut short."""
    folder = tmp_path_factory.mktemp("photos")
    for path in sample_photos():
        (folder / path.name).write_bytes(path.read_bytes())
    (folder / "cut.jpg").write_bytes(sample_photos()[0].read_bytes()[:500])
    return folder


@pytest.fixture(scope="module")
def expected(folder, tiny_model):
    """Results of the classifier itself: the scores, and the errors by name."""
    result = Classifier.from_pretrained(tiny_model).predict(folder)
    errors = {image.name.rpartition("/")[2]: image.error for image in result if image.error}
    assert list(errors) == ["cut.jpg"]
    return result, errors


def by_classifier(folder, model):
    return Classifier.from_pretrained(model).predict(sorted(folder.iterdir()))


def by_torch(folder, model):
    return open_engine(model, engine="torch").predict(folder)


def by_torch_streamed(folder, model):
    (batch,) = predict_stream(open_engine(model, engine="torch"), map(str, sorted(folder.iterdir())))
    return batch


def by_onnxruntime(folder, model):
    return open_engine(model, engine="onnx").predict(folder)


@pytest.mark.parametrize(
    "road", [by_classifier, by_torch, by_torch_streamed, pytest.param(by_onnxruntime, marks=pytest.mark.slow)]
)
def test_scores_and_errors_are_the_same_in_python(road, folder, tiny_model, expected):
    found, (result, errors) = road(folder, tiny_model), expected
    np.testing.assert_allclose(found.scores, result.scores, atol=TOLERANCE, equal_nan=True)
    assert [image.name for image in found] == [image.name for image in result]
    assert {image.name.rpartition("/")[2]: image.reason for image in found.bad} == errors
    assert found.thresholds == result.thresholds == (0.4, 0.6)


def test_scores_and_errors_are_the_same_in_evaluation(folder, tiny_model, expected):
    names = sorted(path.name for path in folder.iterdir())
    targets = Targets.from_lists([[0]] * len(names), num_labels=2)
    dataset = ImageDataset(Files(folder, names), targets, LabelSpace(LABELS))
    scored = score(open_engine(tiny_model, engine="torch"), dataset, max_bad_fraction=1.0)
    result, errors = expected
    np.testing.assert_allclose(scored.scores, result.scores[result.readable], atol=TOLERANCE)
    assert {image.name: image.reason for image in scored.bad} == errors


def by_command(folder, model, out):
    arguments = ["predict", folder, "--model", model, "--threshold", "0", "--out", out]
    CliRunner().invoke(app, list(map(str, arguments)), catch_exceptions=False)
    rows = [json.loads(line) for line in out.read_text().splitlines()]
    return [(row["image"].rpartition("/")[2], row.get("tags", []), row.get("error")) for row in rows]


def by_server(folder, model, out):
    files = [("images", (path.name, path.read_bytes())) for path in sorted(folder.iterdir())]
    with TestClient(create_app(ServedModel.open(model, engine="torch")), "http://localhost") as client:
        answer = client.post("/v1/predict", files=files, params={"threshold": 0})
    return [(image["name"], image["tags"], image["error"]) for image in answer.json()["images"]]


@pytest.mark.parametrize("road", [by_command, by_server])
def test_scores_and_errors_are_the_same_outside(road, folder, tiny_model, expected, tmp_path):
    result, errors = expected
    found = road(folder, tiny_model, tmp_path / "tags.jsonl")
    for (name, tags, error), image, scores in zip(found, result, result.scores, strict=True):
        assert name == image.name.rpartition("/")[2]
        assert error == errors.get(name)
        scored = {tag["label"]: tag["score"] for tag in tags}
        if error is None:
            assert scored == pytest.approx(dict(zip(LABELS, scores.tolist(), strict=True)), abs=TOLERANCE)


@pytest.mark.parametrize(("is_first", "most"), [(True, 30), (False, 13)])
def test_a_prediction_crosses_few_modules(tiny_model, is_first, most):
    """Counted are the files of manylabel that run a function, not those that are only imported."""
    root, crossed = str(Path(manylabel.__file__).parent), set()

    def count(frame, event, _):
        code = frame.f_code
        if event == "call" and code.co_filename.startswith(root) and code.co_flags & inspect.CO_NEWLOCALS:
            crossed.add(code.co_filename)

    model = None if is_first else Classifier.from_pretrained(tiny_model)
    before = sys.getprofile()
    sys.setprofile(count)
    try:
        (model or Classifier.from_pretrained(tiny_model)).predict(sample_photos()[0])
    finally:
        sys.setprofile(before)
    assert 5 < len(crossed) <= most, sorted(crossed)
