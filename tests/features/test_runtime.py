import logging

import pytest
import torch

from manylabel.backbone import Backbone, fingerprint_weights
from manylabel.features import runtime
from manylabel.features.runtime import OnnxBackbone, export_path, prepare_backbone, relative_difference
from tiny_features import NUM_IMAGES, SPEC, assert_close, cache, make_backbone, slow_maps

pytestmark = pytest.mark.slow  # a backbone is exported


def path_in(folder, backbone, size=SPEC.size):
    return folder / export_path(backbone, weights=fingerprint_weights(backbone), size=size).name


@pytest.fixture(scope="module")
def exports(tmp_path_factory, backbone):
    """A folder with the export of the backbone, which takes seconds to make."""
    folder = tmp_path_factory.mktemp("exports")
    OnnxBackbone(backbone, path_in(folder, backbone), size=SPEC.size)
    return folder


def test_onnxruntime_agrees_with_torch_for_any_number_of_images(backbone, exports):
    fast = OnnxBackbone(backbone, path_in(exports, backbone), size=SPEC.size, num_threads=1)
    for count in (1, 3, 8):
        images = torch.randn(count, 3, 64, 64)
        assert relative_difference(fast(images), backbone(images)) < 1e-4
    assert len(list(exports.iterdir())) == 1


def ready(backbone, exports, **settings):
    defaults = {"engine": "auto", "export": path_in(exports, backbone), "num_images": 10_000}
    return prepare_backbone(backbone, torch.randn(2, 3, 64, 64), **defaults | settings)


def test_an_export_is_for_one_set_of_weights_stages_and_one_size(backbone, exports):
    path = path_in(exports, backbone)
    assert path.exists()
    assert path_in(exports, make_backbone()) == path
    assert path_in(exports, make_backbone((0, -1))) != path
    assert path_in(exports, backbone, size=(64, 96)) != path
    other = Backbone("test_resnet", pretrained=False, frozen=True, stages=(-1,))
    assert fingerprint_weights(other) != fingerprint_weights(backbone)
    assert path_in(exports, other) != path


def test_auto_takes_onnxruntime_where_an_export_is_there_or_worth_its_time(backbone, exports, tmp_path, monkeypatch):
    assert isinstance(ready(backbone, exports, num_images=1), OnnxBackbone)
    assert not isinstance(ready(backbone, tmp_path, num_images=1), OnnxBackbone)
    assert not isinstance(ready(backbone, exports, engine="torch"), OnnxBackbone)
    made = []
    monkeypatch.setattr(runtime, "OnnxBackbone", lambda *_, **settings: made.append(settings) or backbone)
    assert ready(backbone, tmp_path, num_images=10_000) is backbone
    assert made == [{"size": (64, 64)}]


def test_torch_takes_over_where_onnxruntime_disagrees(backbone, exports, monkeypatch, caplog):
    monkeypatch.setattr(OnnxBackbone, "__call__", lambda self, images: [stage * 1.01 for stage in backbone(images)])
    assert not isinstance(ready(backbone, exports), OnnxBackbone)
    assert "computing features with torch: onnxruntime deviates by 1.0e-02" in caplog.text


def test_torch_takes_over_where_a_backbone_cannot_be_exported(backbone, tmp_path, monkeypatch, caplog):
    def fail(*_, **__):
        raise RuntimeError("no such operator")

    monkeypatch.setattr(torch.onnx, "export", fail)
    assert not isinstance(ready(backbone, tmp_path), OnnxBackbone)
    assert "test_resnet cannot be exported to ONNX: RuntimeError: no such operator" in caplog.text
    assert not list(tmp_path.iterdir())


def test_features_of_both_engines_agree(backbone, images, exports, tmp_path, caplog, monkeypatch):
    caplog.set_level(logging.INFO, "manylabel")
    monkeypatch.setenv("MANYLABEL_CACHE", str(tmp_path))
    (tmp_path / "models").symlink_to(exports)
    fast = cache(backbone, images, tmp_path / "features", engine="onnx")
    assert "computing features with onnxruntime, which agrees" in caplog.text
    assert_close(fast.read(range(NUM_IMAGES)), slow_maps(backbone, images))


def test_an_export_that_was_damaged_is_made_again(backbone, exports, tmp_path, caplog, monkeypatch):
    whole = path_in(exports, backbone).read_bytes()
    path = tmp_path / "damaged.onnx"
    path.write_bytes(whole[: len(whole) // 2])
    monkeypatch.setattr(runtime, "write_onnx", lambda model, images, path, name: path.write_bytes(whole))
    assert isinstance(ready(backbone, tmp_path, export=path, num_images=1), OnnxBackbone)
    assert "again: it cannot be opened" in caplog.text
    assert path.read_bytes() == whole
