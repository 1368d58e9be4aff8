"""How good is the default with few images? python -m benchmarks.few_images --data SPEC --out runs/few_images.

Each cell trains on N images drawn with its seed: the recipe `probe` with the defaults of a head, or another number of
steps or width (HEAD:STEPS:WIDTH), or logistic regression on average-pooled features, whose penalty is chosen on a fifth
of the N images. All cells of a row use the same images; mAP, and OF1 at 0.5, are those of all validation images.
Finished runs are reused, interrupted ones resumed. The gain over logistic regression has a 95 % interval over draws
(Student's t).
"""

import argparse
import json
from pathlib import Path
from statistics import mean, stdev

import numpy as np
from benchmarks.backbones import fit
from benchmarks.claims.arms import scores
from numpy.typing import NDArray
from scipy import stats
from torch import from_numpy

from manylabel.evaluation import ScoredImages, compute_metrics
from manylabel.recipes import Probe, TrainAndVal, open_sets, probe
from manylabel.recipes.loaders import cache_sets
from manylabel.recipes.reporter import Reporter
from manylabel.storage import write_text

BASELINE = "logistic_regression"
WATCHED = 10  # validation images after each epoch, which affect no weight


def main() -> None:
    """Train what is missing, print the table and write it as JSON."""
    options = parse()
    whole = open_sets(Probe(data=options.data, val=options.val))
    values, known = whole.val.targets.dense()
    rows: list[dict[str, object]] = []
    for size in options.images:
        num, reached = min(size, len(whole.train)), {}
        for setup in options.setups:
            reached[setup], overall = [], []
            for seed in options.seeds:
                chosen = np.random.default_rng(seed).permutation(len(whole.train))[:num]
                sets = TrainAndVal(whole.train.subset(np.sort(chosen)), whole.val)
                found = regression(options, sets) if setup == BASELINE else train(options, sets, setup, seed)
                scored = ScoredImages.from_arrays(found, values, known=known, labels=whole.val.labels)
                metrics = compute_metrics(scored)
                reached[setup].append(100 * metrics["mAP"])
                overall.append(100 * metrics["OF1"])
            row = {"images": num, "setup": setup, "mAP": reached[setup], "OF1": overall}
            if BASELINE in reached:
                row["gain"] = interval(np.subtract(reached[setup], reached[BASELINE]))
            rows.append(row)
            means = f"{mean(reached[setup]):.2f} mAP, {mean(overall):.2f} OF1"
            print(f"{num:5d} images, {setup}: {means}, gain {row.get('gain')}", flush=True)
            write_text(options.out / "results.json", json.dumps(rows, indent=2) + "\n", overwrite=True)


def interval(differences: NDArray[np.float64]) -> list[float]:
    """Return the mean over draws, and its 95 % interval."""
    middle, half = float(np.mean(differences)), 0.0
    if len(differences) > 1:
        half = float(stats.t.ppf(0.975, len(differences) - 1)) * stdev(differences) / len(differences) ** 0.5
    return [round(value, 2) for value in (middle, middle - half, middle + half)]


def train(options: argparse.Namespace, sets: TrainAndVal, setup: str, seed: int) -> NDArray[np.float32]:
    """Return the scores of a head trained on these images."""
    head, *numbers = setup.split(":")
    steps, width = (int(number) if number else None for number in [*numbers, "", ""][:2])
    num = len(sets.train)
    settings = Probe(
        data=options.data,
        val=options.val,
        head=head,
        head_settings={} if width is None else {"width": width, "feedforward": 2 * width},
        backbone=options.backbone,
        epochs=None if steps is None else -(-steps // -(-num // Probe.batch_size)),
        seed=seed,
        loss_settings=options.loss_settings,
        tune=False,
        logger="none",
        out=options.out / f"{num}-{setup.replace(':', '-')}-{seed}",
    )
    watched = TrainAndVal(sets.train, sets.val.subset(range(WATCHED)))
    return scores(probe(settings, sets=watched, resume=True, reporter=Reporter()).model, sets)


def regression(options: argparse.Namespace, sets: TrainAndVal) -> NDArray[np.float32]:
    """Return the scores of logistic regression on the features that the heads read, averaged over positions."""
    settings = Probe(data=options.data, val=options.val, backbone=options.backbone, head="linear", views=1)
    cached = cache_sets(probe.setup(settings, sets=sets), Reporter())
    train, val = (part.read(np.arange(len(part)))[-1].mean((2, 3)) for part in (cached.train, cached.val))
    targets, known = map(from_numpy, cached.train.dataset.targets.dense())
    return fit(train, targets.float(), known)(val).sigmoid().numpy()


def parse() -> argparse.Namespace:
    """Read the flags."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", required=True, help="data spec of the images to draw from")
    parser.add_argument("--val", help="data spec of the validation images (default: held-out images)")
    parser.add_argument("--images", type=int, nargs="+", default=[50, 100, 200, 400, 800, 1600, 5717])
    setups = [BASELINE, "linear", "csra", "ml_decoder"]
    parser.add_argument("--setups", nargs="+", default=setups, help=f"{BASELINE}, HEAD, HEAD:STEPS, HEAD:STEPS:WIDTH")
    parser.add_argument("--backbone", default=Probe.backbone)
    parser.add_argument("--loss-settings", type=json.loads, default={}, help="as JSON")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2, 3, 4])
    parser.add_argument("--out", type=Path, default=Path("runs/few_images"))
    return parser.parse_args()


if __name__ == "__main__":
    main()
