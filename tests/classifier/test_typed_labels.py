"""Typed labels for a classifier of fixed ones: trained outputs where there are any, else the backbone's own classes."""

import logging

import numpy as np
import pytest
import torch

from manylabel import heads
from manylabel.backbone import load_classes
from manylabel.classifier import Classifier
from manylabel.classifier.class_match import match_classes
from manylabel.classifier.engine import ScoreCalibration
from manylabel.errors import ConfigError, LabelError
from manylabel.explain import explain
from manylabel.heads.typed_labels import BIAS, SCALE, TRAINED_WEIGHT
from manylabel.types import LabelSpace
from unrelated_encoder import UnrelatedEncoder

BACKBONE = "offline:efficientnet_lite0"
IMAGE = np.random.default_rng(0).integers(0, 255, (96, 96, 3), dtype=np.uint8)


@pytest.fixture
def encoder(monkeypatch):
    """Stands in for the sentence encoder, which takes ten seconds to load."""
    monkeypatch.setattr("manylabel.classifier.typed_labels.open_encoder", UnrelatedEncoder)


def make(head=heads.MLDecoder, **settings):
    torch.manual_seed(0)
    small = {"width": 16, "num_heads": 2, "feedforward": 16} if head is heads.MLDecoder else {}
    model = Classifier.create(
        BACKBONE, head=head, labels=["airplane", "dog", "couch"], head_settings=small, image_size=96, **settings
    )
    return model.eval()


def test_trained_labels_keep_their_outputs_thresholds_and_calibration(encoder):
    model = make()
    model.thresholds = (0.1, 0.2, 0.4)
    model.calibration = ScoreCalibration("platt", scale=(1.0, 2.0, 3.0), shift=(0.0, 0.5, 1.0))
    own = model.predict(IMAGE).scores[0]
    other = model.with_labels(["sofa", "zebra", "dog", "aeroplane"])
    scores = other.predict(IMAGE).scores[0]
    np.testing.assert_allclose(scores[[0, 2, 3]], own[[2, 1, 0]], rtol=1e-5)
    assert other.thresholds == (0.4, 0.3, 0.2, 0.1)
    assert [each.trained for each in other.typed_labels] == ["couch", None, "dog", "airplane"]


def test_known_labels_alone_need_no_text_encoder(monkeypatch):
    monkeypatch.setattr("manylabel.classifier.typed_labels.open_encoder", lambda: pytest.fail("opened"))
    model = make(heads.LinearClassifier)
    other = model.with_labels(["couch", "airplane"])
    np.testing.assert_allclose(other.predict(IMAGE).scores[0], model.predict(IMAGE).scores[0][[2, 0]], rtol=1e-5)
    assert explain(other, IMAGE, labels="couch")[0].heat.shape == (3, 3)


def test_typed_scores_equal_a_slow_reference(encoder):
    model, labels = make(), ["zebra", "vehicle"]
    classes = load_classes(BACKBONE)
    match = match_classes(UnrelatedEncoder(), LabelSpace(labels), [*classes.names, *model.labels], classes.synsets)
    model.calibration = ScoreCalibration("platt", scale=(1.0, 2.0, 3.0), shift=(0.0, 0.5, 1.0))
    images = torch.rand(2, 3, 192, 192)
    with torch.no_grad():
        logits = model.with_labels(labels)(images)
        for image in range(2):
            final = model.backbone(images[image : image + 1])[-1]  # 6 x 6
            windows = [final[:, :, y : y + 2, x : x + 2] for y in (0, 2, 4) for x in (0, 2, 4)]
            pooled, *local = (classes(each)[0][0].softmax(0) for each in (final, *windows))
            trained = model.scores(model(images[image : image + 1]))[0]
            for label in range(2):
                weight = match.weights[label, :1000]
                evidence = TRAINED_WEIGHT * float(match.weights[label, 1000:] @ trained)
                whole = float(weight @ pooled) + evidence
                best = max(float(weight @ window) for window in local) + evidence
                expected = SCALE * (np.log(whole) + np.log(best)) / 2 + BIAS
                assert logits[image, label].item() == pytest.approx(expected, abs=1e-3)


