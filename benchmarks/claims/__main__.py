"""Test the four papers' claims: python -m benchmarks.claims $VOC $COCO, with the data specs of docs/claims.md.

Trains missing models under --runs, resuming interrupted ones, and writes results.json here and docs/claims.md; with a
subset of the claims (`--only`) or data, both go to --runs instead. `--quick` uses 1,500 images of VOC, three epochs and
one seed: a dry run of 14 minutes on one core, features included, in `quick` under --runs. `--collect` trains nothing
and uses the finished runs.
"""

import argparse
import json
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from benchmarks.claims import elsewhere
from benchmarks.claims.arms import TOP, arm_named, scores, train
from benchmarks.claims.page import page
from benchmarks.claims.statements import CLAIMS, Claim
from benchmarks.claims.verdict import INCONCLUSIVE, STATISTICS, compare, scored_images, verdict
from numpy.typing import NDArray

from manylabel.data import ImageDataset
from manylabel.recipes import Probe, TrainAndVal, open_sets
from manylabel.storage import write_text

HERE = Path(__file__).parent
BACKBONE = "offline:efficientnet_lite0"
QUICK = {"epochs": 3, "views": 1}

Reached = NDArray[np.float64]
"""Metric of a model, then its value in each bootstrap draw of images."""


@dataclass(frozen=True, eq=False)
class ClaimData:
    """Dataset to test claims on: its settings, images and seeds, and extra seeds for inconclusive results."""

    settings: dict[str, Any]
    sets: TrainAndVal
    folder: Path
    seeds: list[int]
    more_seeds: list[int]


def main() -> None:
    """Train missing models, test all claims, write the page."""
    options = parse()
    if options.quick:  # other settings need other runs
        options.runs /= "quick"
    datasets = open_datasets(options)
    rows, missing = [], []
    for claim in CLAIMS:
        if options.only and claim.number not in options.only:
            continue
        found, lacking = evaluate_claim(claim, datasets, options)
        rows += found
        missing += lacking
    if not options.only or 12 in options.only:
        rows += expert_rows(datasets, options)
    parts = (elsewhere.costs, elsewhere.zero_shot, elsewhere.self_distillation)
    rows += [each for part in parts for each in part() if not options.only or each["number"] in options.only]
    rows.sort(key=lambda each: each["number"])
    images = ", ".join(
        f"{name} {len(source.sets.train):,} + {len(source.sets.val):,}" for name, source in datasets.items()
    )
    results = {"about": f"Training + validation images: {images}.", "rows": rows, "missing": missing}
    whole = not options.only and {"VOC", "COCO", "small COCO"} <= {*datasets}
    write_text((HERE if whole else options.runs) / "results.json", json.dumps(results, indent=2) + "\n", overwrite=True)
    docs = HERE.parents[1] / "docs"
    write_text((docs if whole else options.runs) / "claims.md", page(results), overwrite=True)
    print(page(results))


def open_datasets(options: argparse.Namespace) -> dict[str, ClaimData]:
    """Open the datasets of the options."""
    limit = 1500 if options.quick else None
    seeds, more = ([0], []) if options.quick else (options.seeds, options.more_seeds)
    datasets = {}
    for name, data, val in (
        ("VOC", f"voc:{options.voc},split=train", None),
        ("COCO", options.coco, options.coco_val),
        ("small COCO", options.small_coco, options.small_coco_val),
    ):
        if data is not None and not (options.quick and "COCO" in name):
            settings = {"data": data, "val": val, "limit": limit, "backbone": BACKBONE}
            settings |= QUICK if options.quick else {}
            sets = open_sets(Probe(data=data, val=val, limit=limit))
            datasets[name] = ClaimData(settings, sets, options.runs / name.lower().replace(" ", "_"), seeds, more)
    voc = datasets["VOC"]
    if not options.quick:
        datasets["VOC, top trained"] = replace(voc, folder=options.runs / "voc_top", settings={**voc.settings, **TOP})
    alone = TrainAndVal(*(with_one_label(dataset) for dataset in (voc.sets.train, voc.sets.val)))
    datasets["VOC, one label"] = replace(
        voc, sets=alone, folder=options.runs / "one_label", settings={**voc.settings, "single_label": True}
    )
    return datasets


def with_one_label(dataset: ImageDataset) -> ImageDataset:
    """Return the images with exactly one present label and no unknown one."""
    values, known = dataset.targets.dense()
    return dataset.subset(((values.sum(axis=1) == 1) & known.all(axis=1)).nonzero()[0])


