"""A small exported model, since exports are slow."""

import pytest
import torch

from manylabel import Classifier, heads
from manylabel.classifier import ScoreCalibration
from manylabel.inference.export import export_onnx

LABELS = ["cat", "dog", "cow"]


@pytest.fixture(scope="package")
def exported(tmp_path_factory):
    """A calibrated model with thresholds, and its file for images of any size."""
    torch.manual_seed(0)
    model = Classifier.create(
        "test_resnet", head=heads.LinearClassifier, labels=LABELS, pretrained=False, image_size=64
    ).eval()
    model.thresholds = (0.1, 0.2, 0.3)
    model.calibration = ScoreCalibration("platt", scale=(2.0, 0.5, 1.0), shift=(0.1, -1.0, 0.0))
    return model, export_onnx(model, tmp_path_factory.mktemp("exported") / "model.onnx")
