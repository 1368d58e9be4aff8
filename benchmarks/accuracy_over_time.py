"""mAP against minutes of training: the head alone, the top of the backbone and the head, and the whole network.

All train the default head on the same images, from the same ImageNet weights; "last blocks and head" trains half as
many layers as the default cut. Minutes are those of the recipe, features included: each run has a feature cache of its
own, so nothing is reused between them.

    python -m benchmarks.accuracy_over_time --data SPEC --val SPEC
"""

import argparse
import csv
import json
import os
import time
from pathlib import Path

from manylabel.recipes import Finetune, Probe, finetune, probe
from manylabel.recipes.reporter import Reporter
from manylabel.storage import write_text

PARTS = {
    "head": (probe, Probe, {}),
    "last blocks and head": (finetune, Finetune, {"train_from": "blocks.5"}),
    "top and head": (finetune, Finetune, {}),
    "whole network": (finetune, Finetune, {"train_from": "all"}),
}
RESULTS = Path(__file__).parent / "results" / "accuracy_over_time.json"


def main() -> None:
    """Train them one after the other, and print minutes and mAP after each epoch."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", required=True)
    parser.add_argument("--val", required=True)
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=list(PARTS))
    parser.add_argument("--epochs", type=int, nargs="+", default=[6, 4, 4, 2], help="of each part")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=Path("runs/accuracy_over_time"))
    options = parser.parse_args()
    common = {
        "data": options.data,
        "val": options.val,
        "backbone": "offline:efficientnet_lite0",
        "head_settings": {"width": 256, "feedforward": 512},  # those of the probe, for all
        "loss": "asymmetric",
        "seed": options.seed,
        "tune": False,
        "logger": "none",
    }
    rows = json.loads(RESULTS.read_text(encoding="utf-8")) if RESULTS.is_file() else []
    for name, epochs in zip(options.parts, options.epochs, strict=True):
        recipe, settings, extra = PARTS[name]
        out = options.out / name.replace(" ", "_")
        os.environ["MANYLABEL_CACHE"] = str(out.with_suffix(".cache"))
        start = time.perf_counter()
        run = recipe(settings(**common, **extra, epochs=epochs, out=out), reporter=Reporter())
        whole = time.perf_counter() - start
        with (run.path / "metrics.csv").open(encoding="utf-8") as file:
            metrics = list(csv.DictReader(file))
        spent = whole - sum(float(epoch["seconds"]) for epoch in metrics)  # features, start and end of the program
        for epoch in metrics:
            spent += float(epoch["seconds"])
            row = {"trained": name, "epoch": int(epoch["epoch"]), "seed": options.seed}
            rows.append({**row, "minutes": round(spent / 60, 2), "mAP": round(100 * float(epoch["val_mAP"]), 2)})
            print(rows[-1], flush=True)
        write_text(RESULTS, "[\n" + ",\n".join(map(json.dumps, rows)) + "\n]\n", overwrite=True)


if __name__ == "__main__":
    main()
