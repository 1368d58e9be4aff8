from io import BytesIO

import numpy as np
import pandas as pd
import polars as pl
import pytest
import torch
from PIL import Image

from colour_model import SPEC
from manylabel.data import arrays, files
from manylabel.engine import Engine, join_predictions, name_images, prepare_batch
from manylabel.errors import DataError, ImageError
from manylabel.predictions import InferenceSpec, Predictions
from manylabel.types import BadImage, InputSpec, LabelSpace


def test_predictions_of_batches_are_joined_with_their_bad_images():
    nan = np.full((1, 3), np.nan)
    parts = [Predictions(nan, SPEC.labels, [name], bad=(BadImage(0, name, "gone"),)) for name in ("x", "y")]
    joined = join_predictions(parts, SPEC)
    assert (joined.thresholds, joined.bad) == (SPEC.thresholds, (BadImage(0, "x", "gone"), BadImage(1, "y", "gone")))
    assert join_predictions([], SPEC).scores.shape == (0, 3)


def test_an_image_that_could_not_be_fetched_is_a_bad_one():
    batch = prepare_batch(
        [("a", ImageError("a", "the hub is down")), ("b", np.zeros((4, 4, 3), np.uint8))], SPEC.input_spec
    )
    assert batch.errors == ("the hub is down", None)
    assert batch.pixels.shape == (1, 32, 32, 3)


def test_a_folder_stands_for_its_images(tmp_path):
    (tmp_path / "inner").mkdir()
    for name in ("b.png", "inner/a.png"):
        Image.new("RGB", (8, 8)).save(tmp_path / name)
    (tmp_path / "notes.txt").touch()
    names = [name for name, _ in name_images([tmp_path, b"", str(tmp_path / "gone.png")])]
    assert names == [str(tmp_path / "b.png"), str(tmp_path / "inner/a.png"), "image 1", str(tmp_path / "gone.png")]


def test_images_of_all_kinds_can_be_mixed():
    pixels = np.random.default_rng(0).integers(0, 255, (12, 16, 3), dtype=np.uint8)
    tensor = torch.from_numpy(pixels).permute(2, 0, 1)
    stream = BytesIO()
    Image.fromarray(pixels).save(stream, "PNG")
    mixed = [pixels, Image.fromarray(pixels), tensor, tensor / 255, stream.getvalue(), "gone.jpg", None, tensor.float()]
    batch = prepare_batch(list(name_images(mixed)), SPEC.input_spec)
    assert [error is None for error in batch.errors] == [True] * 5 + [False] * 3
    assert (batch.pixels == batch.pixels[:1]).all()
    assert batch.names == (*(f"image {number}" for number in range(5)), "gone.jpg", "image 6", "image 7")
    assert "got NoneType" in batch.errors[6]
    assert "got 0 to 254" in batch.errors[7]


@pytest.mark.parametrize("one", [np.zeros((8, 6, 3), np.uint8), torch.zeros(3, 8, 6), b"...", Image.new("L", (2, 2))])
def test_one_image_is_a_list_of_one(one):
    assert [name for name, _ in name_images(one)] == ["image 0"]


def test_a_stack_of_arrays_or_tensors_is_a_batch():
    assert len(list(name_images(np.zeros((3, 8, 6, 3), np.uint8)))) == 3
    assert len(list(name_images(torch.zeros(3, 3, 8, 6)))) == 3
    with pytest.raises(DataError, match=r"images must be a file, a folder, .* or a list of these, got NoneType"):
        list(name_images(None))


class Grey(Engine):
    """Scores every label by the mean grey value."""

    spec = InferenceSpec(LabelSpace(["a", "b", "c"]), InputSpec(size=(4, 4)))

    def scores(self, pixels):
        return np.repeat(pixels.mean(axis=(1, 2, 3))[:, None] / 255, 3, axis=1).astype(np.float32)

    logits = scores


def test_several_batches_show_their_progress(monkeypatch, capsys):
    monkeypatch.setattr("manylabel.progress.SECONDS_BETWEEN_LINES", 0)
    images = [np.zeros((8, 8, 3), np.uint8)] * 3
    assert len(Grey().predict(images, batch_size=3)) == 3
    assert capsys.readouterr().err == ""
    assert len(Grey().predict(images, batch_size=2)) == 3
    assert "tagging images: 2/3" in capsys.readouterr().err


def test_images_of_an_iterator_are_not_retained():
    images = [np.full((8, 8, 3), 204, np.uint8)] * 3
    assert Grey().predict(images)[0].image.size == (8, 8)
    lazy = Grey().predict(iter(images), batch_size=2)
    assert lazy[2].scores == pytest.approx({"a": 0.8, "b": 0.8, "c": 0.8})
    with pytest.raises(ImageError, match="image 2"):
        _ = lazy[2].image


@pytest.mark.parametrize("column", [pl.Series, pd.Series, np.array], ids=["polars", "pandas", "numpy"])
def test_a_column_of_paths_is_a_list_of_files(column):
    assert [name for name, _ in name_images(column(["a.jpg", "b.jpg"]))] == ["a.jpg", "b.jpg"]


def test_a_dataset_is_predicted_image_by_image(tmp_path):
    Image.new("RGB", (9, 8), (204, 204, 204)).save(tmp_path / "grey.png")
    (tmp_path / "bad.png").write_bytes(b"no image")
    dataset = files([tmp_path / "grey.png", tmp_path / "bad.png"])
    result = Grey().predict(dataset, batch_size=1)
    assert [image.name for image in result] == [dataset.images.name(position) for position in range(2)]
    assert result[0].scores == pytest.approx({"a": 0.8, "b": 0.8, "c": 0.8})
    assert result[0].image.size == (9, 8)
    assert "not an image" in result[1].error


def test_images_of_a_dataset_in_memory_are_not_retained_and_a_broken_source_is_recorded():
    class Broken:
        def __len__(self):
            return 2

        def __getitem__(self, index):
            raise ConnectionError("the hub is down")

        def name(self, index):
            return f"photo {index}"

    dataset = arrays((np.zeros((3, 8, 8, 3), np.uint8), np.eye(3)))
    assert Grey().predict(dataset, batch_size=2).sources == [None, None, None]
    broken = Grey().predict(type("Dataset", (), {"images": Broken(), "__len__": lambda _: 2})())
    assert [image.reason for image in broken.bad] == ["it could not be fetched: ConnectionError: the hub is down"] * 2
