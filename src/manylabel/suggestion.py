"""Which images to label next: those that a quick model is unsure about, spread over the space of features.

Selection is greedy k-means++ seeding (Arthur and Vassilvitskii, "k-means++: The Advantages of Careful Seeding", SODA
2007) on pooled features, with labelled images as the first centres and each image weighted by its uncertainty, as in
Zhdanov, "Diverse mini-batch Active Learning" (https://arxiv.org/abs/1901.05954), which clusters in full. Uncertainty is
the entropy of each label's score, summed over the labels with their inverse frequencies as weights; the papers have one
label per image. `benchmarks/suggest.py` compares it with random selection.

Letters in shape comments: N images to choose from, M labelled images, C channels, L labels.
"""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import polars as pl
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import normalize

from manylabel.backbone import Backbone
from manylabel.data import ImageDataset, files, load
from manylabel.errors import ConfigError, DataError
from manylabel.features import FeatureCache, fit_linear
from manylabel.features.cache import Progress
from manylabel.image_files import relative_path
from manylabel.label_text import join_labels, protect_cell, valid_unicode
from manylabel.predictions import Predictions
from manylabel.seeds import private_generator
from manylabel.settings import Probe
from manylabel.storage import replacing
from manylabel.system import find_device

WEIGHT_DECAY = 3e-4  # of the quick model, relative to the mean loss of an image
MOST_CANDIDATES = 50_000  # of more, this many are drawn at random, weighted by uncertainty


@dataclass(frozen=True, eq=False)
class Suggestions:
    """Images to label next; any number of the first ones is a good choice, too.

    Args:
        predictions: The images in order, with the scores of the quick model.
        uncertainty: ``[N]``, relative to the most uncertain image, which has 1.
    """

    predictions: Predictions
    uncertainty: NDArray[np.float32]

    def save(self, path: str | Path, *, overwrite: bool = False) -> Path:
        """Write the images to a file.

        Args:
            path: A ``.csv`` file with the columns image (relative to the file), tags (blank, to fill in), predicted and
                uncertainty, which ``csv:PATH,blank=drop`` reads; or one in another format of `Predictions.save`, such
                as ``tasks.label_studio.json``.
            overwrite: Whether to replace an existing file.

        Returns:
            The path.
        """
        if Path(path).suffix.lower() != ".csv":
            return self.predictions.save(path, overwrite=overwrite)
        folder = Path(path).absolute().parent
        paths = (relative_path(image.name, folder) for image in self.predictions)
        columns = {
            "image": [protect_cell(valid_unicode(path)) for path in paths],
            "tags": pl.repeat(None, len(self.predictions), dtype=pl.String, eager=True),
            "predicted": [join_labels(tag.label for tag in image.tags) for image in self.predictions],
            "uncertainty": self.uncertainty.round(4),
        }
        with replacing(path, overwrite=overwrite) as temporary:
            pl.DataFrame(columns).write_csv(temporary)
        return Path(path)


def suggest(
    data: object,
    images: str | Path | Sequence[str | Path] | ImageDataset,
    *,
    n: int = 200,
    backbone: str | Backbone = Probe.backbone,
    seed: int = 0,
    workers: int | None = None,
    device: str = "auto",
    progress: Progress | None = None,
) -> Suggestions:
    """Choose the images to label next.

    A linear model is fitted to cached features of the labelled images, which takes seconds. The images to label are
    those whose labels it is least sure about, rare labels first, and that differ from each other and from the labelled
    ones. Unreadable images are skipped.

    Args:
        data: Labelled images, in any form that `manylabel.data.load` takes.
        images: Images to choose from: files, folders, patterns or a dataset; labelled ones are left out.
        n: Number of images.
        backbone: Name of a backbone, or a frozen `Backbone`.
        seed: Seed of the selection.
        workers: Number of decoding processes (default: depends on the number of cores).
        device: Torch device of the backbone.
        progress: Called with the number of images done and the total while features are computed.

    Raises:
        ConfigError: `n` is below 1.
        DataError: There are no labels, or no images left to choose from.

    Examples:
        >>> from manylabel.data import scenes
        >>> small = Backbone("resnet10t", pretrained=False, frozen=True, stages=(-1,), image_size=64)
        >>> found = suggest(scenes(20), scenes(30, seed=1), n=3, backbone=small, workers=0)
        >>> len(found.predictions), len(found.predictions.labels), found.uncertainty.shape
        (3, 24, (3,))
    """
    if n < 1:
        raise ConfigError(f"n must be at least 1, got {n}")
    labelled = load(data)
    if not labelled.targets.positives.any():
        raise DataError(f"no image of {labelled.name} has a label; label about 50 images first, drawn at random")
    pool = _unlabelled(images if isinstance(images, ImageDataset) else files(images), labelled)
    if isinstance(backbone, str):
        backbone = Backbone(backbone, frozen=True, stages=(-1,))
    backbone.to(find_device(device))
    cache = FeatureCache(backbone, num_workers=workers, max_bad_fraction=1)
    (known, first), (new, rest) = (cache.averages(part, progress=progress) for part in (labelled, pool))
    both = standardise(torch.cat([first, rest]))
    first, rest = both[: len(first)], both[len(first) :]  # [M, C], [N, C]
    values, mask = map(torch.from_numpy, known.dataset.targets.dense())
    scores = fit_linear(first, values, mask, penalty=WEIGHT_DECAY * len(first))(rest).sigmoid()  # [N, L]
    uncertainty = score_uncertainty(scores, known.dataset.targets.positives)
    order = select_images(rest, uncertainty, n, labelled=first, rng=private_generator("suggested images", seed))
    chosen = new.dataset.subset(order)
    predictions = Predictions(
        scores[order].numpy(),
        labelled.labels,
        [str(path or chosen.images.name(index)) for index, path in enumerate(_paths(chosen))],
        single_label=labelled.single_label,
        sources=[chosen.images[index] for index in range(len(chosen))],
    )
    return Suggestions(predictions, (uncertainty / uncertainty.max())[order].numpy())


