"""Test the four papers' claims: python -m benchmarks.claims $VOC $COCO, with the data as docs/claims.md names them.

Trains what is missing under --runs, in pieces that go on where they were killed, and writes results.json here and
docs/claims.md; where claims (`--only`) or data are left out, both go to --runs instead. `--quick` takes 1,500 images
of VOC, three epochs and one seed: a rehearsal of 14 minutes on one core, features included, in `quick` under --runs.
`--collect` trains nothing: it takes what is there.
"""

import argparse
import json
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from benchmarks.claims import elsewhere
from benchmarks.claims.arms import arm_named, scores, train
from benchmarks.claims.judging import STATISTICS, UNTOLD, compare, scored_images, verdict
from benchmarks.claims.page import page
from benchmarks.claims.statements import CLAIMS, Claim
from numpy.typing import NDArray

from manylabel.data import ImageDataset
from manylabel.recipes import Probe, TrainAndVal, open_sets
from manylabel.storage import write_text

HERE = Path(__file__).parent
QUICK = {"epochs": 3, "views": 1}

Reached = NDArray[np.float64]
"""What a model reaches, and in each draw of images."""


@dataclass(frozen=True, eq=False)
class Place:
    """Data to test claims on: how settings name it, its images, and the seeds; more where the first cannot tell."""

    settings: dict[str, Any]
    sets: TrainAndVal
    folder: Path
    seeds: list[int]
    more_seeds: list[int]


def main() -> None:
    """Train what is missing, judge, write the page."""
    options = parse()
    if options.quick:  # other settings, so other runs
        options.runs /= "quick"
    places = open_places(options)
    rows, missing = [], []
    for claim in CLAIMS:
        if options.only and claim.number not in options.only:
            continue
        found, lacking = judge(claim, places, options)
        rows += found
        missing += lacking
    if not options.only or 12 in options.only:
        rows += look_at_experts(places, options)
    parts = (elsewhere.costs, elsewhere.zero_shot, elsewhere.self_distillation, elsewhere.by_subsets)
    rows += [each for part in parts for each in part() if not options.only or each["number"] in options.only]
    rows.sort(key=lambda each: each["number"])
    images = ", ".join(f"{name} {len(place.sets.train):,} + {len(place.sets.val):,}" for name, place in places.items())
    results = {"about": f"Images to train on + to judge by: {images}.", "rows": rows, "missing": missing}
    whole = not options.only and {"VOC", "COCO", "small COCO"} <= {*places}
    write_text((HERE if whole else options.runs) / "results.json", json.dumps(results, indent=2) + "\n", overwrite=True)
    docs = HERE.parents[1] / "docs"
    write_text((docs if whole else options.runs) / "claims.md", page(results), overwrite=True)
    print(page(results))


def open_places(options: argparse.Namespace) -> dict[str, Place]:
    """Open the data that were named."""
    limit = 1500 if options.quick else None
    seeds, more = ([0], []) if options.quick else (options.seeds, options.more_seeds)
    places = {}
    for name, data, val in (
        ("VOC", f"voc:{options.voc},split=train", None),
        ("COCO", options.coco, options.coco_val),
        ("small COCO", options.small_coco, options.small_coco_val),
    ):
        if data is not None and not (options.quick and "COCO" in name):
            settings = {"data": data, "val": val, "limit": limit, **(QUICK if options.quick else {})}
            sets = open_sets(Probe(data=data, val=val, limit=limit))
            places[name] = Place(settings, sets, options.runs / name.lower().replace(" ", "_"), seeds, more)
    voc = places["VOC"]
    alone = TrainAndVal(*(with_one_label(dataset) for dataset in (voc.sets.train, voc.sets.val)))
    places["VOC, one label"] = replace(
        voc, sets=alone, folder=options.runs / "one_label", settings={**voc.settings, "single_label": True}
    )
    return places


def with_one_label(dataset: ImageDataset) -> ImageDataset:
    """Return the images with exactly one label that is there, and none that is unknown."""
    values, known = dataset.targets.dense()
    return dataset.subset(((values.sum(axis=1) == 1) & known.all(axis=1)).nonzero()[0])


