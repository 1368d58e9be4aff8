from dataclasses import replace

import numpy as np
import polars as pl
import pytest
import torch

from manylabel.data import Files, ImageDataset
from manylabel.errors import ConfigError, DataError, LabelError, ManyLabelError, OutputExistsError
from manylabel.evaluation import ScoredImages, read_scores, save_scores
from manylabel.targets import Targets
from manylabel.types import BadImage, LabelSpace

NAMES = ("in/a.jpg", "in/b.jpg", "in/c.jpg")


@pytest.fixture
def dataset():
    targets = Targets.from_lists([[0], [0, 1], []], num_labels=2, unknown=[[], [], [1]])
    return ImageDataset(Files("photos", NAMES), targets, LabelSpace(["cat", "dog"]), name="pets")


@pytest.fixture
def scored():
    scores = torch.tensor([[0.1, 1 / 3], [0.5, 0.7], [0.0, 1.0]])
    return ScoredImages.from_arrays(scores, torch.zeros(3, 2), labels=["cat", "dog"], names=NAMES)


def write(path, text):
    path.write_text(text, encoding="utf-8")
    return path


@pytest.mark.parametrize("ending", ["csv", "npz", "parquet"])
def test_what_was_saved_is_read_again_to_the_last_bit(tmp_path, dataset, scored, ending):
    found = read_scores(save_scores(scored, tmp_path / f"scores.{ending}"), dataset)
    assert (found.scores == scored.scores).all()
    assert found.names == NAMES
    assert found.model == f"scores.{ending}"


def test_labels_and_names_that_would_be_formulas_are_read_back(tmp_path):
    labels, names = ["=1+1", "'-x", "@cat"], ["=a.jpg", "+b.jpg", "c.jpg"]
    targets = Targets.from_lists([[0], [1], [2]], num_labels=3)
    dataset = ImageDataset(Files("photos", names), targets, LabelSpace(labels))
    scored = ScoredImages.from_arrays(torch.eye(3), torch.eye(3), labels=labels, names=names)
    file = save_scores(scored, tmp_path / "scores.csv")
    cells = [cell for line in file.read_text().splitlines() for cell in line.split(",")]
    assert not any(cell.startswith(("=", "+", "-", "@")) for cell in cells)
    found = read_scores(file, dataset)
    assert (found.names, tuple(found.labels)) == (tuple(names), tuple(labels))


def test_the_truth_comes_from_the_data_set(tmp_path, dataset, scored):
    found = read_scores(save_scores(scored, tmp_path / "scores.npz"), dataset)
    assert found.targets.int().tolist() == [[1, 0], [1, 1], [0, 0]]
    assert found.known.int().tolist() == [[1, 1], [1, 1], [1, 0]]
    assert found.dataset == "pets"


def test_npz_keeps_thresholds(tmp_path, dataset, scored):
    save_scores(replace(scored, thresholds=(0.25, 0.75)), tmp_path / "scores.npz")
    assert read_scores(tmp_path / "scores.npz", dataset).thresholds == (0.25, 0.75)


def test_npz_keeps_why_images_are_bad(tmp_path, dataset, scored):
    some = ScoredImages.from_arrays(scored.scores[:2], torch.zeros(2, 2), labels=["cat", "dog"], names=NAMES[:2])
    for bad, reason in (
        ((BadImage(2, NAMES[2], "it is empty (0 bytes)"),), "it is empty (0 bytes)"),
        ((), "it has no scores in scores.npz"),
    ):
        save_scores(replace(some, bad=bad), tmp_path / "scores.npz", overwrite=True)
        found = read_scores(tmp_path / "scores.npz", dataset, max_missing_fraction=0.5)
        assert found.bad == (BadImage(2, NAMES[2], reason),)


def test_of_data_with_one_label_each_the_surest_counts_unless_the_file_has_thresholds(tmp_path, dataset, scored):
    single = replace(dataset, single_label=True)
    save_scores(scored, tmp_path / "plain.csv")
    assert read_scores(tmp_path / "plain.csv", single).predicted.int().tolist() == [[0, 1], [0, 1], [0, 1]]
    save_scores(replace(scored, thresholds=(0.1, 0.5)), tmp_path / "tuned.npz")
    assert read_scores(tmp_path / "tuned.npz", single).predicted.int().tolist() == [[1, 0], [1, 1], [0, 1]]


