import json

import pytest
import torch
from PIL import Image

from manylabel.backbone import Backbone
from manylabel.classifier import Classifier
from manylabel.data.transforms import train_transform
from manylabel.errors import BadImagesError, CacheError, ConfigError, DataError
from manylabel.features import FeatureCache, FeatureLoader
from manylabel.features import cache as cache_module
from manylabel.heads import LinearClassifier, MLDecoder
from manylabel.lock import WriterLock
from manylabel.types import InputSpec
from tiny_features import NUM_IMAGES, SPEC, assert_close, cache, make_backbone, slow_maps, write_images


@pytest.fixture
def computed(monkeypatch):
    """The positions of images that go through a backbone, in the order in which they do."""
    positions = []
    loader = cache_module._Pass._loader

    def watched(self, missing, view):
        positions.extend(missing.tolist())
        return loader(self, missing, view)

    monkeypatch.setattr(cache_module._Pass, "_loader", watched)
    return positions


def test_gives_what_the_backbone_gives_for_every_stage(images, tmp_path):
    backbone = make_backbone(stages=(0, 2, -1))
    cached = cache(backbone, images, tmp_path)
    assert cached.channels == backbone.channels
    assert_close(cached.read(range(NUM_IMAGES)), slow_maps(backbone, images))
    shuffled = [7, 0, 11, 7]
    expected = [stage[shuffled] for stage in cached.read(range(NUM_IMAGES))]
    assert all(torch.equal(*pair) for pair in zip(cached.read(shuffled), expected, strict=True))


@pytest.mark.parametrize("pooling", ["average", "max"])
def test_gives_pooled_features_as_maps_of_one_position(backbone, images, tmp_path, pooling):
    pool = {"average": lambda stage: stage.mean((2, 3)), "max": lambda stage: stage.amax((2, 3))}[pooling]
    expected = [pool(stage)[:, :, None, None] for stage in slow_maps(backbone, images)]
    assert_close(cache(backbone, images, tmp_path, pooling=pooling).read(range(NUM_IMAGES)), expected)


def test_a_head_trains_on_them_as_on_maps(backbone, images, tmp_path):
    cached = cache(backbone, images, tmp_path, pooling="average")
    head = LinearClassifier(cached.channels[-1], 3)
    batch = next(iter(FeatureLoader(cached, batch_size=4)))
    whole = slow_maps(backbone, images)[-1][:4]
    assert torch.allclose(head(batch.features), head([whole]), atol=1e-2)


@pytest.mark.slow  # starts processes
def test_workers_change_nothing(backbone, images, tmp_path):
    here = cache(backbone, images, tmp_path / "a", views=2)
    there = cache(backbone, images, tmp_path / "b", views=2, num_workers=2)
    for view in (0, 1):
        assert torch.equal(*(cached.read(range(NUM_IMAGES), view)[0] for cached in (here, there)))


def test_nothing_is_computed_twice(backbone, images, tmp_path, computed):
    first = cache(backbone, images, tmp_path)
    assert computed == list(range(NUM_IMAGES))
    second = cache(backbone, images, tmp_path, batch_size=3)
    assert len(computed) == NUM_IMAGES
    assert torch.equal(first.read([3])[0], second.read([3])[0])


def test_another_part_of_the_images_costs_only_what_is_new(backbone, images, tmp_path, computed):
    few = cache(backbone, images.subset([8, 2, 5]), tmp_path)
    whole = cache(backbone, images, tmp_path)
    assert computed[3:] == [index for index in range(NUM_IMAGES) if index not in (8, 2, 5)]
    part = cache(backbone, images.subset([5, 4]), tmp_path)
    assert len(computed) == NUM_IMAGES
    assert torch.equal(few.read([2])[0], part.read([0])[0])
    assert_close(whole.read(range(NUM_IMAGES)), slow_maps(backbone, images))


def test_an_image_that_changed_is_computed_again(backbone, own_images, tmp_path, computed):
    cache(backbone, own_images, tmp_path / "store")
    path = own_images.images[4]
    Image.new("RGB", (50, 50), "red").save(path)
    cached = cache(backbone, own_images, tmp_path / "store")
    assert computed[NUM_IMAGES:] == [4]
    assert_close(cached.read(range(NUM_IMAGES)), slow_maps(backbone, own_images))


