"""Small stores of features that tell which image they are of, and features of a small backbone."""

import numpy as np
import torch
from PIL import Image

from manylabel.backbone import Backbone
from manylabel.data import ImageDataset
from manylabel.data.sources import Files
from manylabel.data.transforms import eval_transform
from manylabel.features import FeatureCache, FeatureSpec, FeatureStore, StoreWriter
from manylabel.features.runtime import relative_difference
from manylabel.images import decode
from manylabel.targets import Targets
from manylabel.types import InputSpec, LabelSpace

SPEC = InputSpec(size=(64, 64))
NUM_IMAGES = 12
SHAPES = ((4, 2, 3), (8, 1, 1))


def make_spec(**changes):
    settings = {
        "dataset": "pets",
        "backbone": "test_resnet",
        "weights": "w",
        "transform": "Resize",
        "stages": (0, 3),
        "shapes": SHAPES,
        "pooling": "none",
        "view": 0,
        "seed": 0,
    }
    return FeatureSpec(**settings | changes)


def rows_of(ids):
    """Return features that tell their image's id."""
    return [
        np.full((len(ids), *shape), 1, np.float16) * ids.astype(np.float16)[:, None, None, None] for shape in SHAPES
    ]


def write(folder, *batches, spec=None, damaged=()):
    with StoreWriter(folder, spec or make_spec(), damaged=damaged) as writer:
        for batch in batches:
            ids = np.asarray(batch, dtype=np.uint64)
            writer.append(rows_of(ids), ids=ids)


def open_store(folder):
    """Open a store and check all that is in it, as a run does with what it needs."""
    store = FeatureStore(folder, make_spec())
    store.check(np.concatenate([np.arange(0), *(np.arange(chunk.start, chunk.end) for chunk in store.chunks)]))
    return store


def found_in(folder, ids):
    """Return those of some ids that a store has, read from the features themselves."""
    store = open_store(folder)
    rows = store.find(np.asarray(ids, dtype=np.uint64))
    first, second = store.read(rows[rows >= 0])
    assert first.shape[1:] == SHAPES[0]
    assert (first == first[:, :1, :1, :1]).all()
    assert (second[:, :, 0, 0] == first[:, :1, 0, 0]).all()
    found = first[:, 0, 0, 0].int().tolist()
    assert found == [number for number, row in zip(ids, rows, strict=True) if row >= 0]
    return found


def make_backbone(stages=(-1,)):
    """Always the same weights."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return Backbone("test_resnet", pretrained=False, frozen=True, stages=stages)


def write_images(folder, count, *, first=0):
    for index in range(first, first + count):
        noise = np.random.default_rng(index).integers(256, size=(6, 8, 3), dtype=np.uint8)
        Image.fromarray(noise).resize((40, 30)).save(folder / f"{index:03}.png")


def make_dataset(folder):
    """Image i has label i % 3; of each third image label 0 is unknown."""
    names = sorted(path.name for path in folder.glob("*.png"))
    present = [[index % 3] for index in range(len(names))]
    unknown = [[0] if index % 3 == 1 else [] for index in range(len(names))]
    targets = Targets.from_lists(present, num_labels=3, unknown=unknown)
    return ImageDataset(Files(folder, names), targets, LabelSpace(["cat", "dog", "cow"]), name="noise")


PLANNED = ("pooling", "views", "augmentation", "seed")


def cache(backbone, dataset, root, *, progress=None, **settings):
    planned = {name: settings.pop(name) for name in PLANNED if name in settings}
    defaults = {"input_spec": SPEC, "batch_size": 5, "num_workers": 0, "engine": "torch"}
    features = FeatureCache(backbone, root=root, **defaults | settings)
    return features.fill(features.plan(dataset, **planned), progress=progress)


def slow_maps(backbone, dataset, spec=SPEC):
    """Return features of one image at a time."""
    images = [eval_transform(spec)(decode(dataset.images[index])) for index in range(len(dataset))]
    with torch.inference_mode():
        return [torch.cat(stage) for stage in zip(*(backbone(image[None]) for image in images), strict=True)]


def assert_close(found, expected):
    """Equal but for float16 and another order of summation."""
    assert [stage.shape for stage in found] == [stage.shape for stage in expected]
    assert all(stage.dtype == torch.float32 for stage in found)
    assert relative_difference(found, expected) < 2e-3
