"""All heads on the same frozen features of real images, compared with logistic regression.

    python benchmarks/heads_on_images.py voc --data voc:VOCdevkit/VOC2012,split=train --seeds 0 1 2

Each cell is one `manylabel train` with the head's defaults and the asymmetric loss of the papers, in a process of its
own. Finished runs are reused, interrupted ones resumed. Logistic regression uses average-pooled features, one model per
label, and the regularisation that is best on the validation set, which favours it. Intervals are 95 % bootstrap
intervals over validation images, of the mean mAP over seeds. Minutes are wall clock; the first head of a dataset
includes the pass through the backbone.
"""

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.linear_model import LogisticRegression
from sklearn.preprocessing import StandardScaler
from torch import Tensor

from manylabel.classifier import Classifier
from manylabel.evaluation import bootstrap_weights
from manylabel.evaluation.bootstrap import estimate
from manylabel.features import CachedFeatures, FeatureLoader
from manylabel.heads import HEADS
from manylabel.metrics import mean_average_precision
from manylabel.recipes import Probe, Reporter, probe
from manylabel.recipes.loaders import CachedSets, cache_sets
from manylabel.recipes.setup import open_sets
from manylabel.storage import write_text

RESULTS = Path(__file__).parent / "results"
STRENGTHS = (0.001, 0.003, 0.01, 0.03)
DRAWS = 1000
TEXT_HEADS = {"conse", "text_map"}  # of the recipe zero_shot

BACKBONE = "offline:efficientnet_lite0"


def read_all(cached: CachedFeatures, *, head: torch.nn.Module | None = None) -> tuple[Tensor, Tensor, Tensor]:
    """Return logits (or average-pooled features, without a head), targets and what is known of them."""
    parts = []
    with torch.inference_mode():
        for batch in FeatureLoader(cached, batch_size=256, view=0):
            out = batch.features[-1].mean((2, 3)) if head is None else head(list(batch.features))
            parts.append((out, batch.targets, batch.known))
    scores, targets, known = (torch.cat(column) for column in zip(*parts, strict=True))
    return scores, targets.bool(), known.bool()


def logistic_regression(cached: CachedSets) -> tuple[Tensor, float]:
    """Return the scores of the held-out images, and the regularisation that did best on them."""
    features, targets, known = (part.numpy() for part in read_all(cached.train))
    val_features, val_targets, val_known = read_all(cached.val)
    scale = StandardScaler().fit(features)
    best: tuple[float, Tensor, float] = (-1.0, torch.empty(0), 0.0)
    for strength in STRENGTHS:
        columns = [
            LogisticRegression(C=strength, max_iter=300)
            .fit(scale.transform(features[known[:, label]]), targets[known[:, label], label])
            .decision_function(scale.transform(val_features.numpy()))
            for label in range(targets.shape[1])
        ]
        scores = torch.from_numpy(np.stack(columns, axis=1)).float()
        mean = float(mean_average_precision(scores, val_targets, val_known))
        best = max(best, (mean, scores, strength), key=lambda one: one[0])
    return best[1], best[2]


def draws_of(scores: Tensor, targets: Tensor, known: Tensor) -> NDArray[np.float64]:
    """Return mAP, then that of each bootstrap draw."""
    weights = bootstrap_weights(len(scores), draws=DRAWS)
    return mean_average_precision(scores, targets, known, weights=weights).double().numpy()


def train(arguments: argparse.Namespace, head: str, seed: int) -> None:
    """Run the command of one cell unless it is finished, and save its duration."""
    out = arguments.runs / arguments.name / f"{head}-{seed}"
    if not (out / "model" / "config.json").is_file():
        extra = ["--val", arguments.val] if arguments.val else []
        recipe = ["--head", head, "--loss", "asymmetric"]
        if head == "rm":
            recipe = ["--recipe", "representation_mixup", "--preset", "paper"]
        common = [*extra, "--backbone", BACKBONE, "--seed", str(seed), "--out", str(out), "--resume"]
        begun, whole = time.time(), not out.exists()
        subprocess.run([sys.executable, "-m", "manylabel", "train", arguments.data, *recipe, *common], check=True)
        minutes = (time.time() - begun) / 60 if whole else None
        write_text(out / "minutes.json", json.dumps(minutes), overwrite=True)