@pytest.mark.parametrize(
    "change",
    [
        {"input_spec": InputSpec(size=SPEC.size, mean=(0.5, 0.5, 0.5))},
        {"pooling": "max"},
        {"stages": (2, 3)},
        {"statistic": 0.1},
    ],
)
def test_other_settings_or_weights_never_meet_these_features(images, tmp_path, computed, change):
    cache(make_backbone(), images, tmp_path)
    settings = dict(change)
    backbone = make_backbone(settings.pop("stages", (-1,)))
    next(backbone.buffers()).add_(settings.pop("statistic", 0.0))  # of a batch-norm
    cache(backbone, images, tmp_path, **settings)
    assert len(computed) == 2 * NUM_IMAGES


@pytest.mark.slow
def test_views_follow_from_the_image_and_the_seed_alone(backbone, images, tmp_path, computed):
    cached = cache(backbone, images, tmp_path / "a", views=3)
    assert cached.num_views == 3
    other = cache(backbone, images.subset([6, 1]), tmp_path / "b", views=2, batch_size=1)
    assert torch.allclose(cached.read([6, 1], view=1)[0], other.read([0, 1], view=1)[0], atol=2e-2)
    assert_close(cached.read(range(NUM_IMAGES), view=0), slow_maps(backbone, images))
    views = [cached.read(range(NUM_IMAGES), view)[0] for view in range(3)]
    assert not any(torch.allclose(views[first], views[second], atol=0.1) for first, second in ((0, 1), (0, 2), (1, 2)))
    before = len(computed)
    cache(backbone, images, tmp_path / "a", views=2)
    assert len(computed) == before
    again = cache(backbone, images, tmp_path / "a", views=2, seed=1)
    assert len(computed) == before + NUM_IMAGES  # view 0 has no chance in it
    assert not torch.allclose(again.read(range(NUM_IMAGES), view=1)[0], views[1], atol=0.1)


def test_views_can_be_made_by_another_transform(backbone, images, tmp_path):
    plain = train_transform(SPEC, flip=False, cutout=0, randaugment=False)
    cached = cache(backbone, images, tmp_path, views=2, augmentation=plain)
    assert torch.equal(*(cached.read(range(NUM_IMAGES), view)[0] for view in (0, 1)))


def test_reads_another_view_of_each_image(backbone, images, tmp_path):
    cached = cache(backbone, images, tmp_path, views=3)
    views = [2, 0, 1, 1]
    expected = torch.cat([cached.read([index], view)[0] for index, view in zip([5, 6, 7, 5], views, strict=True)])
    assert torch.equal(cached.read([5, 6, 7, 5], views)[0], expected)
    with pytest.raises(ConfigError, match="view must be 0 to 2"):
        cached.read([0], 3)


def test_bad_images_are_named_and_left_out(backbone, own_images, tmp_path, caplog):
    own_images.images[3].write_bytes(b"no image")
    own_images.images[11].unlink()
    cached = cache(backbone, own_images, tmp_path / "store", max_bad_fraction=0.2, batch_size=1)
    assert [(image.index, image.name) for image in cached.bad] == [(3, "003.png"), (11, "011.png")]
    assert "bad image '003.png'" in caplog.text
    good = [index for index in range(NUM_IMAGES) if index not in (3, 11)]
    assert [cached.dataset.images.name(index) for index in range(10)] == [f"{index:03}.png" for index in good]
    assert (cached.dataset.targets.dense()[0] == own_images.targets.dense(good)[0]).all()
    assert_close(cached.read(range(10)), slow_maps(backbone, own_images.subset(good)))
    write_images(own_images.images.root, NUM_IMAGES)
    assert not cache(backbone, own_images, tmp_path / "store").bad


def test_too_many_bad_images_stop_the_run_with_their_names(backbone, own_images, tmp_path, computed):
    for index in (0, 8):
        own_images.images[index].write_bytes(b"")
    with pytest.raises(BadImagesError, match=r"2 of 12 images(.|\n)*'000.png'(.|\n)*'008.png'"):
        cache(backbone, own_images, tmp_path / "store", max_bad_fraction=0.1)
    cached = cache(backbone, own_images, tmp_path / "store", max_bad_fraction=0.2)
    assert computed[NUM_IMAGES:] == [0, 8, 10, 11]  # what was good before it stopped is kept
    assert len(cached) == 10