def standardise(features: Tensor) -> Tensor:
    """Return features ``[N, C]`` whose channels have mean 0, and whose vectors have a mean squared norm of 1.

    Examples:
        >>> standardise(torch.tensor([[1.0, 5.0], [3.0, 5.0]])).round(decimals=2)
        tensor([[-0.5000,  0.0000],
                [ 0.5000,  0.0000]])
    """
    deviation, mean = torch.std_mean(features, dim=0)
    scaled: Tensor = (features - mean) / deviation.clamp(min=1e-3)
    return scaled * float(features.shape[1] ** -0.5)


def score_uncertainty(scores: Tensor, positives: NDArray[np.int64]) -> Tensor:
    """Return the entropy of each image's scores, summed over labels, rare ones weighted more; ``[N]``.

    Args:
        scores: ``[N, L]``, probabilities.
        positives: ``[L]``, the number of labelled images that have each label.

    Examples:
        >>> score_uncertainty(torch.tensor([[0.5, 0.0], [0.0, 0.5]]), np.array([9, 4])).round(decimals=2)
        tensor([0.0700, 0.1400])
    """
    entropy = torch.special.entr(scores) + torch.special.entr(1 - scores)
    weighted: Tensor = entropy / (torch.from_numpy(positives) + 1).float()
    return weighted.sum(1)


def select_images(
    features: Tensor, weights: Tensor, n: int, *, labelled: Tensor, rng: np.random.Generator
) -> NDArray[np.int64]:
    """Choose images by greedy k-means++: of a few drawn with weight times squared distance, the most central one.

    Args:
        features: ``[N, C]``; only their directions matter.
        weights: ``[N]``, such as uncertainties.
        n: Number of images; all, if there are fewer.
        labelled: ``[M, C]``, features of images that are centres already.
        rng: Source of randomness.

    Returns:
        Their positions, in the order chosen.

    Examples:
        >>> points = torch.tensor([[1.0, 0.1], [1.0, 0.0], [0.0, 1.0], [-1.0, 0.0]])
        >>> rng = np.random.default_rng(0)
        >>> sorted(select_images(points, torch.ones(4), 2, labelled=points[:1], rng=rng).tolist())
        [2, 3]
    """
    candidates = np.arange(len(features))
    if len(features) > MOST_CANDIDATES:
        fractions = weights.double().numpy() + 1e-12
        candidates = rng.choice(candidates, MOST_CANDIDATES, replace=False, p=fractions / fractions.sum())
    points, centres = normalize(features[candidates], dim=1), normalize(labelled, dim=1)
    weights = weights[candidates]
    parts = torch.split(centres, 1024)
    nearest = torch.stack([_distances(points, part).amin(0) for part in parts]).amin(0)  # [N]
    trials = 2 + int(np.log(n))  # as in scikit-learn
    chosen: list[int] = []
    for _ in range(min(n, len(points))):
        chances = (weights * nearest).double().numpy() + 1e-12
        chances[chosen] = 0
        drawn = rng.choice(len(points), trials, p=chances / chances.sum())
        closer = torch.minimum(nearest, _distances(points, points[drawn]))  # [trials, N]
        best = int((closer * weights).sum(1).argmin())
        nearest = closer[best]
        chosen.append(int(drawn[best]))
    return candidates[chosen]


def _distances(points: Tensor, centres: Tensor) -> Tensor:
    """Return squared distances between unit vectors, ``[centres, points]``."""
    return (2 - 2 * centres @ points.T).clamp(min=0)


def _unlabelled(pool: ImageDataset, labelled: ImageDataset) -> ImageDataset:
    """Return the images that are not labelled, by path."""
    taken = {os.path.abspath(path) for path in _paths(labelled) if path is not None}  # noqa: PTH100 - a Path for each of a million images takes seconds
    is_new = [path is None or os.path.abspath(path) not in taken for path in _paths(pool)]  # noqa: PTH100 - likewise
    if not any(is_new):
        raise DataError(f"all images of {pool.name} are labelled in {labelled.name}; add others")
    return pool.subset(np.array(is_new))


def _paths(dataset: ImageDataset) -> list[Path | None]:
    images = (dataset.images[index] for index in range(len(dataset)))
    return [image if isinstance(image, Path) else None for image in images]
