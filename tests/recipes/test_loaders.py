from types import SimpleNamespace

from torch import nn

from manylabel import Classifier, heads
from manylabel.features import cache as cache_module
from manylabel.recipes import Reporter, Setup
from manylabel.recipes.loaders import cache_sets
from manylabel.recipes.setup import TrainAndVal
from tiny_features import make_dataset, write_images


def test_images_and_weights_are_hashed_once_in_a_run(tmp_path, monkeypatch):
    monkeypatch.setenv("MANYLABEL_CACHE", str(tmp_path / "cache"))
    (tmp_path / "images").mkdir()
    write_images(tmp_path / "images", 12)
    dataset = make_dataset(tmp_path / "images")
    sets = TrainAndVal(dataset.subset(range(8)), dataset.subset(range(8, 12)))
    model = Classifier.create(
        "test_resnet", head=heads.LinearClassifier, labels=dataset.labels, pretrained=False, image_size=32
    )
    model.backbone.freeze()
    hashed = {"image_ids": 0, "fingerprint_weights": 0}

    def counted(name, real):
        return lambda given: hashed.update({name: hashed[name] + 1}) or real(given)

    for name in hashed:
        monkeypatch.setattr(cache_module, name, counted(name, getattr(cache_module, name)))
    settings = SimpleNamespace(workers=0, device="cpu", devices=1, num_views=lambda count: 2)
    setup = Setup(settings, sets, sets, model, nn.Identity(), model.head, model.backbone)
    cached = cache_sets(setup, Reporter())
    assert (len(cached.train), cached.train.num_views, len(cached.val), cached.val.num_views) == (8, 2, 4, 1)
    assert hashed == {"image_ids": 2, "fingerprint_weights": 1}  # of the training and of the validation set