def test_says_so_if_no_image_can_be_read(backbone, own_images, tmp_path):
    for index in range(NUM_IMAGES):
        own_images.images[index].unlink()
    with pytest.raises(DataError, match="none of the 12 images of noise can be read"):
        cache(backbone, own_images, tmp_path / "store", max_bad_fraction=1.0)


def test_damaged_features_are_computed_again(backbone, images, tmp_path, caplog, computed):
    whole = cache(backbone, images, tmp_path, batch_size=4)
    expected = whole.read(range(NUM_IMAGES))[0]
    path = whole.stores[0].files.stages[0]
    content = bytearray(path.read_bytes())
    content[-1] ^= 0xFF
    path.write_bytes(content)
    repaired = cache(backbone, images, tmp_path, batch_size=4)
    assert caplog.text.count("are damaged; recomputing those batches") == 1
    assert computed[NUM_IMAGES:] == [8, 9, 10, 11]
    assert torch.equal(repaired.read(range(NUM_IMAGES))[0], expected)


def test_a_bad_image_is_reported_once_however_many_views_there_are(backbone, own_images, tmp_path, caplog, computed):
    own_images.images[3].write_bytes(b"no image")
    cached = cache(backbone, own_images, tmp_path / "store", views=3, max_bad_fraction=0.2)
    assert caplog.text.count("003.png") == 1
    assert computed.count(3) == 1
    assert len(cached) == NUM_IMAGES - 1


def test_everything_is_hashed_once_however_many_poolings_are_planned(backbone, images, tmp_path, monkeypatch):
    counts = {"image_ids": 0, "fingerprint_weights": 0, "forward": 0}

    def counted(name, real):
        return lambda *args: counts.update({name: counts[name] + 1}) or real(*args)

    for name in ("image_ids", "fingerprint_weights"):
        monkeypatch.setattr(cache_module, name, counted(name, getattr(cache_module, name)))
    monkeypatch.setattr(type(backbone), "forward", counted("forward", type(backbone).forward))
    features = FeatureCache(backbone, input_spec=SPEC, root=tmp_path, batch_size=NUM_IMAGES, num_workers=0)
    plan = features.plan(images, pooling="average")
    whole = features.pooled(plan, "none")
    assert whole.num_bytes == 4 * plan.num_bytes
    assert counts == {"image_ids": 1, "fingerprint_weights": 1, "forward": 1}
    features.fill(plan)
    assert counts["image_ids"] == counts["fingerprint_weights"] == 1


def test_averages_are_those_of_the_maps_that_training_cached(backbone, images, tmp_path, computed):
    model = Classifier(backbone, MLDecoder(backbone.channels[-1], 3, width=8), images.labels)
    maps = cache(backbone, images, tmp_path, input_spec=model.input_spec)  # as recipes do
    before = len(computed)
    found, averages = FeatureCache(backbone, root=tmp_path, num_workers=0).averages(images)
    assert len(computed) == before == NUM_IMAGES
    assert torch.equal(averages, maps.read(range(NUM_IMAGES))[-1].mean((2, 3)))
    assert len(found) == NUM_IMAGES


def test_averages_of_new_images_take_the_room_of_vectors(backbone, images, tmp_path):
    cached, averages = FeatureCache(backbone, root=tmp_path, num_workers=0).averages(images)
    assert cached.stores[0].spec.pooling == "average"
    expected = slow_maps(backbone, images, backbone.input_spec.uncropped())[-1].mean((2, 3))
    assert_close([averages], [expected])


@pytest.mark.parametrize("name", ["stage-3.f16", "images.u64", "journal.jsonl", "spec.json"])
def test_whichever_file_is_damaged_features_are_right_again(backbone, images, tmp_path, name, computed):
    expected = cache(backbone, images, tmp_path, batch_size=4).read(range(NUM_IMAGES))[0]
    path = next(tmp_path.glob(f"*/{name}"))
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 0xFF
    path.write_bytes(content)
    again = cache(backbone, images, tmp_path, batch_size=4)
    assert torch.equal(again.read(range(NUM_IMAGES))[0], expected)
    assert len(computed) == NUM_IMAGES + (0 if name == "spec.json" else 4)
    cache(backbone, images, tmp_path)
    assert len(computed) == NUM_IMAGES + (0 if name == "spec.json" else 4)  # repaired for good


