import pytest

from tiny_features import NUM_IMAGES, make_backbone, make_dataset, write_images


@pytest.fixture(scope="module")
def backbone():
    return make_backbone()


@pytest.fixture(scope="module")
def images(tmp_path_factory):
    folder = tmp_path_factory.mktemp("images")
    write_images(folder, NUM_IMAGES)
    return make_dataset(folder)


@pytest.fixture
def own_images(tmp_path):
    """Images that a test may change."""
    folder = tmp_path / "images"
    folder.mkdir()
    write_images(folder, NUM_IMAGES)
    return make_dataset(folder)