def judge(
    claim: Claim, places: dict[str, Place], options: argparse.Namespace
) -> tuple[list[dict[str, Any]], list[str]]:
    """Return a row for each dataset on which a claim was tested, and what is missing."""
    rows, missing = [], []
    for name in claim.data:
        untested = f"Claim {claim.number} on {name}: {claim.text}."
        if name not in places:
            missing.append(f"{untested} These data were not given.")
            continue
        if "small" in claim.measure and places[name].sets.val.areas is None:
            missing.append(f"{untested} The file of these labels gives no sizes of objects.")
            continue
        pairs = measured(claim, places[name], options)
        if not pairs:
            missing.append(f"{untested} Not trained yet.")
            continue
        difference = compare(*zip(*pairs, strict=True))
        told = elsewhere.row(
            claim.number,
            claim.text,
            claim.paper,
            f"{name}: {difference} {claim.measure}, {len(pairs)} seed{'s' if len(pairs) > 1 else ''}",
            verdict(difference, claim.kind, claim.margin),
            f"python -m benchmarks.claims {'$VOC $COCO' if 'COCO' in name else '$VOC'} --only {claim.number}",
        )
        arms = zip((claim.first, claim.second), zip(*pairs, strict=True), strict=True)
        rows.append({**told, "by_seed": {arm: [round(float(each[0]), 2) for each in values] for arm, values in arms}})
    return rows, missing


def measured(claim: Claim, place: Place, options: argparse.Namespace) -> list[tuple[Reached, Reached]]:
    """Return what both arms of a claim reach with each seed; with more seeds where the first cannot tell."""
    pairs: list[tuple[Reached, Reached]] = []
    for seeds in (place.seeds, place.seeds + place.more_seeds):
        first, second = (models_of(arm, place, seeds, options) for arm in (claim.first, claim.second))
        pairs = [
            (reached(claim.measure, first[seed], place), reached(claim.measure, second[seed], place))
            for seed in seeds
            if seed in first and seed in second
        ]
        if not pairs or verdict(compare(*zip(*pairs, strict=True)), claim.kind, claim.margin) != UNTOLD:
            break
    return pairs


def models_of(arm: str, place: Place, seeds: list[int], options: argparse.Namespace) -> dict[int, Path]:
    """Return the models of an arm by their seeds, trained now unless only what is there is wanted."""
    chosen = arm_named(arm, len(place.sets.train.labels))
    if not options.collect:
        return dict(zip(seeds, train(chosen, place.settings, place.sets, place.folder, seeds), strict=True))
    there = {seed: place.folder / f"{chosen.name}-{seed}" / "model" for seed in seeds}
    return {seed: model for seed, model in there.items() if (model / "config.json").is_file()}


@cache
def reached(measure: str, model: Path, place: Place) -> Reached:
    """Return what a model reaches, and in each draw of images: once, since several claims share an arm."""
    return STATISTICS[measure](scored_images(scores(model, place.sets), place.sets.val))


def look_at_experts(places: dict[str, Place], options: argparse.Namespace) -> list[dict[str, Any]]:
    """Return the row on dead experts, if the arm is there."""
    place = places["VOC"]
    models = models_of("sharing", place, place.seeds, options)
    some = place.sets.val.subset(range(min(200, len(place.sets.val))))
    return elsewhere.experts(list(models.values()), some) if models else []


def parse() -> argparse.Namespace:
    """Read the flags."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--voc", required=True, help="the folder VOC2012")
    parser.add_argument("--coco", help="data spec of COCO images to train on")
    parser.add_argument("--coco-val", help="data spec of COCO images to judge by")
    parser.add_argument("--small-coco", help="the same of fewer images, for what takes longer")
    parser.add_argument("--small-coco-val")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--more-seeds", type=int, nargs="*", default=[3, 4], help="where the first cannot tell")
    parser.add_argument("--only", type=int, nargs="+", help="numbers of claims")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--collect", action="store_true", help="train nothing")
    parser.add_argument("--runs", type=Path, default=Path("runs/claims"))
    return parser.parse_args()


if __name__ == "__main__":
    main()