def test_room_is_looked_at_before_anything_is_computed(backbone, images, tmp_path, monkeypatch, computed):
    usage = type("Usage", (), {"free": 1000})
    monkeypatch.setattr("shutil.disk_usage", lambda path: usage)
    with pytest.raises(CacheError, match=r"but the disk of .* has 1.0 kB free; set MANYLABEL_CACHE"):
        cache(backbone, images, tmp_path)
    assert not computed


def test_the_plan_tells_what_is_new_and_what_it_takes(backbone, images, tmp_path):
    cache(backbone, images.subset([0, 1]), tmp_path)
    plan = FeatureCache(backbone, input_spec=SPEC, root=tmp_path).plan(images, views=2)
    bytes_each = 96 * 2 * 2 * 2
    assert plan.missing == 2 * NUM_IMAGES - 2
    assert (plan.num_bytes, plan.missing_bytes) == (24 * bytes_each, 22 * bytes_each)
    cached = cache(backbone, images, tmp_path, views=2)
    stages = [store.files.stages[0].stat().st_size for store in cached.stores]
    assert sum(stages) == plan.num_bytes


def test_progress_counts_every_view_and_ends_at_the_total(backbone, images, tmp_path):
    told = []
    cache(backbone, images.subset(range(6)), tmp_path)
    cache(backbone, images, tmp_path, views=2, progress=lambda done, total: told.append((done, total)))
    assert told == [(done, 24) for done in (6, 11, 12, 12, 17, 22, 24)]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"pooling": "mean"}, "pooling cannot be 'mean'; .*average, earlier, max, max_average, max_cells, none"),
        ({"engine": "tf"}, "engine cannot be 'tf'; .*auto, onnx, torch"),
        ({"views": 0}, "views must be at least 1, got 0"),
        ({"batch_size": 0}, "batch_size must be at least 1"),
        ({"max_bad_fraction": 2}, "max_bad_fraction must be in 0..1, got 2"),
    ],
)
def test_rejects_wrong_settings(backbone, images, tmp_path, settings, message):
    with pytest.raises(ConfigError, match=message):
        cache(backbone, images, tmp_path, **settings)


def test_rejects_a_backbone_that_is_not_frozen(images, tmp_path):
    with pytest.raises(ConfigError, match="build it with frozen=True"):
        cache(Backbone("test_resnet", pretrained=False), images, tmp_path)


def test_rejects_features_that_float16_cannot_hold(images, tmp_path):
    backbone = make_backbone()
    with torch.no_grad():
        for parameter in backbone.model.layer4.parameters():
            parameter.mul_(1e5)
    with pytest.raises(ConfigError, match="beyond the range of float16"):
        cache(backbone, images, tmp_path)


def test_a_seeded_run_goes_on_the_same_whether_features_were_there_or_not(backbone, images, tmp_path):
    states = []
    for _ in range(2):
        torch.manual_seed(3)
        cached = cache(backbone, images, tmp_path, views=2)
        list(FeatureLoader(cached, shuffle=True))
        states.append(torch.get_rng_state())
    assert torch.equal(*states)


def test_the_store_tells_what_it_is_of(backbone, images, tmp_path):
    cache(backbone, images, tmp_path, pooling="max")
    said = json.loads((next(tmp_path.glob("*/spec.json"))).read_text())
    assert (said["dataset"], said["backbone"], said["pooling"], said["stages"]) == ("noise", "test_resnet", "max", [3])
    assert "Resize(size=(64, 64)" in said["transform"]


def test_who_waits_for_another_process_reads_nothing_meanwhile(backbone, images, tmp_path, monkeypatch, caplog):
    cache(backbone, images.subset(range(6)), tmp_path)
    (folder,) = tmp_path.iterdir()
    lock = WriterLock(folder / "lock")
    lock.acquire()
    looks, opened, real = [], [], cache_module.FeatureStore

    def sleep(seconds):
        looks.append(len(opened))
        if len(looks) == 3:
            lock.release()

    monkeypatch.setattr(cache_module.time, "sleep", sleep)
    monkeypatch.setattr(cache_module, "FeatureStore", lambda *given: opened.append(given) or real(*given))
    assert len(cache(backbone, images, tmp_path)) == NUM_IMAGES
    assert looks[0] == looks[-1]
    assert caplog.text.count("another process is computing these features, waiting") == 1