@pytest.mark.parametrize("names_one", [True, False])
def test_npz_says_whether_the_model_names_one_label_whatever_the_data_have(tmp_path, dataset, scored, names_one):
    save_scores(replace(scored, single_label=names_one), tmp_path / "scores.npz")
    for data in (dataset, replace(dataset, single_label=not names_one)):
        assert read_scores(tmp_path / "scores.npz", data).single_label is names_one


def test_of_few_images_those_that_a_run_left_out_may_lack_scores(tmp_path):
    names = [f"{number}.jpg" for number in range(20)]
    pets = ImageDataset(Files("in", names), Targets.from_lists([[0]] * 20, num_labels=1), LabelSpace(["cat"]))
    text = "\n".join(["image,cat", *(f"{name},0.5" for name in names[2:])])
    assert len(read_scores(write(tmp_path / "scores.csv", text), pets).bad) == 2
    with pytest.raises(DataError, match="no scores for 3 of the 20"):
        read_scores(write(tmp_path / "fewer.csv", text.rpartition("\n")[0]), pets)


def test_a_long_table_in_any_order_is_read(tmp_path, dataset):
    rows = [f"{name},{label},{score}" for name, label, score in reversed([
        ("in/a.jpg", "cat", 0.1), ("in/a.jpg", "dog", 0.2), ("in/b.jpg", "cat", 0.3),
        ("in/b.jpg", "dog", 0.4), ("in/c.jpg", "cat", 0.5), ("in/c.jpg", "dog", 0.6),
    ])]  # fmt: skip
    found = read_scores(write(tmp_path / "scores.csv", "\n".join(["image,label,score", *rows])), dataset)
    torch.testing.assert_close(found.scores, torch.tensor([[0.1, 0.2], [0.3, 0.4], [0.5, 0.6]]))


def test_a_wide_table_with_labels_in_another_order_and_more_of_them_is_read(tmp_path, dataset):
    frame = pl.DataFrame({"image": NAMES, "cow": [0.9] * 3, "dog": [0.2, 0.4, 0.6], "cat": [0.1, 0.3, 0.5]})
    frame.write_parquet(tmp_path / "scores.parquet")
    found = read_scores(tmp_path / "scores.parquet", dataset)
    torch.testing.assert_close(found.scores, torch.tensor([[0.1, 0.2], [0.3, 0.4], [0.5, 0.6]]))
    assert found.notes == ("The dataset lacks 1 label (cow) of scores.parquet; not evaluated.",)


@pytest.mark.parametrize(
    "names", [("a.jpg", "b.jpg", "c.jpg"), ("a", "b", "c"), (r"D:\x\a.png", r"D:\x\b.png", r"D:\x\c.png")]
)
def test_images_are_found_by_their_file_name_too(tmp_path, dataset, names):
    pl.DataFrame({"image": names, "cat": [0.1, 0.3, 0.5], "dog": [0.0] * 3}).write_csv(tmp_path / "scores.csv")
    torch.testing.assert_close(
        read_scores(tmp_path / "scores.csv", dataset).scores[:, 0], torch.tensor([0.1, 0.3, 0.5])
    )


def test_file_names_that_could_be_of_two_images_match_none(tmp_path):
    targets = Targets.from_lists([[0], []], num_labels=1)
    dataset = ImageDataset(Files("photos", ["x/a.jpg", "y/a.jpg"]), targets, LabelSpace(["cat"]))
    with pytest.raises(DataError, match="no scores for 2 of the 2 images"):
        read_scores(write(tmp_path / "scores.csv", "image,cat\na.jpg,0.5\nb.jpg,0.5"), dataset)


def test_missing_images_are_an_error_that_shows_both_names(tmp_path, dataset):
    path = write(tmp_path / "scores.csv", "image,cat,dog\nin/a.jpg,0.1,0.2\nin/b.jpg,0.1,0.2")
    with pytest.raises(DataError, match=r"no scores for 1 of the 3 images of pets, such as 'in/c.jpg'; .*'in/a.jpg'"):
        read_scores(path, dataset)


