import json
import sys

import numpy as np
import polars as pl
import pytest
from PIL import Image

from colour_model import SPEC
from manylabel.errors import (
    ConfigError,
    ImageError,
    MissingExtraError,
    ModelFormatError,
    OutputExistsError,
)
from manylabel.predictions import ImagePrediction, InferenceSpec, Predictions, TagChoice
from manylabel.types import BadImage, InputSpec, LabelSpace, Tag


def slow_pick(scores, labels, limits, top):
    rows = []
    for row in scores.tolist():
        ranked = sorted(zip(row, range(len(row)), strict=True), key=lambda pair: (-pair[0], pair[1]))
        kept = ranked[:top] if top else [pair for pair in ranked if pair[0] >= limits[pair[1]]]
        rows.append([(labels[place], round(score, 6)) for score, place in kept])
    return rows


@pytest.mark.parametrize("choice", [TagChoice(), TagChoice(top=2), TagChoice(top=9), TagChoice(threshold=0.25)])
def test_tags_are_those_of_a_slow_reference(choice):
    generator = np.random.default_rng(0)
    scores = generator.integers(0, 5, (20, 6)).astype(np.float32) / 4
    spec = InferenceSpec(LabelSpace("abcdef".replace("", " ").split()), InputSpec(), tuple(generator.random(6)))
    limits = spec.thresholds if choice.threshold is None else [choice.threshold] * 6
    expected = slow_pick(scores, spec.labels, limits, choice.top)
    assert [[tuple(tag) for tag in row] for row in choice.pick(scores, spec)] == expected


def test_a_model_without_thresholds_decides_at_a_half():
    spec = InferenceSpec(SPEC.labels, SPEC.input_spec)
    assert TagChoice().limits(spec) == 0.5
    with pytest.raises(ConfigError, match="manylabel tune"):
        TagChoice(threshold="tuned").limits(spec)
    assert TagChoice(threshold="tuned").limits(SPEC) == SPEC.thresholds


def test_of_labels_that_exclude_each_other_the_best_is_named():
    spec = InferenceSpec(SPEC.labels, SPEC.input_spec, single_label=True)
    scores = np.asarray([[0.3, 0.4, 0.3]], np.float32)
    assert [tag.label for tag in TagChoice().pick(scores, spec)[0]] == [SPEC.labels[1]]
    assert TagChoice(threshold=0.5).pick(scores, spec) == [()]
    with pytest.raises(ConfigError, match="predicts the most confident label of each image; omit"):
        TagChoice(threshold="tuned").pick(scores, spec)


def test_no_images_have_no_tags():
    assert TagChoice().pick(np.empty((0, 3), np.float32), SPEC) == []


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"top": 0}, "at least 1"),
        ({"threshold": 1.5}, "in 0..1 or 'tuned', got 1.5"),
        ({"top": 1, "threshold": 0.5}, "not both"),
    ],
)
def test_rejects_wrong_settings(settings, words):
    with pytest.raises(ConfigError, match=words):
        TagChoice(**settings)


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"version": 9}'])
def test_a_damaged_spec_is_an_error_in_words(text):
    with pytest.raises(ModelFormatError, match=r"a\.onnx"):
        InferenceSpec.from_json(text, source="a.onnx")


ABC = LabelSpace(["a", "b", "c"])
SCORES = np.array([[0.2, 0.9, 0.6], [0.1, 0.0, 0.3]], np.float32)


def test_tags_come_most_confident_first():
    predictions = Predictions(SCORES, ABC, ["x", "y"])
    assert predictions.above(0.5) == [(Tag("b", 0.9), Tag("c", 0.6)), ()]
    assert predictions.above([0.1, 0.95, 0.3]) == [(Tag("c", 0.6), Tag("a", 0.2)), (Tag("c", 0.3), Tag("a", 0.1))]
    assert predictions.top(1) == [(Tag("b", 0.9),), (Tag("c", 0.3),)]
    assert len(predictions.top(99)[0]) == 3


