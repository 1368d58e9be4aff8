import logging
import os
import pickle
import signal
import subprocess
import sys
from multiprocessing.reduction import ForkingPickler
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from torch.utils.data import DataLoader

from manylabel.data.dataset import ImageDataset
from manylabel.data.loading import DecodedImages, ImageLoader, collate, most_bad
from manylabel.data.sampling import class_aware_sampler
from manylabel.data.sources import Files, LazyBytes
from manylabel.data.transforms import eval_transform, train_transform
from manylabel.errors import BadImagesError, ConfigError, DataError
from manylabel.targets import Targets
from manylabel.types import Batch, InputSpec, LabelSpace
from sample_files import ODD_NAMES, bad_files, encode, photo, write_files

SPEC = InputSpec(size=(16, 16), mean=(0.0, 0.0, 0.0), std=(1.0, 1.0, 1.0))
BAD = bad_files()


def make_dataset(images):
    """Image i has label i % 3; of each third image label 0 is unknown."""
    present = [[index % 3] for index in range(len(images))]
    unknown = [[0] if index % 3 == 1 else [] for index in range(len(images))]
    targets = Targets.from_lists(present, num_labels=3, unknown=unknown)
    return ImageDataset(images, targets, LabelSpace(["cat", "dog", "cow"]))


def one_colour(index):
    """An image of which the colour tells the index."""
    return encode(Image.new("RGB", (20, 20), (10 * index, 0, 0)), "PNG")


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """Good and bad files in turn: missing, a folder and one without permission among them."""
    good = {f"{index} {name}": encode(photo(), "JPEG") for index, name in enumerate(ODD_NAMES)}
    bad = {name: content for name, (content, _) in BAD.items()}
    write_files(tmp_path, good | bad)
    (tmp_path / "folder.jpg").mkdir()
    secret = tmp_path / "secret.jpg"
    secret.write_bytes(encode(photo(), "JPEG"))
    secret.chmod(0)
    if os.access(secret, os.R_OK):  # root may read anything, so what others meet is simulated
        really_open = Path.open

        def open_unless_secret(self, *arguments, **options):
            if self == secret:
                raise PermissionError(13, "Permission denied")
            return really_open(self, *arguments, **options)

        monkeypatch.setattr(Path, "open", open_unless_secret)
    bad_names = [*bad, "folder.jpg", "secret.jpg", "missing.jpg"]
    names = [name for pair in zip(good, bad_names, strict=False) for name in pair] + bad_names[len(good) :]
    return Files(tmp_path, names), set(good), set(bad_names)


@pytest.mark.parametrize("num_workers", [0, 2])
def test_bad_images_are_left_out_and_named_once(folder, num_workers):
    files, good, bad = folder
    dataset = make_dataset(files)
    loader = ImageLoader(
        dataset, transform=eval_transform(SPEC), batch_size=3, num_workers=num_workers, max_bad_fraction=1, shuffle=True
    )
    for _ in range(2):
        batches = list(loader)
        indices = torch.cat([batch.indices for batch in batches]).tolist()
        assert sorted(files.name(index) for index in indices) == sorted(good)
        assert all(len(batch) for batch in batches)
        for batch in batches:
            values, known = dataset.targets.dense(batch.indices.numpy())
            assert batch.images.shape == (len(batch), 3, 16, 16)
            assert torch.equal(batch.targets, torch.from_numpy(values))
            assert torch.equal(batch.known, torch.from_numpy(known))
            assert not batch.known.all() or 1 not in batch.indices % 3
    assert len(loader.bad) == len(bad)
    assert {image.name for image in loader.bad} == bad
    for image in loader.bad:
        assert files.name(image.index) == image.name
        assert image.reason
        assert BAD.get(image.name, ("", ""))[1] in image.reason


@pytest.mark.parametrize("num_workers", [0, 2])
def test_each_image_keeps_its_own_labels(num_workers):
    names = [str(index) for index in range(12)]
    dataset = make_dataset(LazyBytes(names, load=lambda index: b"" if index % 4 == 2 else one_colour(index)))
    loader = ImageLoader(
        dataset, transform=eval_transform(SPEC), batch_size=5, shuffle=True, num_workers=num_workers, max_bad_fraction=1
    )
    seen = []
    for batch in loader:
        assert (batch.images[:, 0, 0, 0] * 25.5).round().int().tolist() == batch.indices.tolist()
        assert batch.targets.argmax(1).tolist() == [index % 3 for index in batch.indices.tolist()]
        assert not {image.index for image in batch.bad} & set(batch.indices.tolist())
        seen += batch.indices.tolist()
    assert sorted(seen) == [index for index in range(12) if index % 4 != 2]