def test_a_few_missing_images_are_left_out_and_listed(tmp_path, dataset):
    path = write(tmp_path / "scores.csv", "image,cat,dog\nin/a.jpg,0.1,0.2\nin/c.jpg,0.3,0.4")
    found = read_scores(path, dataset, max_missing_fraction=0.5)
    assert found.names == ("in/a.jpg", "in/c.jpg")
    assert found.indices.tolist() == [0, 2]
    assert [(image.index, image.name) for image in found.bad] == [(1, "in/b.jpg")]


def test_a_missing_label_is_an_error_unless_common_labels_are_asked_for(tmp_path, dataset):
    path = write(tmp_path / "scores.csv", "image,cat,dgo\n" + "".join(f"{name},0.1,0.2\n" for name in NAMES))
    with pytest.raises(LabelError, match=r"lacks 1 of the dataset's 2 labels, such as 'dog'; did you mean 'dgo'"):
        read_scores(path, dataset)
    found = read_scores(path, dataset, common_labels=True)
    assert found.labels.names == ("cat",)
    assert found.targets.shape == (3, 1)
    assert len(found.notes) == 2


def test_no_label_in_common_is_an_error(tmp_path, dataset):
    path = write(tmp_path / "scores.csv", "image,cow\n" + "".join(f"{name},0.1\n" for name in NAMES))
    with pytest.raises(LabelError, match="lacks 2 of the dataset's 2 labels"):
        read_scores(path, dataset, common_labels=True)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "image,cat,dog\nin/a.jpg,3.5,-2\nin/b.jpg,0,0\nin/c.jpg,0,0",
            "got -2 to 3.5; if these are logits, apply sigmoid",
        ),
        ("image,cat,dog\nin/a.jpg,x,0\nin/b.jpg,0,0\nin/c.jpg,0,0", "such as 0.25, got 'x' in column 'cat'"),
        (
            "image,cat,dog\nin/a.jpg,,0\nin/b.jpg,0,0\nin/c.jpg,0,0",
            "lacks 1 of 6 scores, such as .*'in/a.jpg' and label 'cat'",
        ),
        ("image,cat,dog\nin/a.jpg,0,0\nin/a.jpg,0,0", "'in/a.jpg' occurs twice"),
        ("photo,label,score\na,cat,0\na,dog,0\na,cat,1", "two scores for image 'a' and label 'cat'"),
    ],
    ids=["logits", "text", "gap", "doubled image", "doubled pair"],
)
def test_bad_scores_are_errors_that_say_where(tmp_path, dataset, text, message):
    with pytest.raises((ConfigError, DataError), match=message):
        read_scores(write(tmp_path / "scores.csv", text), dataset)


def test_an_npz_file_that_is_not_one_is_an_error(tmp_path, dataset):
    np.savez(tmp_path / "other.npz", logits=np.zeros((3, 2)))
    with pytest.raises(DataError, match="no array 'scores'; available: logits"):
        read_scores(tmp_path / "other.npz", dataset)
    np.savez(tmp_path / "shape.npz", scores=np.zeros((2, 2)), images=np.array(NAMES), labels=np.array(["cat", "dog"]))
    with pytest.raises(DataError, match=r"\[images, labels\] = \[3, 2\], got \[2, 2\]"):
        read_scores(tmp_path / "shape.npz", dataset)
    np.savez(
        tmp_path / "objects.npz",
        scores=np.zeros((3, 2)),
        images=np.array(NAMES, dtype=object),
        labels=np.array(["a", "b"]),
    )
    with pytest.raises(DataError, match="names must be arrays of text"):
        read_scores(tmp_path / "objects.npz", dataset)
    write(tmp_path / "text.npz", "hello")
    with pytest.raises(DataError, match="cannot read"):
        read_scores(tmp_path / "text.npz", dataset)


