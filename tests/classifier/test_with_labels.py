"""New labels for a trained classifier: mixed, doubled, blank, very long and very many."""

import msgspec
import numpy as np
import pytest
import torch
from msgspec.structs import replace

from manylabel import heads
from manylabel.classifier import Classifier
from manylabel.errors import ConfigError, LabelError
from manylabel.text import TextVocabulary
from manylabel.types import LabelSpace

IMAGE = np.full((40, 50, 3), 128, dtype=np.uint8)
TRAINED = ("cat", "dog", "/m/bus")


class LetterEncoder:
    """A stand-in: a vector from the letters of a text; counts how often it is called."""

    name, templates = "letters", ("{label}",)

    def reads(self, text):
        return bool(text)

    def __init__(self, width=6):
        self.width, self.calls = width, []

    def encode(self, texts):
        self.calls.append(list(texts))
        rows = [torch.Generator().manual_seed(sum(map(ord, text)) + len(text)) for text in texts]
        return torch.stack([torch.randn(self.width, generator=row) for row in rows])


@pytest.fixture
def encoder(monkeypatch):
    found = LetterEncoder()
    monkeypatch.setattr("manylabel.text.open_encoder", lambda name: found)
    return found


def make(head=heads.MLDecoder, *, bias=0.0, **settings):
    torch.manual_seed(0)
    text = {"text_vectors": torch.randn(3, 6)}
    if head is heads.MLDecoder:
        text |= {"queries": "text", "shared_projection": True, "width": 16, "num_heads": 2, "feedforward": 16}
    labels = LabelSpace(TRAINED, display_names={"/m/bus": "bus"}, descriptions={"cat": "it purrs"})
    model = Classifier.create(
        "resnet10t", head=head, labels=labels, head_settings=text | settings, pretrained=False, image_size=32
    )
    model.text = TextVocabulary("letters", ("{label}",), trained=TRAINED, new_label_bias=bias)
    return model


CASES = {
    "full": (heads.MLDecoder, {}),
    "groups": (heads.MLDecoder, {"num_groups": 2}),
    "text map": (heads.TextMap, {}),
    "conse": (heads.ConSE, {}),
}


@pytest.mark.parametrize("case", CASES)
def test_answers_for_new_labels_and_saves_them(case, encoder, tmp_path):
    head, settings = CASES[case]
    asked = make(head, bias=0.5, **settings).with_labels(["tram", "dog", "fire truck"])
    scores = asked.predict(IMAGE).scores
    assert scores.shape == (1, 3)
    again = Classifier.from_pretrained(asked.save_pretrained(tmp_path / "model"))
    assert again.text == asked.text
    assert np.array_equal(again.predict(IMAGE).scores, scores)
    assert len(encoder.calls) == 1  # saved vectors need no text model


@pytest.mark.parametrize("head", [heads.MLDecoder, heads.TextMap])
def test_a_trained_label_keeps_its_score_beside_new_ones(head, encoder):
    model = make(head)
    before, beside = model.predict(IMAGE), model.predict(IMAGE, labels=["tram", "dog"])
    assert beside.scores[0, 1] == pytest.approx(before.scores[0, 1], abs=1e-5)
    assert encoder.calls == [["tram"]]


@pytest.mark.parametrize(("head", "kept"), [(heads.MLDecoder, True), (heads.ConSE, False)])
def test_thresholds_go_along_unless_the_head_scores_in_another_way(head, kept, encoder, caplog):
    model = make(head)
    model.thresholds = [0.2] * len(model.labels)
    assert model.with_labels(["dog", "tram"]).thresholds == ((0.2, 0.5) if kept else None)
    assert ("thresholds and calibration are dropped" in caplog.text) is not kept


def test_trained_labels_alone_need_no_encoder(encoder):
    assert make().predict(IMAGE, labels=["dog", "bus"]).labels.names == ("dog", "/m/bus")
    assert not encoder.calls


