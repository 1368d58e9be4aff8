from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn

from manylabel import heads
from manylabel.classifier import Classifier
from manylabel.data import Files, ImageDataset, scenes
from manylabel.errors import BadImagesError, ConfigError, LabelError
from manylabel.evaluation import ScoredImages, evaluate, score
from manylabel.targets import Targets
from manylabel.types import LabelSpace


@pytest.fixture(scope="module")
def dataset():
    return scenes(5)


def classifier(labels, **settings):
    torch.manual_seed(0)
    return Classifier.create(
        "test_resnet", head=heads.LinearClassifier, labels=labels, pretrained=False, image_size=64, **settings
    )


@pytest.mark.slow
def test_scores_are_what_the_model_predicts(dataset):
    model = classifier(dataset.labels).train()
    seen = []
    scored = score(model, dataset, batch_size=2, progress=lambda done, total: seen.append((done, total)))
    images = [dataset.images[index] for index in range(5)]
    torch.testing.assert_close(scored.scores, torch.from_numpy(model.predict(images).scores))
    assert scored.targets.equal(torch.from_numpy(dataset.targets.dense()[0]).bool())
    assert scored.names == tuple(dataset.images.name(index) for index in range(5))
    assert scored.model == "LinearClassifier on test_resnet"
    assert seen == [(2, 5), (4, 5), (5, 5)]
    assert model.training


@pytest.mark.slow
def test_labels_are_put_into_the_order_of_the_data_set(dataset):
    names = list(reversed(dataset.labels.names))
    model = classifier(["unheard-of", *names])
    model.thresholds = tuple(np.linspace(0.1, 0.9, len(model.labels)))
    scored = score(model, dataset)
    predicted = model.predict([dataset.images[index] for index in range(5)])
    torch.testing.assert_close(scored.scores, torch.from_numpy(predicted.scores[:, 1:]).flip(1))
    assert scored.thresholds == tuple(reversed(model.thresholds[1:]))
    assert "unheard-of" in scored.notes[0]


@pytest.mark.slow
def test_a_label_that_the_model_lacks_is_an_error_unless_common_labels_are_asked_for(dataset):
    model = classifier(dataset.labels.names[:3])
    with pytest.raises(LabelError, match="--common-labels"):
        score(model, dataset)
    assert score(model, dataset, common_labels=True).labels.names == dataset.labels.names[:3]


@pytest.mark.slow
def test_softmax_is_used_for_single_label_models(dataset):
    scored = score(classifier(dataset.labels, single_label=True), dataset)
    torch.testing.assert_close(scored.scores.sum(dim=1), torch.ones(5))


@pytest.mark.parametrize("model", [False, True])
@pytest.mark.parametrize("data", [False, True])
def test_whether_there_is_one_label_is_the_models_to_say(dataset, model, data):
    made = classifier(dataset.labels, single_label=model)
    made.thresholds = (0.9,) * len(made.labels)
    scored = score(made, replace(dataset, single_label=data))
    assert scored.single_label is model
    assert scored.thresholds == (None if model else made.thresholds)
    assert (scored.predicted.sum(dim=1) == 1).all().item() is model


def test_a_image_that_cannot_be_read_is_left_out_and_listed(tmp_path, dataset):
    for index in (0, 1):
        (tmp_path / f"{index}.png").write_bytes(dataset.images[index])
    (tmp_path / "bad.png").write_bytes(b"no image")
    images = Files(tmp_path, ["0.png", "bad.png", "1.png"])
    mixed = ImageDataset(images, Targets.from_lists([[0], [1], [1]], num_labels=2), LabelSpace(["cat", "dog"]))
    model = classifier(["cat", "dog"])
    with pytest.raises(BadImagesError):
        score(model, mixed)
    scored = score(model, mixed, max_bad_fraction=0.5)
    assert scored.names == ("0.png", "1.png")
    assert scored.indices.tolist() == [0, 2]
    assert scored.targets.int().tolist() == [[1, 0], [0, 1]]
    assert [image.name for image in evaluate(scored, draws=0).bad] == ["bad.png"]


def test_a_model_on_another_device_type_of_head_is_scored(dataset):
    class Constant(nn.Module):
        stages = (-1,)

        def __init__(self, in_channels, num_labels):
            super().__init__()
            self.in_channels, self.num_labels = in_channels, num_labels
            self.bias = nn.Parameter(torch.zeros(num_labels))

        def forward(self, features):
            return self.bias.expand(len(features[-1]), -1)

    labels = dataset.labels
    model = Classifier.create("test_resnet", head=Constant, labels=labels, pretrained=False, image_size=64)
    assert (score(model, dataset, device="cpu").scores == 0.5).all()


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"scores": [[1.5, 0.2]]}, "in 0..1, got 0.2 to 1.5; if these are logits"),
        ({"scores": [[0.5]]}, r"\[images, labels\] = \[1, 2\], got \[1, 1\]"),
        ({"scores": [[float("nan"), 0.5]]}, "NaN"),
        ({"targets": [[1]]}, "targets must have the shape"),
    ],
)
def test_rejects_what_is_no_score_or_does_not_fit(settings, message):
    with pytest.raises(ConfigError, match=message):
        ScoredImages.from_arrays(**{"scores": [[0.5, 0.2]], "targets": [[1, 0]], "labels": ["a", "b"]} | settings)
