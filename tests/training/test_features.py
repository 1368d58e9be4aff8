import json
import logging
import os
import pickle
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

import manylabel.training.engine as engine_module
import manylabel.training.feature_pass as feature_pass_module
from manylabel.backbone import Backbone, fingerprint_weights
from manylabel.data import ImageDataset, ImageLoader
from manylabel.data.feature_store import list_stores
from manylabel.data.sampling import class_aware_sampler
from manylabel.data.sources import Files
from manylabel.data.transforms import eval_transform, train_transform
from manylabel.errors import BadImagesError, CacheError, ConfigError, DataError, MissingExtraError
from manylabel.heads import LinearClassifier
from manylabel.images import decode
from manylabel.targets import Targets
from manylabel.training import FeatureLoader, cache_features, plan_features
from manylabel.training.onnx_backbone import OnnxBackbone, export_path, relative_difference
from manylabel.types import InputSpec, LabelSpace

SPEC = InputSpec(size=(64, 64))
NUM_PICTURES = 12


def make_backbone(stages=(-1,)):
    """Always the same weights."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return Backbone("resnet10t", pretrained=False, frozen=True, stages=stages)


def write_pictures(folder, count, *, first=0):
    for index in range(first, first + count):
        noise = np.random.default_rng(index).integers(256, size=(6, 8, 3), dtype=np.uint8)
        Image.fromarray(noise).resize((40, 30)).save(folder / f"{index:03}.png")


def make_dataset(folder):
    """Picture i has label i % 3; of each third picture label 0 is unknown."""
    names = sorted(path.name for path in folder.glob("*.png"))
    present = [[index % 3] for index in range(len(names))]
    unknown = [[0] if index % 3 == 1 else [] for index in range(len(names))]
    targets = Targets.from_lists(present, num_labels=3, unknown=unknown)
    return ImageDataset(Files(folder, names), targets, LabelSpace(["cat", "dog", "cow"]), name="noise")


@pytest.fixture(scope="module")
def backbone():
    return make_backbone()


@pytest.fixture(scope="module")
def pictures(tmp_path_factory):
    folder = tmp_path_factory.mktemp("pictures")
    write_pictures(folder, NUM_PICTURES)
    return make_dataset(folder)


@pytest.fixture
def own_pictures(tmp_path):
    """Pictures that a test may change."""
    folder = tmp_path / "pictures"
    folder.mkdir()
    write_pictures(folder, NUM_PICTURES)
    return make_dataset(folder)


def cache(backbone, dataset, root, **settings):
    defaults = {"input_spec": SPEC, "batch_size": 5, "num_workers": 0, "engine": "torch"}
    return cache_features(backbone, dataset, root=root, **defaults | settings)


@pytest.fixture
def computed(monkeypatch):
    """The positions of pictures that go through a backbone, in the order in which they do."""
    positions = []
    fill = feature_pass_module.FeaturePass.fill

    def watched(self, writer, missing, transform):
        positions.extend(missing.tolist())
        return fill(self, writer, missing, transform)

    monkeypatch.setattr(feature_pass_module.FeaturePass, "fill", watched)
    return positions


def slow_maps(backbone, dataset):
    """Features of one picture at a time."""
    pictures = [eval_transform(SPEC)(decode(dataset.pictures[index])) for index in range(len(dataset))]
    with torch.inference_mode():
        return [torch.cat(stage) for stage in zip(*(backbone(picture[None]) for picture in pictures), strict=True)]


def assert_close(found, expected):
    """Equal but for float16 and another order of summation."""
    assert [stage.shape for stage in found] == [stage.shape for stage in expected]
    assert all(stage.dtype == torch.float32 for stage in found)
    assert relative_difference(found, expected) < 2e-3


def test_gives_what_the_backbone_gives_for_every_stage(pictures, tmp_path):
    backbone = make_backbone(stages=(0, 2, -1))
    cached = cache(backbone, pictures, tmp_path)
    assert cached.channels == backbone.channels
    assert_close(cached.read(range(NUM_PICTURES)), slow_maps(backbone, pictures))
    shuffled = [7, 0, 11, 7]
    expected = [stage[shuffled] for stage in cached.read(range(NUM_PICTURES))]
    assert all(torch.equal(*pair) for pair in zip(cached.read(shuffled), expected, strict=True))


@pytest.mark.parametrize("pooling", ["average", "max"])
def test_gives_pooled_features_as_maps_of_one_cell(backbone, pictures, tmp_path, pooling):
    pool = {"average": lambda stage: stage.mean((2, 3)), "max": lambda stage: stage.amax((2, 3))}[pooling]
    expected = [pool(stage)[:, :, None, None] for stage in slow_maps(backbone, pictures)]
    assert_close(cache(backbone, pictures, tmp_path, pooling=pooling).read(range(NUM_PICTURES)), expected)


def test_a_head_trains_on_them_as_on_maps(backbone, pictures, tmp_path):
    cached = cache(backbone, pictures, tmp_path, pooling="average")
    head = LinearClassifier(cached.channels[-1], 3)
    batch = next(iter(FeatureLoader(cached, batch_size=4)))
    whole = slow_maps(backbone, pictures)[-1][:4]
    assert torch.allclose(head(batch.features), head([whole]), atol=1e-2)


def test_workers_change_nothing(backbone, pictures, tmp_path):
    here = cache(backbone, pictures, tmp_path / "a", views=2)
    there = cache(backbone, pictures, tmp_path / "b", views=2, num_workers=2)
    for view in (0, 1):
        assert torch.equal(*(cached.read(range(NUM_PICTURES), view)[0] for cached in (here, there)))


def test_nothing_is_computed_twice(backbone, pictures, tmp_path, computed):
    first = cache(backbone, pictures, tmp_path)
    assert computed == list(range(NUM_PICTURES))
    second = cache(backbone, pictures, tmp_path, batch_size=3)
    assert len(computed) == NUM_PICTURES
    assert torch.equal(first.read([3])[0], second.read([3])[0])


def test_another_part_of_the_pictures_costs_only_what_is_new(backbone, pictures, tmp_path, computed):
    few = cache(backbone, pictures.subset([8, 2, 5]), tmp_path)
    whole = cache(backbone, pictures, tmp_path)
    assert computed[3:] == [index for index in range(NUM_PICTURES) if index not in (8, 2, 5)]
    part = cache(backbone, pictures.subset([5, 4]), tmp_path)
    assert len(computed) == NUM_PICTURES
    assert torch.equal(few.read([2])[0], part.read([0])[0])
    assert_close(whole.read(range(NUM_PICTURES)), slow_maps(backbone, pictures))


def test_a_picture_that_changed_is_computed_again(backbone, own_pictures, tmp_path, computed):
    cache(backbone, own_pictures, tmp_path / "store")
    path = own_pictures.pictures[4]
    Image.new("RGB", (50, 50), "red").save(path)
    cached = cache(backbone, own_pictures, tmp_path / "store")
    assert computed[NUM_PICTURES:] == [4]
    assert_close(cached.read(range(NUM_PICTURES)), slow_maps(backbone, own_pictures))


@pytest.mark.parametrize(
    "change",
    [
        {"input_spec": replace(SPEC, mean=(0.5, 0.5, 0.5))},
        {"pooling": "max"},
        {"stages": (2, 3)},
        {"statistic": 0.1},
    ],
)
def test_other_settings_or_weights_never_meet_these_features(pictures, tmp_path, computed, change):
    cache(make_backbone(), pictures, tmp_path)
    settings = dict(change)
    backbone = make_backbone(settings.pop("stages", (-1,)))
    next(backbone.buffers()).add_(settings.pop("statistic", 0.0))  # of a batch-norm
    cache(backbone, pictures, tmp_path, **settings)
    assert len(computed) == 2 * NUM_PICTURES


def test_views_follow_from_the_picture_and_the_seed_alone(backbone, pictures, tmp_path, computed):
    cached = cache(backbone, pictures, tmp_path / "a", views=3)
    assert cached.num_views == 3
    other = cache(backbone, pictures.subset([6, 1]), tmp_path / "b", views=2, batch_size=1)
    assert torch.allclose(cached.read([6, 1], view=1)[0], other.read([0, 1], view=1)[0], atol=2e-2)
    assert_close(cached.read(range(NUM_PICTURES), view=0), slow_maps(backbone, pictures))
    views = [cached.read(range(NUM_PICTURES), view)[0] for view in range(3)]
    assert not any(torch.allclose(views[first], views[second], atol=0.1) for first, second in ((0, 1), (0, 2), (1, 2)))
    before = len(computed)
    cache(backbone, pictures, tmp_path / "a", views=2)
    assert len(computed) == before
    again = cache(backbone, pictures, tmp_path / "a", views=2, seed=1)
    assert len(computed) == before + NUM_PICTURES  # view 0 has no chance in it
    assert not torch.allclose(again.read(range(NUM_PICTURES), view=1)[0], views[1], atol=0.1)


def test_views_can_be_made_by_another_transform(backbone, pictures, tmp_path):
    plain = train_transform(SPEC, flip=False, cutout=0, randaugment=False)
    cached = cache(backbone, pictures, tmp_path, views=2, augmentation=plain)
    assert torch.equal(*(cached.read(range(NUM_PICTURES), view)[0] for view in (0, 1)))


def test_reads_another_view_of_each_picture(backbone, pictures, tmp_path):
    cached = cache(backbone, pictures, tmp_path, views=3)
    views = [2, 0, 1, 1]
    expected = torch.cat([cached.read([index], view)[0] for index, view in zip([5, 6, 7, 5], views, strict=True)])
    assert torch.equal(cached.read([5, 6, 7, 5], views)[0], expected)
    with pytest.raises(ConfigError, match="there are the views 0 to 2"):
        cached.read([0], 3)


def test_bad_pictures_are_named_and_left_out(backbone, own_pictures, tmp_path, caplog):
    own_pictures.pictures[3].write_bytes(b"no picture")
    own_pictures.pictures[11].unlink()
    cached = cache(backbone, own_pictures, tmp_path / "store", max_bad_share=0.2, batch_size=1)
    assert [(picture.index, picture.name) for picture in cached.bad] == [(3, "003.png"), (11, "011.png")]
    assert "bad picture '003.png'" in caplog.text
    good = [index for index in range(NUM_PICTURES) if index not in (3, 11)]
    assert [cached.dataset.pictures.name(index) for index in range(10)] == [f"{index:03}.png" for index in good]
    assert (cached.dataset.targets.dense()[0] == own_pictures.targets.dense(good)[0]).all()
    assert_close(cached.read(range(10)), slow_maps(backbone, own_pictures.subset(good)))
    assert set(list_stores(tmp_path / "store")[0].bad) == {"003.png", "011.png"}
    write_pictures(own_pictures.pictures.root, NUM_PICTURES)
    assert not cache(backbone, own_pictures, tmp_path / "store").bad


def test_too_many_bad_pictures_stop_the_run_with_their_names(backbone, own_pictures, tmp_path, computed):
    for index in (0, 8):
        own_pictures.pictures[index].write_bytes(b"")
    with pytest.raises(BadImagesError, match=r"2 of 12 pictures(.|\n)*'000.png'(.|\n)*'008.png'"):
        cache(backbone, own_pictures, tmp_path / "store", max_bad_share=0.1)
    cached = cache(backbone, own_pictures, tmp_path / "store", max_bad_share=0.2)
    assert computed[NUM_PICTURES:] == [0, 8, 10, 11]  # what was good before it stopped is kept
    assert len(cached) == 10


def test_says_so_if_no_picture_can_be_read(backbone, own_pictures, tmp_path):
    for index in range(NUM_PICTURES):
        own_pictures.pictures[index].unlink()
    with pytest.raises(DataError, match="none of the 12 pictures of noise can be read"):
        cache(backbone, own_pictures, tmp_path / "store", max_bad_share=1.0)


def test_damaged_features_are_computed_again(backbone, pictures, tmp_path, caplog, computed):
    whole = cache(backbone, pictures, tmp_path, batch_size=4)
    expected = whole.read(range(NUM_PICTURES))[0]
    path = whole.stores[0].files.stages[0]
    content = bytearray(path.read_bytes())
    content[-1] ^= 0xFF
    path.write_bytes(content)
    repaired = cache(backbone, pictures, tmp_path, batch_size=4)
    assert "what is damaged is computed again" in caplog.text
    assert computed[NUM_PICTURES:] == [8, 9, 10, 11]
    assert torch.equal(repaired.read(range(NUM_PICTURES))[0], expected)


def test_room_is_looked_at_before_anything_is_computed(backbone, pictures, tmp_path, monkeypatch, computed):
    usage = type("Usage", (), {"free": 1000})
    monkeypatch.setattr("shutil.disk_usage", lambda path: usage)
    with pytest.raises(CacheError, match=r"but the disk of .* has 0.0 GB free; set MANYLABEL_CACHE"):
        cache(backbone, pictures, tmp_path)
    assert not computed


def test_the_plan_tells_what_is_new_and_what_it_takes(backbone, pictures, tmp_path):
    cache(backbone, pictures.subset([0, 1]), tmp_path)
    plan = plan_features(backbone, pictures, input_spec=SPEC, views=2, root=tmp_path)
    bytes_each = 512 * 2 * 2 * 2
    assert plan.missing == 2 * NUM_PICTURES - 2
    assert (plan.num_bytes, plan.missing_bytes) == (24 * bytes_each, 22 * bytes_each)
    cached = cache(backbone, pictures, tmp_path, views=2)
    stages = [store.files.stages[0].stat().st_size for store in cached.stores]
    assert sum(stages) == plan.num_bytes


def test_progress_counts_every_view_and_ends_at_the_total(backbone, pictures, tmp_path):
    told = []
    cache(backbone, pictures.subset(range(6)), tmp_path)
    cache(backbone, pictures, tmp_path, views=2, progress=told.append)
    assert [progress.done for progress in told] == [6, 11, 12, 12, 17, 22, 24]
    assert {progress.total for progress in told} == {24}
    assert told[0].seconds_left is None
    assert told[-1].pictures_per_second > 0
    assert told[-1].seconds_left == 0


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"pooling": "mean"}, "pooling cannot be 'mean'; .*average, earlier, max, none"),
        ({"engine": "tf"}, "engine cannot be 'tf'; .*auto, onnx, torch"),
        ({"views": 0}, "views must be at least 1, got 0"),
        ({"batch_size": 0}, "batch_size must be at least 1"),
        ({"max_bad_share": 2}, "max_bad_share must be in 0..1, got 2"),
    ],
)
def test_rejects_wrong_settings(backbone, pictures, tmp_path, settings, message):
    with pytest.raises(ConfigError, match=message):
        cache(backbone, pictures, tmp_path, **settings)


def test_rejects_a_backbone_that_is_not_frozen(pictures, tmp_path):
    with pytest.raises(ConfigError, match="build it with frozen=True"):
        cache(Backbone("resnet10t", pretrained=False), pictures, tmp_path)


def test_rejects_features_that_float16_cannot_hold(pictures, tmp_path):
    backbone = make_backbone()
    with torch.no_grad():
        for parameter in backbone.model.layer4.parameters():
            parameter.mul_(1e5)
    with pytest.raises(ConfigError, match="float16 cannot hold"):
        cache(backbone, pictures, tmp_path)


def test_a_seeded_run_goes_on_the_same_whether_features_were_there_or_not(backbone, pictures, tmp_path):
    states = []
    for _ in range(2):
        torch.manual_seed(3)
        cached = cache(backbone, pictures, tmp_path, views=2)
        list(FeatureLoader(cached, shuffle=True))
        states.append(torch.get_rng_state())
    assert torch.equal(*states)


def batches_of(loader):
    return [(batch.indices.tolist(), batch.features[0].clone()) for batch in loader]


def test_order_and_views_follow_from_seed_and_epoch_alone(backbone, pictures, tmp_path):
    cached = cache(backbone, pictures, tmp_path, views=3)
    loader = FeatureLoader(cached, batch_size=5, shuffle=True, seed=4)
    epochs = [batches_of(loader) for _ in range(3)]
    assert epochs[0][0][0] != epochs[1][0][0]
    fresh = FeatureLoader(cached, batch_size=5, shuffle=True, seed=4)
    fresh.set_epoch(2)
    for (indices, features), (expected, right) in zip(batches_of(fresh), epochs[2], strict=True):
        assert indices == expected
        assert torch.equal(features, right)
    found = torch.cat([features for _, features in epochs[0]])
    indices = [index for batch, _ in epochs[0] for index in batch]
    views = torch.stack([cached.read(indices, view)[0] for view in range(3)])
    drawn = (views == found).flatten(2).all(2).int().argmax(0)
    assert set(drawn.tolist()) == {0, 1, 2}


def test_the_order_is_that_of_pictures(backbone, pictures, tmp_path):
    cached = cache(backbone, pictures, tmp_path)
    settings = {"batch_size": 5, "shuffle": True, "seed": 9}
    loaders = FeatureLoader(cached, **settings), ImageLoader(pictures, transform=eval_transform(SPEC), **settings)
    for ours, theirs in zip(*loaders, strict=True):
        assert torch.equal(ours.indices, theirs.indices)
        assert torch.equal(ours.targets, theirs.targets)
        assert torch.equal(ours.known, theirs.known)


def test_a_sampler_and_a_fixed_view_are_followed(backbone, pictures, tmp_path):
    cached = cache(backbone, pictures, tmp_path, views=2)
    sampler = class_aware_sampler(cached.dataset.targets, num_samples=7, seed=1)
    expected = list(sampler)
    loader = FeatureLoader(cached, batch_size=4, sampler=sampler, view=1)
    indices, features = zip(*batches_of(loader), strict=True)
    assert [index for batch in indices for index in batch] == expected
    assert torch.equal(torch.cat(features), cached.read(expected, view=1)[0])
    with pytest.raises(ConfigError, match="not both"):
        FeatureLoader(cached, sampler=sampler, shuffle=True)
    with pytest.raises(ConfigError, match="view must be 'random' or 0 to 1, got 2"):
        FeatureLoader(cached, view=2)


def test_a_part_reads_the_same_features_also_in_another_process(backbone, pictures, tmp_path):
    cached = cache(backbone, pictures, tmp_path, views=2)
    part = pickle.loads(pickle.dumps(cached.subset([9, 4])))
    assert len(pickle.dumps(cached)) < 100_000
    assert torch.equal(part.read([0, 1], 1)[0], cached.read([9, 4], 1)[0])
    assert part.dataset.pictures.name(0) == "009.png"
    mask = np.arange(NUM_PICTURES) % 2 == 0
    assert torch.equal(cached.subset(mask).read([1])[0], cached.read([2])[0])


SCENARIO = """
import os, signal, sys
sys.path[:0] = {paths!r}
from pathlib import Path
from manylabel.data.feature_store import list_stores
from test_features import cache, make_backbone, make_dataset

