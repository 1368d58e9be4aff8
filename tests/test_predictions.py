import numpy as np
import pytest
from PIL import Image

from colour_model import SPEC
from manylabel.errors import ConfigError, ImageError, ModelFormatError
from manylabel.predictions import (
    InferenceSpec,
    Prediction,
    Predictions,
    TagChoice,
    join_predictions,
    name_images,
    prepare_batch,
)
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
    with pytest.raises(ConfigError, match="gives the most confident label of each image; omit"):
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
    assert predictions[0] == Prediction("x", (Tag("b", 0.9), Tag("c", 0.6)))
    assert predictions[-1] == Prediction("z", error="it is empty")
    assert predictions[1:] == list(predictions)[1:]
    assert predictions.top(2)[2] == ()
    assert predictions[2].to_dict() == {"image": "z", "error": "it is empty"}
    assert predictions.readable.tolist() == [True, True, False]
    with pytest.raises(IndexError):
        predictions[3]


def test_the_repr_is_short():
    many = Predictions(np.zeros((1000, 3)), ABC, [f"{number}.jpg" for number in range(1000)])
    assert repr(many).splitlines()[0] == "Predictions(1,000 images, 3 labels)"
    assert repr(many).splitlines()[-1] == "... and 990 more"
    assert len(repr(many)) < 300


def test_predictions_of_batches_are_joined_with_their_bad_images():
    nan = np.full((1, 3), np.nan)
    parts = [Predictions(nan, SPEC.labels, [name], bad=(BadImage(0, name, "gone"),)) for name in ("x", "y")]
    joined = join_predictions(parts, SPEC)
    assert (joined.thresholds, joined.bad) == (SPEC.thresholds, (BadImage(0, "x", "gone"), BadImage(1, "y", "gone")))
    assert join_predictions([], SPEC).scores.shape == (0, 3)


def test_predictions_refuse_logits_and_wrong_shapes():
    with pytest.raises(ConfigError, match="probabilities"):
        Predictions(np.array([[3.0]]), LabelSpace(["a"]), ["x"])
    with pytest.raises(ConfigError, match="got \\[1, 2\\]"):
        Predictions(np.zeros((1, 2)), LabelSpace(["a"]), ["x"])
    with pytest.raises(ConfigError, match="probabilities"):
        Predictions(np.array([[float("nan")]]), LabelSpace(["a"]), ["x"])
    with pytest.raises(ConfigError, match="one threshold for each of 2"):
        Predictions(np.zeros((1, 2)), LabelSpace(["a", "b"]), ["x"]).above([0.1, 0.2, 0.3])


def test_an_image_that_could_not_be_fetched_is_a_bad_one():
    batch = prepare_batch(
        [("a", ImageError("a", "the hub is down")), ("b", np.zeros((4, 4, 3), np.uint8))], SPEC.input_spec
    )
    assert batch.errors == ("the hub is down", None)
    assert batch.pixels.shape == (1, 32, 32, 3)


def test_a_folder_stands_for_its_images(tmp_path):
    (tmp_path / "inner").mkdir()
    for name in ("b.png", "inner/a.png"):
        Image.new("RGB", (8, 8)).save(tmp_path / name)
    (tmp_path / "notes.txt").touch()
    names = [name for name, _ in name_images([tmp_path, b"", str(tmp_path / "gone.png")])]
    assert names == [str(tmp_path / "b.png"), str(tmp_path / "inner/a.png"), "image 1", str(tmp_path / "gone.png")]