def test_tuned_thresholds_are_the_default():
    predictions = Predictions(SCORES, ABC, ["x", "y"], thresholds=(0.1, 0.95, 0.9))
    assert [image.tags for image in predictions] == predictions.above() == [(Tag("a", 0.2),), (Tag("a", 0.1),)]
    single = Predictions(SCORES, ABC, ["x", "y"], single_label=True)
    assert single.above() == [(Tag("b", 0.9),), (Tag("c", 0.3),)]


def test_predictions_are_a_sequence_with_bad_images_in_their_place():
    scores = np.concatenate([SCORES, np.full((1, 3), np.nan, np.float32)])
    predictions = Predictions(scores, ABC, ["x", "y", "z"], bad=(BadImage(2, "z", "it is empty"),))
    assert len(predictions) == 3
    assert predictions[0] == ImagePrediction("x", (Tag("b", 0.9), Tag("c", 0.6)))
    assert predictions[-1] == ImagePrediction("z", error="it is empty")
    assert list(predictions[1:]) == list(predictions)[1:]
    assert predictions[1:].bad == [BadImage(1, "z", "it is empty")]
    assert predictions.top(2)[2] == ()
    assert predictions[2].to_dict() == {"image": "z", "error": "it is empty"}
    assert predictions.readable.tolist() == [True, True, False]
    with pytest.raises(IndexError, match="no image 3: there are 3, counted from 0"):
        predictions[3]
    with pytest.raises(TypeError, match=r"selected by its position, such as 0, got 'a.jpg'"):
        predictions["a.jpg"]


def test_the_repr_has_a_head_and_a_tail():
    many = Predictions(np.zeros((1000, 3)), ABC, [f"{number}.jpg" for number in range(1000)])
    lines = repr(many).splitlines()
    assert (lines[0], lines[5], lines[-2]) == ("0.jpg: no tags", "...", "999.jpg: no tags")
    assert lines[-1] == "[1,000 images, 3 labels]"
    assert len(lines) == 12
    labels = LabelSpace([f"label {number}" for number in range(100)])
    crowded = Predictions(np.ones((1, 100)), labels, ["a.jpg"])
    assert repr(crowded).splitlines()[0].endswith(" 1.00, ...")
    assert max(map(len, repr(crowded).splitlines())) <= 160


def test_an_image_has_scores_by_name_and_its_source(tmp_path):
    Image.new("RGB", (40, 30), "red").save(tmp_path / "a.png")
    array = np.zeros((20, 10, 3), np.uint8)
    sources = [tmp_path / "a.png", array]
    file, memory = Predictions(SCORES, ABC, [str(tmp_path / "a.png"), "image 1"], sources=sources)
    assert file.scores == pytest.approx({"a": 0.2, "b": 0.9, "c": 0.6})
    assert (file.path, memory.path) == (tmp_path / "a.png", None)
    assert (file.image.size, memory.image.size) == ((40, 30), (10, 20))
    bad = ImagePrediction("z", error="it is empty")
    assert bad.scores == {}
    with pytest.raises(ImageError, match="it is empty"):
        _ = bad.image


def test_tables_have_one_row_per_image():
    scores = np.concatenate([SCORES, np.full((1, 3), np.nan, np.float32)])
    predictions = Predictions(scores, ABC, ["x", "y", "z"], bad=(BadImage(2, "z", "it is empty"),))
    expected = {
        "image": ["x", "y", "z"],
        "tags": [["b", "c"], [], []],
        "scores": [pytest.approx([0.9, 0.6]), [], []],
        "error": [None, None, "it is empty"],
    }
    assert predictions.to_polars().to_dict(as_series=False) == expected
    frame = predictions.to_pandas()
    assert frame["tags"].tolist() == expected["tags"]
    assert frame["error"].isna().tolist() == [True, True, False]
    assert Predictions(np.empty((0, 3)), ABC, []).to_polars().columns == list(expected)


def test_a_missing_pandas_is_named_with_its_command(monkeypatch):
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(MissingExtraError, match="pip install pandas"):
        Predictions(SCORES, ABC, ["x", "y"]).to_pandas()