def test_saving_refuses_other_endings_overwriting_and_a_label_called_image(tmp_path, scored):
    with pytest.raises(DataError, match=r"cannot write scores to scores.xlsx; available: .csv, .npz, .parquet"):
        save_scores(scored, tmp_path / "scores.xlsx")
    save_scores(scored, tmp_path / "scores.csv")
    with pytest.raises(OutputExistsError):
        save_scores(scored, tmp_path / "scores.csv")
    odd = ScoredImages.from_arrays([[0.5]], [[1]], labels=["image"])
    with pytest.raises(DataError, match=r"write .npz instead"):
        save_scores(odd, tmp_path / "odd.csv")
    save_scores(odd, tmp_path / "odd.npz")


def test_a_table_of_images_alone_is_an_error(tmp_path, dataset):
    (tmp_path / "scores.csv").write_text("image\na.jpg\n")
    with pytest.raises(DataError, match="no column of scores next to 'image'"):
        read_scores(tmp_path / "scores.csv", dataset)


def test_a_blank_name_is_an_error_in_words(tmp_path, dataset):
    columns = ",".join(dataset.labels)
    (tmp_path / "scores.csv").write_text(f"image,{columns}\n{',0.5' * len(dataset.labels)}\n")
    with pytest.raises(DataError):
        read_scores(tmp_path / "scores.csv", dataset)


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"labels": np.array([1, 2])}, r"labels in .* must be a list of strings, got int64 \[2\]"),
        ({"labels": np.array([["cat", "dog"]])}, r"labels in .* must be a list of strings, got <U3 \[1, 2\]"),
        ({"images": np.array(5)}, r"images in .* must be a list of strings, got int64 \[\]"),
        ({"scores": np.zeros((3, 2, 1))}, r"must be \[images, labels\] = \[3, 2\], got \[3, 2, 1\]"),
        ({"scores": np.array([["a", "b"]] * 3)}, "scores in .* must be numbers, got <U1"),
        ({"scores": np.zeros((3, 2), dtype=complex)}, "must be numbers, got complex128"),
        ({"scores": np.full((3, 2), np.nan)}, "lacks 6 of 6 scores"),
        ({"scores": np.full((3, 2), 1e300)}, "scores must be probabilities"),
        ({"thresholds": np.array([0.5])}, "thresholds in .* must be 2 numbers, one for each label"),
        ({"thresholds": np.array([0.5, np.nan])}, "thresholds in .* must be 2 numbers"),
        ({"thresholds": np.array(["a", "b"])}, "thresholds in .* must be numbers"),
        ({"single_label": np.array([True, False])}, "single_label in .* must be true or false"),
        ({"single_label": np.array("yes")}, "single_label in .* must be true or false"),
        ({"bad_images": np.array(3), "bad_reasons": np.array(3)}, "bad_images in .* must be a list of strings"),
        ({"labels": np.array(["cat", ""])}, "lacks 1 of the dataset's 2 labels"),
        ({"images": np.zeros(0, dtype=str), "scores": np.zeros((0, 2))}, "no scores for 3 of the 3 images"),
    ],
)
def test_hostile_arrays_are_one_sentence(tmp_path, dataset, arrays, message):
    good = {"scores": np.zeros((3, 2)), "images": np.array(NAMES), "labels": np.array(["cat", "dog"])}
    np.savez(tmp_path / "scores.npz", **{**good, **arrays})
    with pytest.raises(ManyLabelError, match=message) as caught:
        read_scores(tmp_path / "scores.npz", dataset)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("ending", ["csv", "npz", "parquet"])
def test_a_file_cut_short_or_with_a_flipped_byte_is_one_sentence_or_read(tmp_path, dataset, scored, ending):
    whole = save_scores(scored, tmp_path / f"whole.{ending}").read_bytes()
    random = np.random.default_rng(0)
    cut = [whole[: len(whole) * part // 8] for part in range(8)]
    places = random.integers(len(whole), size=40)
    flipped = [whole[:place] + bytes([whole[place] ^ 0xFF]) + whole[place + 1 :] for place in places]
    for content in [*cut, *flipped]:
        (tmp_path / f"scores.{ending}").write_bytes(content)
        try:
            found = read_scores(tmp_path / f"scores.{ending}", dataset, max_missing_fraction=1)
        except ManyLabelError:
            continue
        assert found.scores.shape[1] == 2
