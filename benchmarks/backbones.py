"""Compare backbones on photos and elsewhere: python benchmarks/backbones.py --data voc:VOCdevkit/VOC2012,split=train.

Logistic regression, one per label, on average-pooled features of frozen backbones: on photos, for several numbers of
training images, and on images far from photos, drawn scenes and scanned digits. The L2 penalty is chosen on a fifth of
the training images. Test images are a fifth of the data, the same in all rows; a row is the mean over draws of the
training images.
"""

import argparse
import json
from pathlib import Path
from statistics import mean, stdev

import numpy as np
import torch
from sklearn.datasets import load_digits
from torch import Tensor
from torch.nn.functional import binary_cross_entropy_with_logits

from manylabel.backbone import Backbone
from manylabel.data import ImageDataset, load
from manylabel.features import FeatureCache
from manylabel.metrics import mean_average_precision
from manylabel.storage import write_text
from manylabel.types import LabelSpace

PENALTIES = (1e-4, 1e-3, 1e-2, 1e-1)


def main() -> None:
    """Print a row for each dataset, number of images and backbone, and write them as JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", required=True, help="data spec of photos")
    parser.add_argument("--images", type=int, nargs="+", default=[100, 300, 1000, 4574])
    parser.add_argument("--draws", type=int, default=5)
    parser.add_argument("--backbones", nargs="+", default=["offline:efficientnet_lite0", "offline:everyday"])
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results/backbones.json"))
    options = parser.parse_args()
    datasets = {"photos": load(options.data), "drawn scenes": load("scenes:1500"), "scanned digits": digits()}
    rows = []
    for title, dataset in datasets.items():
        for name in options.backbones:
            features, targets, known = features_of(dataset, name)
            test = np.arange(len(features)) % 5 == 0
            sizes = sorted({min(count, int((~test).sum())) for count in options.images})
            for count in sizes:
                found = []
                for draw in range(options.draws):
                    train = np.random.default_rng(draw).permutation(np.flatnonzero(~test))[:count]
                    logits = fit(features[train], targets[train], known[train])(features[test])
                    found.append(100 * float(mean_average_precision(logits.sigmoid(), targets[test], known[test])))
                rows.append({"data": title, "backbone": name, "images": count, "mAP": found})
                print(f"{title}, {name}, {count:5d} images: {mean(found):.1f} +- {stdev(found):.1f}", flush=True)
    write_text(options.out, json.dumps(rows, indent=2) + "\n", overwrite=True)


def digits() -> ImageDataset:
    """Return the 8 x 8 scans of scikit-learn, each with one of ten labels."""
    scans, labels = load_digits(return_X_y=True)
    images = np.repeat((255 / 16 * scans.reshape(-1, 8, 8, 1)).astype(np.uint8), 3, axis=3)
    return load((images, np.eye(10, dtype=np.int64)[labels]), labels=LabelSpace([str(digit) for digit in range(10)]))


def features_of(dataset: ImageDataset, name: str) -> tuple[Tensor, Tensor, Tensor]:
    """Return pooled features ``[N, C]``, and targets and known labels ``[N, L]``."""
    backbone = Backbone(name, frozen=True, stages=(-1,))
    cache = FeatureCache(backbone, input_spec=backbone.input_spec)
    cached = cache.fill(cache.plan(dataset, pooling="average"))
    (features,) = cached.read(np.arange(len(cached)))
    targets, known = map(torch.from_numpy, cached.dataset.targets.dense())
    return features.flatten(1), targets.float(), known


def fit(features: Tensor, targets: Tensor, known: Tensor) -> "LogisticRegression":
    """Return the model with the best penalty on a fifth of the images, fitted to all of them."""
    held_out = torch.arange(len(features)) % 5 == 0
    losses = []
    for penalty in PENALTIES:
        model = LogisticRegression(features[~held_out], targets[~held_out], known[~held_out], penalty=penalty)
        losses.append(_loss(model(features[held_out]), targets[held_out], known[held_out]).item())
    return LogisticRegression(features, targets, known, penalty=PENALTIES[int(np.argmin(losses))])


class LogisticRegression:
    """Logistic regression of all labels at once on standardised features, fitted by L-BFGS."""

    def __init__(self, features: Tensor, targets: Tensor, known: Tensor, *, penalty: float) -> None:
        self.mean, self.std = features.mean(0), features.std(0).clamp(min=1e-3)
        self.weight = torch.zeros(features.shape[1], targets.shape[1], requires_grad=True)
        self.bias = torch.zeros(targets.shape[1], requires_grad=True)
        optimizer = torch.optim.LBFGS([self.weight, self.bias], max_iter=100, line_search_fn="strong_wolfe")

        def closure() -> Tensor:
            optimizer.zero_grad()
            loss = _loss(self(features), targets, known) + penalty * self.weight.square().sum()
            loss.backward()
            return loss

        optimizer.step(closure)
        self.weight, self.bias = self.weight.detach(), self.bias.detach()

    def __call__(self, features: Tensor) -> Tensor:
        """Return logits ``[N, L]``."""
        return (features - self.mean) / self.std @ self.weight + self.bias


def _loss(logits: Tensor, targets: Tensor, known: Tensor) -> Tensor:
    return binary_cross_entropy_with_logits(logits, targets, known.float(), reduction="sum") / len(logits)


if __name__ == "__main__":
    main()