def test_the_html_is_escaped_self_contained_and_short(tmp_path):
    name = str(tmp_path / "<img src=x>.png")
    Image.new("RGB", (400, 300), "red").save(name)
    labels = LabelSpace(["<script>alert(1)</script>"])
    page = Predictions(np.full((100, 1), 0.9), labels, [name] * 100)._repr_html_()
    assert page.count("<figure") == page.count('src="data:image/jpeg;base64,') == page.count("src=") - 48 == 24
    assert "<script" not in page
    assert "<img src=x" not in page
    assert "the first 24 are shown" in page
    bad = Predictions(np.full((1, 1), np.nan), labels, ["gone"], bad=(BadImage(0, "gone", "<b>"),))._repr_html_()
    assert "cannot be read: &lt;b&gt;" in bad


@pytest.mark.slow
def test_drawings_never_overwrite_and_skip_bad_images(tmp_path, caplog):
    caplog.set_level("WARNING", "manylabel")
    for folder in ("one", "two"):
        (tmp_path / folder).mkdir()
        Image.new("RGB", (3000, 2000), "red").save(tmp_path / folder / "a.png")
    names = [str(tmp_path / "one/a.png"), str(tmp_path / "two/a.png"), str(tmp_path / "gone.png")]
    scores = np.concatenate([SCORES, SCORES[:1]])
    out = tmp_path / "drawn"
    written = Predictions(scores, ABC, names).draw(out)
    assert written == [out / "a.jpg", out / "a (2).jpg"]
    assert "1 image not drawn" in caplog.text
    assert "gone.png': there is no such file" in caplog.text
    with Image.open(written[0]) as drawn:
        assert drawn.width == 1280
        assert drawn.height > 853
        assert drawn.crop((0, 0, 1280, 850)).getextrema() == drawn.crop((0, 0, 8, 8)).getextrema()  # uncovered
    before = written[0].read_bytes()
    assert Predictions(SCORES[:1], ABC, names[:1]).draw(out) == [out / "a (3).jpg"]
    assert written[0].read_bytes() == before


def test_images_are_shown_on_one_sheet(tmp_path, monkeypatch):
    shown = []
    monkeypatch.setattr(Image.Image, "show", lambda image: shown.append(image))
    array = np.zeros((20, 30, 3), np.uint8)
    Predictions(SCORES, ABC, ["x", "y"], sources=[array, array]).show()
    (sheet,) = shown
    assert sheet.width == 2 * (240 + 8) + 8


@pytest.mark.parametrize("ending", ["csv", "jsonl", "json", "parquet"])
def test_saved_files_hold_the_rows_of_the_command(tmp_path, ending):
    predictions = Predictions(SCORES, ABC, ["x.jpg", "y.jpg"])
    path = predictions.save(tmp_path / f"tags.{ending}")
    if ending == "csv":
        assert path.read_text() == "image,tags,scores,error\nx.jpg,b|c,0.9|0.6,\ny.jpg,,,\n"
    elif ending == "parquet":
        assert pl.read_parquet(path).equals(predictions.to_polars())
    else:
        text = path.read_text()
        rows = json.loads(text) if ending == "json" else [json.loads(line) for line in text.splitlines()]
        assert rows == [image.to_dict() for image in predictions]
    with pytest.raises(OutputExistsError):
        predictions.save(path)
    predictions[:1].save(path, overwrite=True)
    with pytest.raises(ConfigError, match=r"\.parquet"):
        predictions.save(tmp_path / "tags.xml")


def test_predictions_refuse_logits_and_wrong_shapes():
    with pytest.raises(ConfigError, match="probabilities"):
        Predictions(np.array([[3.0]]), LabelSpace(["a"]), ["x"])
    with pytest.raises(ConfigError, match="got \\[1, 2\\]"):
        Predictions(np.zeros((1, 2)), LabelSpace(["a"]), ["x"])
    with pytest.raises(ConfigError, match="probabilities"):
        Predictions(np.array([[float("nan")]]), LabelSpace(["a"]), ["x"])
    with pytest.raises(ConfigError, match="there must be 2 thresholds, one per label"):
        Predictions(np.zeros((1, 2)), LabelSpace(["a", "b"]), ["x"]).above([0.1, 0.2, 0.3])