def test_the_bias_moves_new_labels_alone(encoder):
    plain, moved = (
        torch.from_numpy(make(bias=bias).predict(IMAGE, labels=["tram", "cat"]).scores).logit() for bias in (0.0, 1.5)
    )
    torch.testing.assert_close(moved - plain, torch.tensor([[1.5, 0.0]]), atol=1e-4, rtol=1e-4)


def test_doubled_labels_are_asked_once_and_descriptions_are_encoded(encoder, caplog):
    wanted = LabelSpace(["tram", "dog"], descriptions={"tram": "a train in a street"})
    assert make().with_labels(wanted).labels.descriptions == {"tram": "a train in a street"}
    assert encoder.calls == [["tram", "a train in a street"]]
    assert make().with_labels(["tram", " tram", "bus", "/m/bus"]).labels.names == ("tram", "/m/bus")
    assert "2 duplicate labels are ignored" in caplog.text


@pytest.mark.parametrize("labels", [[], ["cat", " "], ["cat", None], "cat"])
def test_rejects_no_label_and_blank_ones(labels, encoder):
    with pytest.raises(LabelError):
        make().with_labels(labels)


def test_ten_thousand_new_labels_and_a_very_long_one_are_one_pass(encoder):
    model = make()
    asked = [f"thing {number}" for number in range(10_000)] + ["x" * 5000]
    sizes = []
    model.backbone.register_forward_hook(lambda module, inputs, output: sizes.append(len(inputs[0])))
    found = model.predict([IMAGE] * 4, labels=asked)
    assert found.scores.shape == (4, 10_001)
    assert len(encoder.calls) == 1
    assert sizes == [3, 1]  # so many images at once that memory does not run out


def test_thresholds_of_trained_labels_are_kept(encoder):
    model = make()
    model.thresholds = (0.1, 0.2, 0.3)
    assert model.with_labels(["tram", "dog"]).thresholds == (0.5, 0.2)


def test_fusing_keeps_the_vocabulary(encoder):
    fused = make(bias=0.5).fuse()
    torch.testing.assert_close(
        fused.predict(IMAGE, labels=["tram"]).scores, make(bias=0.5).eval().predict(IMAGE, labels=["tram"]).scores,
        atol=1e-4, rtol=1e-3,
    )  # fmt: skip


def test_says_which_recipe_to_use_where_labels_are_fixed(encoder):
    model = Classifier.create("resnet10t", head=heads.LinearClassifier, labels=["cat"], pretrained=False)
    with pytest.raises(ConfigError, match=r"knows only the 1 labels it was trained on.*use the recipe zero_shot"):
        model.predict(IMAGE, labels=["tram"])
    text = {"queries": "text", "shared_projection": True, "text_vectors": torch.randn(1, 6), "width": 16}
    unnamed = Classifier.create("resnet10t", head=heads.MLDecoder, labels=["cat"], head_settings=text, pretrained=False)
    with pytest.raises(ConfigError, match="its text encoder is not recorded"):
        unnamed.with_labels(["tram"])


def test_rejects_vectors_of_another_encoder(encoder):
    with pytest.raises(ConfigError, match=r"vectors of 6 numbers, but the encoder returns 4.*trained with \(letters\)"):
        make().with_labels(["tram"], encoder=LetterEncoder(4))


def test_models_saved_before_there_was_text_still_load(tmp_path):
    model = make()
    model.text = None
    folder = model.save_pretrained(tmp_path / "model")
    config = (folder / "config.json").read_text().replace(',\n  "text": null', "")
    (folder / "config.json").write_text(config)
    assert '"text"' not in config.replace('"text",', "").replace('"text_dim"', "")
    assert Classifier.from_pretrained(folder).text is None


def test_a_vocabulary_is_a_value():
    text = make().text
    assert replace(text, new_label_bias=1.0) != text
    assert msgspec.convert(msgspec.to_builtins(text), TextVocabulary) == text