@pytest.mark.parametrize("num_workers", [0, 2])
def test_tolerating_none_stops_at_the_first_bad_image(folder, num_workers):
    files, _, bad = folder
    loader = ImageLoader(
        make_dataset(files), transform=eval_transform(SPEC), batch_size=1, num_workers=num_workers, max_bad_fraction=0
    )
    batches = iter(loader)
    assert next(batches).indices.tolist() == [0]
    with pytest.raises(BadImagesError, match="1 of") as caught:
        next(batches)
    assert files.name(1) in bad
    assert repr(files.name(1)) in str(caught.value)


@pytest.mark.parametrize("num_workers", [0, 2])
@pytest.mark.slow
def test_stops_once_too_many_are_bad_and_lists_them(num_workers):
    dataset = make_dataset(
        LazyBytes([f"{i}.jpg" for i in range(100)], load=lambda i: b"?" if i < 40 else one_colour(1))
    )
    options = {"transform": eval_transform(SPEC), "batch_size": 10, "num_workers": num_workers}
    loader = ImageLoader(dataset, max_bad_fraction=0.25, **options)
    with pytest.raises(BadImagesError) as caught:
        list(loader)
    message = str(caught.value)
    assert message.startswith("30 of 100 images cannot be read so far, more than max_bad_fraction=0.25 allows")
    assert "'19.jpg': it is not an image" in message
    assert "'20.jpg'" not in message
    assert message.endswith("and 10 more")
    assert len(loader.bad) == 30
    assert len(list(ImageLoader(dataset, max_bad_fraction=0.4, **options))) == 6


def test_an_all_bad_batch_is_not_yielded_but_counted():
    dataset = make_dataset(LazyBytes(["a", "b", "c"], load=lambda index: one_colour(1) if index == 2 else b""))
    loader = ImageLoader(dataset, transform=eval_transform(SPEC), batch_size=2, max_bad_fraction=1)
    assert [batch.indices.tolist() for batch in loader] == [[2]]
    assert [image.index for image in loader.bad] == [0, 1]
    empty = collate(list(loader.bad))
    assert len(empty) == 0
    assert len(empty.bad) == 2


def test_logs_each_bad_image_once(caplog):
    dataset = make_dataset(LazyBytes(["new\nline"], load=lambda index: b""))
    loader = ImageLoader(dataset, transform=eval_transform(SPEC), max_bad_fraction=1)
    with caplog.at_level(logging.WARNING):
        list(loader)
        list(loader)
    assert [record.getMessage() for record in caplog.records] == ["bad image 'new\\nline': it is empty (0 bytes)"]


def test_a_image_that_cannot_be_fetched_is_bad():
    def fetch(index):
        raise ConnectionError("the line is dead")

    images = DecodedImages(make_dataset(LazyBytes(["far"], load=fetch)), transform=eval_transform(SPEC))
    assert images[0].reason == "it could not be fetched: ConnectionError: the line is dead"


def augmented(dataset, *, epochs, **options):
    loader = ImageLoader(dataset, transform=train_transform(SPEC), batch_size=3, max_bad_fraction=1, **options)
    return [[(batch.indices, batch.images) for batch in loader] for _ in range(epochs)], loader


def same(one, other):
    pairs = [(a, b) for x, y in zip(one, other, strict=True) for a, b in zip(x, y, strict=True)]
    return all(torch.equal(a, b) for a, b in pairs)


@pytest.mark.slow
def test_order_and_augmentation_do_not_depend_on_workers():
    names = [str(index) for index in range(8)]
    dataset = make_dataset(LazyBytes(names, load=lambda index: b"" if index == 4 else encode(photo(), "JPEG")))
    epochs, loader = augmented(dataset, epochs=3, shuffle=True, seed=5)
    with_workers, _ = augmented(dataset, epochs=3, shuffle=True, seed=5, num_workers=2)
    assert all(same(one, other) for one, other in zip(epochs, with_workers, strict=True))
    assert not same(epochs[0][:1], epochs[1][:1])
    loader.set_epoch(1)
    assert same([(batch.indices, batch.images) for batch in loader], epochs[1])
    other_seed, _ = augmented(dataset, epochs=1, shuffle=True, seed=6)
    assert not same(other_seed[0][:1], epochs[0][:1])


@pytest.mark.slow
def test_an_interrupted_pass_does_not_change_the_next_one():
    dataset = make_dataset(LazyBytes([str(index) for index in range(12)], load=one_colour))
    whole, _ = augmented(dataset, epochs=2, shuffle=True, num_workers=2)
    _, loader = augmented(dataset, epochs=0, shuffle=True, num_workers=2)
    next(iter(loader))
    assert same([(batch.indices, batch.images) for batch in loader], whole[1])


def test_of_few_images_some_may_be_bad():
    assert [most_bad(number, 0.01) for number in (5, 10, 80, 400, 2000)] == [0.05, 1, 5, 5, 20]
    assert most_bad(80, 0) == 0


