"""Training length on few images: python -m benchmarks.few_images --data SPEC --val SPEC.

Each cell is a probe with the defaults of its head, on N images, for about as many steps; the seed selects the images
and initialises the head. Finished runs are reused, interrupted ones resumed. mAP is that of the last epoch's averaged
weights on all validation images, the mean over seeds; all cells of a row use the same images.
"""

import argparse
import json
from itertools import product
from pathlib import Path
from statistics import mean, stdev
from typing import Any

import numpy as np
from benchmarks.claims.arms import WATCHED, scores

from manylabel.evaluation import ScoredImages, compute_metrics
from manylabel.recipes import Probe, TrainAndVal, open_sets, probe
from manylabel.storage import write_text


def main() -> None:
    """Train what is missing, print the table and write it as JSON."""
    options = parse()
    whole = open_sets(Probe(data=options.data, val=options.val))
    values, known = whole.val.targets.dense()
    rows = []
    for num, (head, steps) in product(options.images, options.setups):
        reached = []
        for seed in options.seeds:
            chosen = np.random.default_rng(seed).permutation(len(whole.train))[:num]
            sets = TrainAndVal(whole.train.subset(np.sort(chosen)), whole.val)
            model = train(options, sets, head, steps, seed)
            scored = ScoredImages.from_arrays(scores(model, sets), values, known=known, labels=whole.val.labels)
            reached.append(100 * compute_metrics(scored)["mAP"])
        row = {"images": num, "head": head, "steps": steps, "mAP": reached}
        spread = f" +- {stdev(reached):.1f}" if len(reached) > 1 else ""
        print(f"{num:5d} images, {head}, {steps:3d} steps: {mean(reached):.1f}{spread}", flush=True)
        rows.append(row)
    recorded = {name: str(value) if isinstance(value, Path) else value for name, value in vars(options).items()}
    write_text(
        options.out / "results.json", json.dumps({"options": recorded, "rows": rows}, indent=2) + "\n", overwrite=True
    )


def train(options: argparse.Namespace, sets: TrainAndVal, head: str, steps: int, seed: int) -> Path:
    """Return the model that a head becomes on these images in at least so many steps."""
    num = len(sets.train)
    settings = Probe(
        data=options.data,
        val=options.val,
        head=head,
        backbone=options.backbone,
        epochs=-(-steps // -(-num // Probe.batch_size)),
        seed=seed,
        logger="none",
        out=options.out / f"{num}-{head}-{steps}-{seed}",
    )
    watched = TrainAndVal(sets.train, sets.val.subset(range(min(WATCHED, len(sets.val)))))
    return probe(settings, sets=watched, resume=True).model


def setup(text: str) -> tuple[str, int]:
    """Read HEAD:STEPS."""
    head, _, steps = text.partition(":")
    return head, int(steps)


def parse() -> argparse.Namespace:
    """Read the flags."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", required=True, help="data spec of the images to draw from")
    parser.add_argument("--val", help="data spec of the validation images (default: held-out images)")
    parser.add_argument("--images", type=int, nargs="+", default=[250, 500, 1000, 2000])
    default: list[Any] = [("ml_decoder", 50), ("ml_decoder", 100), ("ml_decoder", 200), ("linear", 200)]
    parser.add_argument("--setups", type=setup, nargs="+", default=default, help="HEAD:STEPS")
    parser.add_argument("--backbone", default=Probe.backbone)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--out", type=Path, default=Path("runs/few_images"))
    return parser.parse_args()


if __name__ == "__main__":
    main()