def row(
    name: str, draws: Sequence[NDArray[np.float64]], baseline: NDArray[np.float64], **more: object
) -> dict[str, Any]:
    """Return a row of the table: mAP and gain over the baseline, with intervals, in per cent."""
    mean = 100 * np.mean(draws, axis=0)
    gain = mean - 100 * baseline
    reached, ahead = (estimate(one, bounds=(-100, 100)) for one in (mean, gain))
    return {
        "head": name,
        "seeds": [round(100 * float(one[0]), 2) for one in draws],
        "mAP": [round(float(one), 2) for one in (reached.value, reached.low, reached.high)],
        "gain": [round(float(one), 2) for one in (ahead.value, ahead.low, ahead.high)],
        **more,
    }


def table(rows: Sequence[dict[str, Any]]) -> str:
    """Return the rows as Markdown."""
    lines = ["| head | mAP (95 % interval) | gain over logistic regression | per seed | parameters | minutes |"]
    lines.append("|---|---|---|---|---|---|")
    for one in rows:
        reached, ahead = ("{:.1f} ({:.1f} to {:.1f})".format(*one[key]) for key in ("mAP", "gain"))
        seeds = ", ".join(f"{value:.2f}" for value in one["seeds"])
        lines.append(f"| {one['head']} | {reached} | {ahead} | {seeds} | {one['parameters']:,} | {one['minutes']} |")
    return "\n".join(lines)


def main() -> None:
    """Run what is missing, then write the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("name", help="Name of the dataset, of the folder of runs and of the file of results.")
    parser.add_argument("--data", required=True)
    parser.add_argument("--val")
    parser.add_argument("--heads", nargs="+", default=sorted({*HEADS} - TEXT_HEADS))
    parser.add_argument("--seeds", nargs="+", type=int, default=[0])
    parser.add_argument("--runs", type=Path, default=Path("runs/heads_on_images"))
    parser.add_argument("--only-collect", action="store_true", help="Train nothing: tabulate finished runs.")
    arguments = parser.parse_args()

    if not arguments.only_collect:
        for head, seed in product(arguments.heads, arguments.seeds):
            train(arguments, head, seed)
    settings = Probe(data=arguments.data, val=arguments.val, backbone=BACKBONE, views=1)
    sets = open_sets(settings)
    setup = probe.setup(settings, sets=sets)
    cached = cache_sets(setup, Reporter())
    _, targets, known = read_all(cached.val)
    scores, strength = logistic_regression(cached)
    baseline = draws_of(scores, targets, known)
    inputs = cached.train.channels[-1] + 1
    rows = [
        row(
            f"logistic regression (C = {strength})",
            [baseline],
            baseline,
            parameters=inputs * len(sets.train.labels),
            minutes="",
        )
    ]
    for head in arguments.heads:
        found, minutes, parameters = [], [], 0
        for seed in arguments.seeds:
            out = arguments.runs / arguments.name / f"{head}-{seed}"
            if not (out / "model" / "config.json").is_file():
                continue
            model = Classifier.from_pretrained(out / "model").eval()
            parameters = sum(each.numel() for each in model.head.parameters() if each.requires_grad)
            features = cached.val if model.backbone.stages == cached.val.stores[0].spec.stages else None
            if features is None:
                model.backbone.freeze()
                features = cache_sets(replace(setup, model=model, cached=model.backbone), Reporter()).val
            found.append(draws_of(read_all(features, head=model.head)[0], targets, known))
            saved = out / "minutes.json"  # missing if the run was started by hand
            minutes.append(json.loads(saved.read_text()) if saved.is_file() else None)
        if found:
            known = [one for one in minutes if one is not None]
            rows.append(
                row(
                    head,
                    found,
                    baseline,
                    parameters=parameters,
                    minutes=round(float(np.median(known)), 1) if known else "",
                )
            )
        write_text(RESULTS / f"heads_{arguments.name}.json", json.dumps(rows, indent=2) + "\n", overwrite=True)
    print(table(rows))


if __name__ == "__main__":
    main()
