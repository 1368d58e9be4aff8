import numpy as np
import pytest

from colour_model import SPEC
from manylabel.errors import ConfigError, ModelFormatError
from manylabel.inference import TagChoice
from manylabel.inference.inference_spec import InferenceSpec
from manylabel.types import InputSpec, LabelSpace


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
    with pytest.raises(ConfigError, match="names the surest label of each picture; leave the threshold out"):
        TagChoice(threshold="tuned").pick(scores, spec)


def test_no_pictures_have_no_tags():
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