def evaluate_claim(
    claim: Claim, datasets: dict[str, ClaimData], options: argparse.Namespace
) -> tuple[list[dict[str, Any]], list[str]]:
    """Return a row for each dataset on which a claim was tested, and the tests that are missing."""
    rows, missing = [], []
    for name in claim.data:
        untested = f"Claim {claim.number} on {name}: {claim.text}."
        if name not in datasets:
            missing.append(f"{untested} No data given.")
            continue
        if "small" in claim.measure and datasets[name].sets.val.areas is None:
            missing.append(f"{untested} The annotations contain no object sizes.")
            continue
        pairs = measured(claim, datasets[name], options)
        if not pairs:
            missing.append(f"{untested} Not trained yet.")
            continue
        difference = compare(*zip(*pairs, strict=True))
        result = elsewhere.row(
            claim.number,
            claim.text,
            claim.paper,
            f"{name}: {difference} {claim.measure}, {len(pairs)} seed{'s' if len(pairs) > 1 else ''}",
            verdict(difference, claim.kind, claim.margin),
            f"python -m benchmarks.claims {'$VOC $COCO' if 'COCO' in name else '$VOC'} --only {claim.number}",
        )
        arms = zip((claim.first, claim.second), zip(*pairs, strict=True), strict=True)
        by_seed = {arm: [round(float(each[0]), 2) for each in values] for arm, values in arms}
        rows.append({**result, "by_seed": by_seed})
    return rows, missing


def measured(claim: Claim, source: ClaimData, options: argparse.Namespace) -> list[tuple[Reached, Reached]]:
    """Return the metrics of both arms of a claim by seed; inconclusive results get the extra seeds."""
    pairs: list[tuple[Reached, Reached]] = []
    for seeds in (source.seeds, source.seeds + source.more_seeds):
        first, second = (models_of(arm, source, seeds, options) for arm in (claim.first, claim.second))
        pairs = [
            (reached(claim.measure, first[seed], source), reached(claim.measure, second[seed], source))
            for seed in seeds
            if seed in first and seed in second
        ]
        if not pairs or verdict(compare(*zip(*pairs, strict=True)), claim.kind, claim.margin) != INCONCLUSIVE:
            break
    return pairs


def models_of(arm: str, source: ClaimData, seeds: list[int], options: argparse.Namespace) -> dict[int, Path]:
    """Return the models of an arm by seed; trains missing ones unless `--collect` is set."""
    chosen = arm_named(arm, len(source.sets.train.labels))
    if not options.collect:
        return dict(zip(seeds, train(chosen, source.settings, source.sets, source.folder, seeds), strict=True))
    there = {seed: source.folder / f"{chosen.name}-{seed}" / "model" for seed in seeds}
    return {seed: model for seed, model in there.items() if (model / "config.json").is_file()}


@cache
def reached(measure: str, model: Path, source: ClaimData) -> Reached:
    """Return the metric of a model and its bootstrap draws; cached, since several claims share an arm."""
    return STATISTICS[measure](
        scored_images(scores(model, source.sets, cut=source.settings.get("train_from")), source.sets.val)
    )


def expert_rows(datasets: dict[str, ClaimData], options: argparse.Namespace) -> list[dict[str, Any]]:
    """Return the row on dead experts, if the arm is trained."""
    source = datasets["VOC"]
    models = models_of("sharing", source, source.seeds, options)
    some = source.sets.val.subset(range(min(200, len(source.sets.val))))
    return elsewhere.experts(list(models.values()), some) if models else []


def parse() -> argparse.Namespace:
    """Parse the options."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--voc", required=True, help="VOC2012 folder")
    parser.add_argument("--coco", help="data spec of the COCO training images")
    parser.add_argument("--coco-val", help="data spec of the COCO validation images")
    parser.add_argument("--small-coco", help="data spec of fewer COCO training images, for slow heads")
    parser.add_argument("--small-coco-val")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument(
        "--more-seeds", type=int, nargs="*", default=[3, 4], help="extra seeds for inconclusive results"
    )
    parser.add_argument("--only", type=int, nargs="+", help="numbers of claims")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--collect", action="store_true", help="train nothing")
    parser.add_argument("--runs", type=Path, default=Path("runs/claims"))
    return parser.parse_args()


if __name__ == "__main__":
    main()
