"""Labels needed to reach a mAP, suggested or random: python -m benchmarks.suggest --data voc:VOCdevkit/VOC2012.

For each draw, a third of the images is the test set. The first images are drawn at random, and each round adds as many
by a rule: random, uncertainty alone, diversity alone, or both as in `manylabel suggest`. All rules start from the same
images. The number of labels at which the mAP is reached is interpolated between rounds. The model is the linear one of
`suggest`, on pooled features of a frozen backbone.
"""

import argparse
import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from manylabel.backbone import Backbone
from manylabel.data import load
from manylabel.evaluation import ScoredImages, compute_metrics
from manylabel.features import FeatureCache, fit_linear
from manylabel.settings import Probe
from manylabel.storage import write_text
from manylabel.suggestion import WEIGHT_DECAY, score_uncertainty, select_images, standardise

RESULTS = Path(__file__).parent / "results" / "suggest.json"

Rule = Callable[[torch.Tensor, torch.Tensor, torch.Tensor, int, np.random.Generator], NDArray[np.int64]]

RULES: dict[str, Rule] = {
    "random": lambda points, _, __, n, rng: rng.choice(len(points), n, replace=False),
    "uncertainty": lambda _, weights, __, n, ___: weights.argsort(descending=True)[:n].numpy(),
    "diversity": lambda points, weights, labelled, n, rng: select_images(
        points, torch.ones_like(weights), n, labelled=labelled, rng=rng
    ),
    "suggest": lambda points, weights, labelled, n, rng: select_images(points, weights, n, labelled=labelled, rng=rng),
}


def main() -> None:
    """Run all rules and draws, print the table and write it as JSON."""
    options = parse()
    dataset = load(options.data)
    cache = FeatureCache(Backbone(options.backbone, frozen=True, stages=(-1,)))
    cached, averages = cache.averages(dataset)
    features = standardise(averages)
    values, known = map(torch.from_numpy, cached.dataset.targets.dense())
    sizes = range(options.step, options.end + 1, options.step)
    curves: dict[str, list[list[float]]] = {rule: [] for rule in RULES}
    for seed in options.seeds:
        order = np.random.default_rng(seed).permutation(len(features))
        test, train = order[: len(order) // 3], order[len(order) // 3 :]
        for rule, select in RULES.items():
            labelled, curve = train[: options.step], []
            for size in sizes:
                penalty = WEIGHT_DECAY * len(labelled)
                model = fit_linear(features[labelled], values[labelled], known[labelled], penalty=penalty)
                logits = model(features[test])
                scored = ScoredImages.from_arrays(
                    logits.sigmoid(), values[test], known=known[test], labels=cached.dataset.labels
                )
                curve.append(100 * compute_metrics(scored, ["mAP"])["mAP"])
                pool = np.setdiff1d(train, labelled)
                weights = score_uncertainty(model(features[pool]).sigmoid(), values[labelled].sum(0).long().numpy())
                rng = np.random.default_rng([seed, size])
                chosen = select(features[pool], weights, features[labelled], options.step, rng)
                labelled = np.concatenate([labelled, pool[chosen]])
            curves[rule].append(curve)
        needed = report(list(sizes), curves, options.goal)  # after each draw, as a run takes minutes
        result = {
            "dataset": dataset.name,
            "images": len(features),
            "backbone": options.backbone,
            "goal_mAP": options.goal,
            "seeds": options.seeds[: len(curves["random"])],
            "labels": list(sizes),
            "mAP": curves,
            "labels_needed": needed,
        }
        write_text(RESULTS, json.dumps(result, indent=2) + "\n", overwrite=True)


def report(sizes: list[int], curves: dict[str, list[list[float]]], goal: float) -> dict[str, list[float]]:
    """Print the mean curves, and return the labels needed by rule and draw."""
    needed = {rule: [labels_needed(sizes, curve, goal) for curve in each] for rule, each in curves.items()}
    print("labels      " + "".join(f"{size:7d}" for size in sizes) + f"   to {goal:g} mAP   saved against random")
    for rule, each in curves.items():
        values = "".join(f"{value:7.1f}" for value in np.mean(each, axis=0))
        saved = 1 - np.array(needed[rule]) / np.array(needed["random"])
        error = saved.std(ddof=1) / len(saved) ** 0.5 if len(saved) > 1 else np.nan
        count, gain = np.mean(needed[rule]), f"{100 * saved.mean():.0f} +- {100 * error:.0f} %"
        print(f"{rule:12s}{values}   {count:7.0f}   {gain}   {[round(value) for value in needed[rule]]}")
    return needed


def labels_needed(sizes: list[int], curve: list[float], goal: float) -> float:
    """Return the number of labels at which a curve first reaches the goal; the last size if it never does."""
    for position, value in enumerate(curve):
        if value >= goal:
            if position == 0:
                return sizes[0]
            fraction = (goal - curve[position - 1]) / (value - curve[position - 1])
            return sizes[position - 1] + fraction * (sizes[position] - sizes[position - 1])
    return sizes[-1]


def parse() -> argparse.Namespace:
    """Read the flags."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", required=True, help="data spec of images with labels")
    parser.add_argument("--backbone", default=Probe.backbone)
    parser.add_argument("--goal", type=float, default=80.0, help="mAP to reach")
    parser.add_argument("--step", type=int, default=50, help="labels at first, and added in each round")
    parser.add_argument("--end", type=int, default=400, help="labels of the last round")
    parser.add_argument("--seeds", type=int, nargs="+", default=list(range(10, 20)))
    return parser.parse_args()


if __name__ == "__main__":
    main()