@pytest.mark.slow
def test_a_trained_top_leaves_typed_scores_as_they_were(encoder):
    model = make()
    before = model.with_labels(["xylophone", "dog"]).predict(IMAGE).scores[0]
    with torch.no_grad():
        model.backbone.model.conv_head.weight.mul_(-1)
        model.backbone.model.blocks[6][0].conv_pwl.weight.mul_(2)
    other = model.with_labels(["xylophone", "dog"])
    after = other.predict(IMAGE).scores[0]
    assert after[0] == pytest.approx(before[0], rel=0.02)  # trained labels have a weight, too
    assert abs(after[1] - before[1]) > 1e-4
    assert other.backbone.stages == (2, 3)
    xylophone, dog = explain(other, IMAGE, labels=["xylophone", "dog"])
    assert xylophone.heat.shape == dog.heat.shape == (3, 3)
    np.testing.assert_allclose(other.fuse().predict(IMAGE).scores[0], after, rtol=1e-3)


@pytest.mark.slow
def test_a_backbone_trained_from_its_first_layer_is_refused(encoder):
    model = make(pretrained=False)
    with pytest.raises(ConfigError, match=r"training has changed all layers of .*recipe zero_shot"):
        model.with_labels(["zebra"])


def test_unknown_labels_say_so_and_are_never_tags(encoder, caplog):
    with caplog.at_level(logging.WARNING):
        other = make().with_labels(["zebra", "寿司", "12345"])
    assert [each.known for each in other.typed_labels] == [True, False, False]
    assert "12345: known: no (nearest: " in caplog.text
    assert other.thresholds == (0.3, 1.0, 1.0)


def test_a_kind_of_a_trained_label_has_its_evidence_and_says_so(encoder, caplog):
    torch.manual_seed(0)
    model = Classifier.create(BACKBONE, head=heads.LinearClassifier, labels=["person", "dog"], image_size=96).eval()
    for certain in (-20.0, 20.0):
        with torch.no_grad():
            model.head.linear.bias[0] = certain
        with caplog.at_level(logging.WARNING):
            other = model.with_labels(["nurse", "person"])
        nurse, person = other.predict(IMAGE).scores[0]
        assert (nurse > 0.3) == (person > 0.3)
    assert nurse == pytest.approx(0.516, abs=0.03)  # 0.2 * 0.3 of evidence: log(0.06) * 1.009 + 2.879 = 0.04
    assert (other.typed_labels[0].known, other.typed_labels[0].kind_of) == (True, "person")
    assert "'nurse': the model knows person, but not of which kind" in caplog.text


def test_each_text_is_encoded_once():
    texts = []

    class Recording(UnrelatedEncoder):
        def encode(self, given):
            texts.extend(given)
            return super().encode(given)

    labels = ["xylophone", "苹果", "dog", "sofa"]
    make().with_labels(labels, encoder=Recording())
    assert len(texts) == len(set(texts))
    assert {"xylophone", "苹果"} <= set(texts)


@pytest.mark.slow  # loads the sentence encoder
def test_bad_labels_are_refused_duplicates_merged_and_long_ones_cut(caplog):
    model = make()
    for bad in ([], [""], [5], None, 5):
        with pytest.raises(LabelError):
            model.with_labels(bad)
    other = model.with_labels(["zebra", "zebra ", "tram " * 300, "\udcff\n"])  # a lone surrogate
    assert len(other.labels) == 3
    assert "reads the first" in caplog.text
    assert len(repr(other.typed_labels[1])) < 200
    assert repr(other.typed_labels[2]).startswith("\\udcff: known: no")


def test_typed_labels_are_not_saved_nor_for_single_label_models(encoder, tmp_path):
    with pytest.raises(ConfigError, match="typed labels are not saved"):
        make().with_labels(["zebra"]).save_pretrained(tmp_path / "model")
    with pytest.raises(ConfigError, match="single label"):
        make(single_label=True).with_labels(["zebra"])