backbone, dataset, root = make_backbone(), make_dataset(Path({pictures!r})), Path({root!r})

def start():
    reader, writer = os.pipe()
    process = os.fork()
    if process:
        os.close(writer)
        return process, os.fdopen(reader)
    with os.fdopen(writer, "w") as output:
        tell = lambda progress: print(progress.done, file=output, flush=True)
        cached = cache(backbone, dataset, root, batch_size=4, views=2, progress=tell)
        print("end", len(cached), file=output, flush=True)
    os._exit(0)

process, output = start()
while int(output.readline()) < {kill_at}:
    pass
os.kill(process, signal.SIGKILL)
os.waitpid(process, 0)
print(sum(store.num_pictures for store in list_stores(root)))
for process, output in [start(), start()]:
    print(output.read().splitlines()[-1])
    os.waitpid(process, 0)
"""


def test_a_killed_run_goes_on_and_two_at_once_share_the_work(tmp_path):
    folder, root, count = tmp_path / "pictures", tmp_path / "store", 80
    folder.mkdir()
    write_pictures(folder, count)
    paths = [str(Path(__file__).parent), *(path for path in sys.path if path.endswith("src"))]
    code = SCENARIO.format(paths=paths, pictures=str(folder), root=str(root), kill_at=count + 8)  # in the second view
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    run = subprocess.run([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True, env=environment, check=True)
    done, *ends = run.stdout.splitlines()
    assert count + 8 <= int(done) < 2 * count
    assert ends == [f"end {count}"] * 2
    assert [store.num_pictures for store in list_stores(root)] == [count, count]  # none twice
    last = count - 1
    again = cache(make_backbone(), make_dataset(folder), root, views=2)
    fresh = cache(make_backbone(), make_dataset(folder).subset([0, last]), tmp_path / "fresh", views=2)
    for view in (0, 1):
        assert_close(again.read([0, last], view), fresh.read([0, 1], view))


@pytest.fixture(scope="module")
def exports(tmp_path_factory, backbone):
    """A folder with the export of the backbone, which takes seconds to make."""
    folder = tmp_path_factory.mktemp("exports")
    OnnxBackbone(backbone, size=SPEC.size, folder=folder)
    return folder


def test_onnxruntime_agrees_with_torch_for_any_number_of_pictures(backbone, exports):
    fast = OnnxBackbone(backbone, size=SPEC.size, folder=exports, num_threads=1)
    for count in (1, 3, 8):
        images = torch.randn(count, 3, 64, 64)
        assert relative_difference(fast(images), backbone(images)) < 1e-4
    assert len(list(exports.iterdir())) == 1


def ready(backbone, exports, **settings):
    defaults = {"engine": "auto", "exports": exports, "num_pictures": 10_000}
    return engine_module.ready(backbone, torch.randn(2, 3, 64, 64), **defaults | settings)


def test_an_export_is_for_one_set_of_weights_stages_and_one_size(backbone, exports):
    path = export_path(backbone, size=(64, 64), folder=exports)
    assert path.exists()
    assert export_path(make_backbone(), size=(64, 64), folder=exports) == path
    assert export_path(make_backbone((0, -1)), size=(64, 64), folder=exports) != path
    assert export_path(backbone, size=(64, 96), folder=exports) != path
    other = Backbone("resnet10t", pretrained=False, frozen=True, stages=(-1,))
    assert fingerprint_weights(other) != fingerprint_weights(backbone)
    assert export_path(other, size=(64, 64), folder=exports) != path


def test_auto_takes_onnxruntime_where_an_export_is_there_or_worth_its_time(backbone, exports, tmp_path, monkeypatch):
    assert isinstance(ready(backbone, exports, num_pictures=1), OnnxBackbone)
    assert not isinstance(ready(backbone, tmp_path, num_pictures=1), OnnxBackbone)
    assert not isinstance(ready(backbone, exports, engine="torch"), OnnxBackbone)
    made = []
    monkeypatch.setattr(engine_module, "OnnxBackbone", lambda *_, **settings: made.append(settings) or backbone)
    assert ready(backbone, tmp_path, num_pictures=10_000) is backbone
    assert made == [{"size": (64, 64), "folder": tmp_path}]


def test_torch_takes_over_where_onnxruntime_disagrees(backbone, exports, monkeypatch, caplog):
    monkeypatch.setattr(OnnxBackbone, "__call__", lambda self, images: [stage * 1.01 for stage in backbone(images)])
    assert not isinstance(ready(backbone, exports), OnnxBackbone)
    assert "computed by torch: onnxruntime's are off by 1.0e-02" in caplog.text


def test_torch_takes_over_where_a_backbone_cannot_be_exported(backbone, tmp_path, monkeypatch, caplog):
    def fail(*_, **__):
        raise RuntimeError("no such operator")

    monkeypatch.setattr(torch.onnx, "export", fail)
    assert not isinstance(ready(backbone, tmp_path), OnnxBackbone)
    assert "resnet10t cannot be exported to ONNX: RuntimeError: no such operator" in caplog.text
    assert not list(tmp_path.iterdir())


def test_torch_takes_over_where_onnxruntime_is_not_installed(backbone, tmp_path, monkeypatch, caplog):
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    assert not isinstance(ready(backbone, tmp_path), OnnxBackbone)
    assert 'pip install "manylabel[onnx]"' in caplog.text
    with pytest.raises(MissingExtraError):
        ready(backbone, tmp_path, engine="onnx")


def test_features_of_both_engines_agree(backbone, pictures, exports, tmp_path, caplog):
    caplog.set_level(logging.INFO)
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "onnx").symlink_to(exports)
    fast = cache(backbone, pictures, tmp_path / "a", engine="onnx")
    assert "computed by onnxruntime, which agrees" in caplog.text
    assert_close(fast.read(range(NUM_PICTURES)), slow_maps(backbone, pictures))


def test_the_store_tells_what_it_is_of(backbone, pictures, tmp_path):
    cache(backbone, pictures, tmp_path, pooling="max")
    said = json.loads((next(tmp_path.glob("*/kind.json"))).read_text())
    assert (said["dataset"], said["backbone"], said["pooling"], said["stages"]) == ("noise", "resnet10t", "max", [3])
    assert "Resize(size=(64, 64)" in said["transform"]