def test_loading_leaves_the_random_state_alone():
    dataset = make_dataset(LazyBytes([str(index) for index in range(6)], load=one_colour))
    torch.manual_seed(3)
    expected = torch.rand(4)
    torch.manual_seed(3)
    augmented(dataset, epochs=2, shuffle=True)
    assert torch.equal(torch.rand(4), expected)


def test_the_same_image_twice_in_an_epoch_is_augmented_twice():
    dataset = make_dataset(LazyBytes(["a"], load=lambda index: encode(photo(), "PNG")))
    ((first, *_),), _ = augmented(dataset, epochs=1, sampler=[0, 0, 0])
    assert not torch.equal(first[1][0], first[1][1])


def test_plain_positions_take_their_seed_from_torch():
    dataset = make_dataset(LazyBytes(["a"], load=lambda index: encode(photo(), "PNG")))
    images = DecodedImages(dataset, transform=train_transform(SPEC))
    torch.manual_seed(0)
    first, second = images[0].image, images[0].image
    torch.manual_seed(0)
    assert torch.equal(images[0].image, first)
    assert not torch.equal(first, second)
    assert isinstance(next(iter(DataLoader(images, collate_fn=collate))), Batch)


def test_draws_rare_labels_more_often():
    dataset = make_dataset(LazyBytes([str(index) for index in range(9)], load=one_colour))
    sampler = class_aware_sampler(dataset.targets, num_samples=20)
    loader = ImageLoader(dataset, transform=eval_transform(SPEC), sampler=sampler, batch_size=8)
    expected = list(sampler)
    assert len(loader) == 3
    assert [index for batch in loader for index in batch.indices.tolist()] == expected


def test_densifies_the_targets_of_a_batch_in_one_call(monkeypatch):
    calls = []
    really_dense = Targets.dense
    monkeypatch.setattr(Targets, "dense", lambda self, rows: calls.append(len(rows)) or really_dense(self, rows))
    dataset = make_dataset(LazyBytes([str(index) for index in range(10)], load=one_colour))
    list(ImageLoader(dataset, transform=eval_transform(SPEC), batch_size=4))
    assert calls == [4, 4, 2]


class Measure:
    """Gives the size of the image that it gets, and the number of threads."""

    at_least = (100, 100)

    def __call__(self, image):
        return torch.tensor([image.width, image.height, torch.get_num_threads()])


@pytest.mark.parametrize("num_workers", [0, 2])
def test_decodes_no_larger_than_the_transform_needs(num_workers):
    dataset = make_dataset(LazyBytes(["a"], load=lambda index: encode(photo(640, 480), "JPEG")))
    (batch,) = ImageLoader(dataset, transform=Measure(), num_workers=num_workers)
    assert batch.images[0, :2].tolist() == [160, 120]
    if num_workers:
        assert batch.images[0, 2] == 1


@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="there is no SIGKILL here")
@pytest.mark.slow
def test_a_killed_worker_is_a_clear_error():
    main = os.getpid()

    def die(index):
        if os.getpid() != main and index == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        return one_colour(1)

    dataset = make_dataset(LazyBytes(list("abcd"), load=die))
    loader = ImageLoader(dataset, transform=eval_transform(SPEC), batch_size=1, num_workers=2)
    for _ in range(2):  # new workers are started for the second pass
        with pytest.raises(DataError, match=r"was killed.*lower num_workers"):
            list(loader)
    subprocess.run([sys.executable, "-c", ""], check=True)  # at its end torch would look for dead workers


def test_other_errors_of_a_transform_are_not_hidden():
    def broken(image):
        raise RuntimeError("a mistake in the program")

    dataset = make_dataset(LazyBytes(["a"], load=one_colour))
    for num_workers in (0, 1):
        with pytest.raises(RuntimeError, match="a mistake in the program"):
            list(ImageLoader(dataset, transform=broken, num_workers=num_workers))


def test_can_be_sent_to_a_spawned_process(tmp_path):
    write_files(tmp_path, {"a.jpg": encode(photo(), "JPEG")})
    loader = ImageLoader(make_dataset(Files(tmp_path, ["a.jpg"])), transform=train_transform(SPEC), num_workers=1)
    dataset, gather = pickle.loads(ForkingPickler.dumps((loader.dataset, loader.collate_fn)))
    assert gather([dataset[0]]).images.shape == (1, 3, 16, 16)
    assert loader.persistent_workers


def test_an_empty_data_set_gives_no_batches():
    assert list(ImageLoader(make_dataset(Files(".", [])), transform=eval_transform(SPEC), shuffle=True)) == []


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"max_bad_fraction": 1.5}, "got 1.5"),
        ({"batch_size": 0}, "got 0"),
        ({"num_workers": -1}, "got 32 and -1"),
        ({"shuffle": True, "sampler": [0]}, "not both"),
    ],
)
def test_rejects_settings_that_make_no_sense(options, words):
    with pytest.raises(ConfigError, match=words):
        ImageLoader(make_dataset(Files(".", np.array(["a"]).tolist())), transform=eval_transform(SPEC), **options)
