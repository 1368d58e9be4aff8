from itertools import islice

import pytest
import torch
from PIL import Image

from manylabel.data import ImageLoader, eval_transform, files, scenes
from manylabel.data.sampling import every_image
from manylabel.training import Share, shared_sampler
from manylabel.training.loaders import ResumableLoader
from manylabel.types import InputSpec
from tiny_training import TinyLoader, tiny_loaders, tiny_settings


def indices(batches):
    return [batch.indices.tolist() for batch in batches]


def tiny_loader():
    return ResumableLoader(TinyLoader(batch_size=4, shuffle=True, share=Share()))


def test_epochs_follow_one_another_and_differ():
    loader = tiny_loader()
    first, second = indices(loader), indices(loader)
    assert first != second
    assert loader.state_dict() == {"epoch": 2, "batch": 0}


@pytest.mark.parametrize("done", [0, 1, 5, 6])
def test_a_new_loader_goes_on_where_an_old_one_was(done):
    expected = tiny_loader()
    first, second = indices(expected), indices(expected)
    left = tiny_loader()
    list(islice(left, done))
    new = tiny_loader()
    new.load_state_dict(left.state_dict())
    assert indices(new) == (first[done:] if done < 6 else second)


def test_images_that_are_skipped_are_not_decoded(monkeypatch):
    decoded = []
    dataset = scenes(8, size=32)

    def transform(image):
        decoded.append(image)
        return torch.zeros(3, 8, 8)

    loader = ResumableLoader(ImageLoader(dataset, transform=transform, batch_size=2, shuffle=True))
    loader.load_state_dict({"epoch": 0, "batch": 3})
    assert len(list(loader)) == 1
    assert len(decoded) == 2


def test_a_resumed_loader_changes_images_in_the_same_way():
    plain = eval_transform(InputSpec(size=(8, 8)))

    def transform(image):
        return plain(image) + torch.rand(())

    whole, resumed = (
        ResumableLoader(ImageLoader(scenes(6, size=32), transform=transform, batch_size=2, shuffle=True))
        for _ in range(2)
    )
    resumed.load_state_dict({"epoch": 0, "batch": 2})
    assert torch.equal(list(whole)[2].images, next(iter(resumed)).images)


def test_a_shared_order_is_the_same_in_all_processes():
    samplers = [shared_sampler(every_image(7, seed=5), Share(rank, 3)) for rank in range(3)]
    drawn = [list(sampler) for sampler in samplers]
    assert [len(sampler) for sampler in samplers] == [len(part) for part in drawn] == [3, 3, 3]
    assert set().union(*drawn) == set(range(7))


@pytest.mark.parametrize("done", range(6))
@pytest.mark.parametrize(
    ("bad", "expected"),
    [("a", [1, 1, 2, 3, 4]), ("b", [0, 2, 2, 3, 4]), ("bc", [0, 3, 3, 3, 4]), ("de", [0, 1, 2, 0, 0])],
)
def test_others_come_again_in_place_of_batches_of_bad_images_alone(bad, expected, done, tmp_path):
    for name in "abcde":
        Image.new("RGB", (8, 8)).save(tmp_path / f"{name}.png")
    for name in bad:
        (tmp_path / f"{name}.png").write_bytes(b"no image")

    def make():
        plain = eval_transform(InputSpec(size=(8, 8)))
        loader = ImageLoader(files(tmp_path), transform=plain, batch_size=1, max_bad_fraction=1)
        return ResumableLoader(loader)

    expected = [[index] for index in expected]
    whole = make()
    assert indices(whole) == expected
    assert whole.state_dict() == {"epoch": 1, "batch": 0}
    assert indices(whole) == expected  # of the next epoch, all of it
    left, new = make(), make()
    seen = indices(islice(left, done))
    assert left.state_dict() == {"epoch": done // 5, "batch": done % 5}
    new.load_state_dict(left.state_dict())
    assert seen + indices(new) == expected + (expected if done == 5 else [])


@pytest.mark.slow
def test_processes_share_the_images_evenly_in_training_and_without_doubles_in_validation():
    settings = tiny_settings()
    both = [tiny_loaders(settings, Share(rank, 2)) for rank in (0, 1)]
    evaluated = [torch.cat([batch.indices for batch in loaders.val]) for loaders in both]
    assert sorted(torch.cat(evaluated).tolist()) == list(range(9))
    drawn = [torch.cat([batch.indices for batch in loaders.train]) for loaders in both]
    assert len(drawn[0]) == len(drawn[1]) == 11
    assert sorted(torch.cat(drawn).tolist()) == list(range(22))
