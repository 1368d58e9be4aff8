"""Test the four papers' claims: python -m benchmarks.claims --voc VOCdevkit/VOC2012 --coco SPEC --coco-val SPEC.

Trains what is missing under --runs, in pieces that go on where they were killed, and writes results.json here and
docs/claims.md. `--quick` takes 1,500 pictures of VOC, three epochs and one seed: a rehearsal (not timed yet), whose
numbers go to --runs and not into the docs. `--only` names claims, `--collect` trains nothing: it takes what is there.
"""

import argparse
import json
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from benchmarks.claims import elsewhere
from benchmarks.claims.arms import arm_named, scores, train
from benchmarks.claims.judging import STATISTICS, Difference, compare, scored_pictures, verdict
from benchmarks.claims.page import page
from benchmarks.claims.statements import CLAIMS, Claim

from manylabel.data import PictureDataset
from manylabel.recipes import LinearProbe, TrainAndVal, open_sets
from manylabel.storage import write_text

HERE = Path(__file__).parent
QUICK = {"epochs": 3, "views": 1}


@dataclass(frozen=True)
class Place:
    """Data to test claims on: how settings name it, its pictures, and the seeds."""

    settings: dict[str, Any]
    sets: TrainAndVal
    folder: Path
    seeds: list[int]


def main() -> None:
    """Train what is missing, judge, write the page."""
    options = parse()
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
    pictures = ", ".join(
        f"{name} {len(place.sets.train):,} + {len(place.sets.val):,}" for name, place in places.items()
    )
    results = {"about": f"Pictures to train on + to judge by: {pictures}.", "rows": rows, "missing": missing}
    rehearsal = options.quick or options.only
    out = options.runs if rehearsal else HERE
    write_text(out / "results.json", json.dumps(results, indent=2) + "\n", overwrite=True)
    write_text(
        options.runs / "claims.md" if rehearsal else HERE.parents[1] / "docs" / "claims.md",
        page(results),
        overwrite=True,
    )
    print(page(results))


def open_places(options: argparse.Namespace) -> dict[str, Place]:
    """Open the data that were named."""
    limit = 1500 if options.quick else None
    given = {"VOC": (f"voc:{options.voc}", None, options.seeds), "COCO": (options.coco, options.coco_val, [0])}
    places = {}
    for name, (data, val, seeds) in given.items():
        if data is not None and not (options.quick and name == "COCO"):
            settings = {"data": data, "val": val, "limit": limit, **(QUICK if options.quick else {})}
            sets = open_sets(LinearProbe(data=data, val=val, limit=limit))
            places[name] = Place(settings, sets, options.runs / name.lower(), [0] if options.quick else seeds)
    voc = places["VOC"]
    alone = TrainAndVal(*(with_one_label(dataset) for dataset in (voc.sets.train, voc.sets.val)))
    places["VOC, one label"] = replace(
        voc, sets=alone, folder=options.runs / "one_label", settings={**voc.settings, "single_label": True}
    )
    return places


def with_one_label(dataset: PictureDataset) -> PictureDataset:
    """Return the pictures with exactly one label that is there, and none that is unknown."""
    values, known = dataset.targets.dense()
    return dataset.subset(((values.sum(axis=1) == 1) & known.all(axis=1)).nonzero()[0])


def judge(
    claim: Claim, places: dict[str, Place], options: argparse.Namespace
) -> tuple[list[dict[str, Any]], list[str]]:
    """Return a row for each data set on which a claim was tested, and what is missing."""
    rows, missing = [], []
    for name in claim.data:
        models = (
            [models_of(arm, places[name], options) for arm in (claim.first, claim.second)] if name in places else []
        )
        if not models or not all(models):
            missing.append(f"Claim {claim.number} on {name}: {claim.text}.")
            continue
        if "small" in claim.measure and places[name].sets.val.areas is None:
            missing.append(f"Claim {claim.number} on {name}, whose file here gives no sizes of objects: {claim.text}.")
            continue
        pairs = list(zip(*models, strict=False))
        difference = difference_of(claim, pairs, places[name].sets)
        rows.append(
            elsewhere.row(
                claim.number,
                claim.text,
                claim.paper,
                f"{name}: {difference} {claim.measure}, {len(pairs)} seed{'s' if len(pairs) > 1 else ''}",
                verdict(difference, claim.kind, claim.margin),
                f"python -m benchmarks.claims {'$VOC $COCO' if name == 'COCO' else '$VOC'} --only {claim.number}",
            )
        )
    return rows, missing


def models_of(arm: str, place: Place, options: argparse.Namespace) -> list[Path]:
    """Return the models of an arm, trained now unless only what is there is wanted."""
    chosen = arm_named(arm, len(place.sets.train.labels))
    if not options.collect:
        return train(chosen, place.settings, place.sets, place.folder, place.seeds)
    there = [place.folder / f"{chosen.name}-{seed}" / "model" for seed in place.seeds]
    return [model for model in there if (model / "config.json").is_file()]


def difference_of(claim: Claim, pairs: Iterable[tuple[Path, ...]], sets: TrainAndVal) -> Difference:
    """Return how far the first arm is ahead of the second, which had the same seeds."""
    statistic = STATISTICS[claim.measure]
    first, second = zip(
        *([statistic(scored_pictures(scores(model, sets), sets.val)) for model in pair] for pair in pairs), strict=True
    )
    return compare(first, second)


def look_at_experts(places: dict[str, Place], options: argparse.Namespace) -> list[dict[str, Any]]:
    """Return the row on dead experts, if the arm is there."""
    models = models_of("sharing", places["VOC"], options)
    some = places["VOC"].sets.val.subset(range(min(200, len(places["VOC"].sets.val))))
    return elsewhere.experts(models, some) if models else []


def parse() -> argparse.Namespace:
    """Read the flags."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--voc", required=True, help="the folder VOC2012")
    parser.add_argument("--coco", help="data spec of COCO pictures to train on")
    parser.add_argument("--coco-val", help="data spec of COCO pictures to judge by")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--only", type=int, nargs="+", help="numbers of claims")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--collect", action="store_true", help="train nothing")
    parser.add_argument("--runs", type=Path, default=Path("runs/claims"))
    return parser.parse_args()


if __name__ == "__main__":
    main()
