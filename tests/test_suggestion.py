import numpy as np
import pytest
import torch
from torch.nn.functional import normalize

from conformance.reader_suite import draw
from manylabel.backbone import Backbone
from manylabel.data import load
from manylabel.errors import ConfigError, DataError
from manylabel.predictions import Predictions
from manylabel.recipes.loaders import plan_sets
from manylabel.recipes.setup import Parts, TrainAndVal, prepare_frozen
from manylabel.settings import Probe
from manylabel.suggestion import Suggestions, score_uncertainty, select_images, suggest
from manylabel.types import LabelSpace

COLOURS = ("red", "green", "blue", "white")


@pytest.fixture(scope="module")
def backbone():
    torch.manual_seed(0)
    return Backbone("test_resnet", pretrained=False, frozen=True, stages=(-1,), image_size=32)


@pytest.fixture
def photos(tmp_path, monkeypatch):
    monkeypatch.setenv("MANYLABEL_CACHE", str(tmp_path / "cache"))
    for number in range(12):
        draw(tmp_path / "photos" / f"{number}.png", colour=COLOURS[number % 4], size=(8 + number, 8))
    (tmp_path / "photos" / "bad.png").write_bytes(b"no image")
    rows = "".join(f"photos/{number}.png,{COLOURS[number % 4]}\n" for number in range(4))
    (tmp_path / "labels.csv").write_text("image,tags\n" + rows)
    return tmp_path


def test_suggests_new_readable_images_that_read_back_after_labelling(photos, backbone):
    found = suggest(photos / "labels.csv", photos / "photos", n=5, backbone=backbone, workers=0)
    names = [image.path.name for image in found.predictions]
    assert len(set(names)) == 5
    assert not set(names) & {"0.png", "1.png", "2.png", "3.png", "bad.png"}
    assert ((found.uncertainty > 0) & (found.uncertainty <= 1)).all()
    path = found.save(photos / "next" / "next.csv")
    header, first, *rest = path.read_text().splitlines()
    assert header == "image,tags,predicted,uncertainty"
    image, blank, *others = first.split(",")
    assert blank == ""
    path.write_text("\n".join([header, ",".join([image, "red|blue", *others]), *rest]))
    again = load(f"{path},blank=drop")
    assert [again.images[0].resolve().name, again.labels_of(0), len(again)] == [names[0], ["blue", "red"], 1]


def test_the_same_seed_suggests_the_same(photos, backbone):
    first, second, other = (
        suggest(
            photos / "labels.csv", photos / "photos", n=4, seed=seed, backbone=backbone, workers=0
        ).predictions.names
        for seed in (0, 0, 1)
    )
    assert first == second
    assert first != other


def test_more_images_than_there_are_gives_all(photos, backbone):
    found = suggest(photos / "labels.csv", photos / "photos", n=100, backbone=backbone, workers=0)
    assert len(found.predictions) == 8


def test_odd_names_of_images_can_be_saved(tmp_path):
    names = ["https://example.org/a.jpg", str(tmp_path / "caf\udce9.jpg"), "=1+1.jpg"]
    predictions = Predictions(np.full((3, 1), 0.9, np.float32), LabelSpace(["cat"]), names)
    path = Suggestions(predictions, np.ones(3, np.float32)).save(tmp_path / "next.csv")
    images = [row.split(",")[0] for row in path.read_text(encoding="utf-8").splitlines()[1:]]
    assert images[:2] == ["https://example.org/a.jpg", r"caf\udce9.jpg"]
    assert images[2].endswith("=1+1.jpg")


def test_reads_images_as_training_does(photos, backbone):
    settings = Probe(data=str(photos / "labels.csv"), backbone="unused", limit=4)
    sets = TrainAndVal(load(photos / "labels.csv"), load(photos / "labels.csv"))
    setup = prepare_frozen(settings, sets, Parts(backbone=backbone))
    cache, (train, _) = plan_sets(setup)
    cache.fill(train)
    seen = []
    suggest(
        photos / "labels.csv", photos / "photos", n=1, backbone=backbone, workers=0, progress=lambda *n: seen.append(n)
    )
    assert seen[0] == (4, 4)  # of the labelled images, none is computed again


def test_says_what_is_missing(photos, backbone):
    with pytest.raises(DataError, match=r"all images of .* are labelled"):
        suggest(photos / "labels.csv", photos / "photos" / "1.png", backbone=backbone)
    with pytest.raises(DataError, match="label about 50 images first"):
        suggest(f"files:{photos / 'photos'}", photos / "photos", backbone=backbone)
    with pytest.raises(ConfigError, match="n must be at least 1, got 0"):
        suggest(photos / "labels.csv", photos / "photos", n=0, backbone=backbone)


def test_uncertainty_is_the_entropy_of_labels_over_their_counts():
    scores = torch.tensor([[0.5, 0.9], [1.0, 0.2]])
    entropy = [[-sum(q * np.log(q) for q in (p, 1 - p) if q) for p in row] for row in scores.double().tolist()]
    expected = [row[0] / 4 + row[1] / 1 for row in entropy]
    np.testing.assert_allclose(score_uncertainty(scores, np.array([3, 0])), expected, rtol=1e-5)


def test_selection_spreads_over_clusters_and_avoids_labelled_ones():
    rng = np.random.default_rng(0)
    centres = np.eye(6)
    cluster = np.arange(600) % 6
    points = torch.from_numpy(centres[cluster] + 0.01 * rng.standard_normal((600, 6))).float()
    chosen = select_images(points, torch.ones(600), 4, labelled=points[cluster < 2], rng=rng)
    assert sorted(cluster[chosen]) == [2, 3, 4, 5]
    weights = torch.from_numpy(np.where(cluster == 5, 0.0, 1.0)).float()
    chosen = select_images(points, weights, 3, labelled=points[cluster < 2], rng=rng)
    assert sorted(cluster[chosen]) == [2, 3, 4]


def test_a_step_takes_the_drawn_image_that_lowers_the_weighted_distances_most():
    rng = np.random.default_rng(1)
    points = normalize(torch.from_numpy(rng.standard_normal((30, 4))).float(), dim=1)
    weights = torch.from_numpy(rng.random(30)).float()
    labelled = points[:2]
    found = select_images(points, weights, 1, labelled=labelled, rng=np.random.default_rng(7))
    nearest = np.array([min(float((p - c).square().sum()) for c in labelled) for p in points])
    chances = weights.double().numpy() * nearest.astype(np.float32) + 1e-12
    drawn = np.random.default_rng(7).choice(30, 2, p=chances / chances.sum())

    def left(centre):
        return sum(
            float(weights[i]) * min(nearest[i], float((points[i] - points[centre]).square().sum())) for i in range(30)
        )

    assert found[0] == min(drawn, key=left)


def test_large_pools_are_thinned_out_by_weight(monkeypatch):
    monkeypatch.setattr("manylabel.suggestion.MOST_CANDIDATES", 10)
    points = torch.from_numpy(np.random.default_rng(0).standard_normal((50, 4))).float()
    weights = torch.zeros(50)
    weights[::5] = 1
    chosen = select_images(points, weights, 10, labelled=points[1:2], rng=np.random.default_rng(0))
    assert sorted(chosen) == list(range(0, 50, 5))
