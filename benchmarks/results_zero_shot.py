"""Zero-shot results: ML-Decoder with text queries, full and in groups, its augmentations, baselines and chance.

    python benchmarks/results_zero_shot.py --data voc:VOCdevkit/VOC2012,split=train --unseen random:5 --splits 1 2 3 4
    python benchmarks/results_zero_shot.py --data coco:coco,split=train2014 --unseen coco_65_15 --limit 10000
    python benchmarks/results_zero_shot.py --data scenes:3000,labels=compositions --unseen random:0.2

Each (variant, split, seed) is a run of the recipe zero_shot in its own folder under --runs; what is finished is not run
again, so the script can be stopped and started at any time. "typed" is no zero-shot training: the recipe probe learns
the seen labels, and the others are typed, that is, matched to the classes of the pretrained backbone; "averaged" are
the mean logits of its unseen labels and those of the linear map with pseudo-labels, whose runs must be finished. Other
data or settings need other --runs. It writes all numbers as JSON and prints tables in Markdown: ZSL and GZSL as in
Table 6 of the ML-Decoder paper, augmentations as in Table 3, full against groups as in Table 4. A cell is the mean over
splits and seeds; with more than one of them, plus or minus their standard deviation, else with the 95 % interval of the
bootstrap over images.
"""

from __future__ import annotations

import argparse
import json
import statistics
from pathlib import Path
from typing import Any

import numpy as np

from manylabel.classifier import Classifier
from manylabel.evaluation import ScoredImages
from manylabel.evaluation.zero_shot import ZeroShotEvaluation, evaluate_zero_shot
from manylabel.recipes import Probe, ZeroShot, probe, zero_shot
from manylabel.recipes.loaders import cache_sets
from manylabel.recipes.reporter import Reporter
from manylabel.recipes.setup import TrainAndVal, open_sets
from manylabel.recipes.unseen import choose_unseen, logits_of
from manylabel.recipes.zero_shot import seen_sets
from manylabel.storage import write_text

OFF = {"random_queries": 0, "query_noise": 0.0}
ON = {"random_queries": 10, "query_noise": 0.1}
VARIANTS: dict[str, tuple[str, dict[str, Any]]] = {
    "full": ("ML-Decoder, full", ON),
    "own": ("ML-Decoder, full, output weights from text", ON),
    "group": ("ML-Decoder, groups", ON),
    "none": ("ML-Decoder, full, no augmentation", OFF),
    "own-none": ("ML-Decoder, full, output weights from text, no augmentation", OFF),
    "group-none": ("ML-Decoder, groups, no augmentation", OFF),
    "noise": ("ML-Decoder, full, noise only", {**ON, "random_queries": 0}),
    "random": ("ML-Decoder, full, random queries only", {**ON, "query_noise": 0.0}),
    "full-pseudo": ("ML-Decoder, full, pseudo-labels", {**OFF, "pseudo_labels": 256}),
    "own-pseudo": ("ML-Decoder, full, output weights from text, pseudo-labels", {**OFF, "pseudo_labels": 256}),
    "group-pseudo": ("ML-Decoder, groups, pseudo-labels", {**OFF, "pseudo_labels": 256}),
    "full-pseudo-on": ("ML-Decoder, full, pseudo-labels, augmentation", {**ON, "pseudo_labels": 256}),
    "text_map-pseudo": ("linear map to text, pseudo-labels", {"head": "text_map", "pseudo_labels": 256}),
    "text_map": ("linear map to text", {"head": "text_map"}),
    "typed": ("ML-Decoder of the seen labels, others matched to ImageNet classes", {}),
    "averaged": ("... averaged with the linear map with pseudo-labels", {}),
    "conse": ("ConSE", {"head": "conse"}),
}
METRICS = ("mAP", "F1@3", "F1@5")
TASKS = {"zsl": "ZSL", "gzsl": "GZSL", "gzsl_calibrated": "GZSL, calibrated", "seen_only": "seen alone"}


def main() -> None:
    """Run what is missing and print the tables."""
    arguments = _arguments()
    first = ZeroShot(data=arguments.data, val=arguments.val, limit=arguments.limit)
    sets = open_sets(first)  # read once for all runs
    for split in arguments.splits:
        for seed in arguments.seeds:
            for variant in arguments.variants:
                _run(arguments, variant, split, seed, sets)
    results = _collect(arguments)
    write_text(arguments.out, json.dumps(results, indent=2) + "\n", overwrite=True)
    print(_tables(results))


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", required=True, help="data spec of the training images")
    parser.add_argument("--val", help="data spec of the validation images (default: part of the data)")
    parser.add_argument("--unseen", default="random:5", help="as the setting 'unseen' of the recipe zero_shot")
    parser.add_argument("--splits", type=int, nargs="+", default=[0], help="seeds of splits of the labels")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0])
    parser.add_argument("--variants", nargs="+", choices=VARIANTS, default=list(VARIANTS))
    parser.add_argument("--epochs", type=int, help="6 when left out, or as many as make 100 steps")
    parser.add_argument("--limit", type=int, help="at most so many images of each part")
    parser.add_argument("--group-size", type=int, default=4, help="labels per group of the variant 'group'")
    parser.add_argument("--width", type=int, default=256)
    parser.add_argument("--feedforward", type=int, default=512)
    parser.add_argument("--backbone", default="offline:efficientnet_lite0")
    parser.add_argument("--image-size", type=int)
    parser.add_argument("--precision", default="auto")
    parser.add_argument("--encoder", default="offline:minilm")
    parser.add_argument("--runs", type=Path, default=Path("runs/results_zero_shot"))
    parser.add_argument("--out", type=Path, help="results.json in --runs when left out")
    arguments = parser.parse_args()
    arguments.out = arguments.out or arguments.runs / "results.json"
    return arguments


def _run(arguments: argparse.Namespace, variant: str, split: int, seed: int, sets: TrainAndVal) -> None:
    """Run one variant, or go on with it; nothing happens where it is finished."""
    out = _folder(arguments, variant, split, seed)
    changes = dict(VARIANTS[variant][1])
    if changes.get("head", "ml_decoder") == "ml_decoder":
        changes["head_settings"] = {"width": arguments.width, "feedforward": arguments.feedforward}
    settings = ZeroShot(
        data=arguments.data,
        val=arguments.val,
        limit=arguments.limit,
        unseen=arguments.unseen,
        split_seed=split,
        seed=seed,
        epochs=arguments.epochs,
        backbone=arguments.backbone,
        image_size=arguments.image_size,
        precision=arguments.precision,
        encoder=arguments.encoder,
        logger="none",
        out=out,
        **changes,
    )
    if variant.startswith(("own", "group")):
        seen = len(seen_sets(settings, sets).train.labels)
        settings = _with_groups(settings, -(-seen // (arguments.group_size if variant.startswith("group") else 1)))
    print(f"{out}: {'finished' if (out / 'zero_shot.json').is_file() else 'running'}", flush=True)
    if variant not in ("typed", "averaged"):
        zero_shot(settings, sets=sets, resume=True)
    elif not (out / "zero_shot.json").is_file():
        mapped = _folder(arguments, "text_map-pseudo", split, seed) if variant == "averaged" else None
        result = _typed(settings, sets, _folder(arguments, "typed", split, seed) / "probe", mapped)
        write_text(out / "zero_shot.json", json.dumps(result.to_dict(), indent=2) + "\n", overwrite=True)


def _typed(settings: ZeroShot, sets: TrainAndVal, out: Path, mapped: Path | None) -> ZeroShotEvaluation:
    """Train on the seen labels alone, and evaluate all labels as typed; unseen ones averaged with those of a run."""
    common = {name: getattr(settings, name) for name in ("data", "val", "limit", "backbone", "image_size", "precision")}
    train = seen_sets(settings, sets).train
    known = TrainAndVal(train, sets.val.select_labels(train.labels))
    chosen = Probe(**common, seed=settings.seed, views=1, tune=False, logger="none", out=out)
    model = Classifier.from_pretrained(probe(chosen, sets=known, resume=True).model)
    cached = cache_sets(probe.setup(chosen, sets=known), Reporter()).val
    labels = sets.val.labels
    unseen = choose_unseen(settings.unseen, labels, data=settings.data, seed=settings.split_seed)
    logits = logits_of(model.with_labels(labels), cached).clone()  # leaves inference mode
    columns = [labels.index(name) for name in unseen]
    if mapped is not None:
        other = logits_of(Classifier.from_pretrained(mapped / "model").with_labels(labels), cached)
        logits[:, columns] = (logits[:, columns] + other[:, columns]) / 2
    rest = [column for column in range(len(labels)) if column not in columns]
    present = train.targets.positives.mean() / len(train)  # of unseen labels, too, as `choose_bias` assumes
    seen_level, level = (np.quantile(logits[:, part].numpy(), 1 - present, axis=0).mean() for part in (rest, columns))
    values, is_known = sets.val.targets.dense()
    scored = ScoredImages.from_arrays(logits.sigmoid(), values, labels=labels, known=is_known)
    return evaluate_zero_shot(scored, unseen=unseen, bias=float(seen_level - level))


def _with_groups(settings: ZeroShot, num_groups: int) -> ZeroShot:
    values = {**vars(settings), "head_settings": {**settings.head_settings, "num_groups": num_groups}}
    return ZeroShot(**values)


def _folder(arguments: argparse.Namespace, variant: str, split: int, seed: int) -> Path:
    found: Path = arguments.runs / f"{variant}-split{split}-seed{seed}"
    return found


def _collect(arguments: argparse.Namespace) -> dict[str, Any]:
    """Read what all finished runs found."""
    runs = [
        {"variant": variant, "split": split, "seed": seed, **json.loads(file.read_text(encoding="utf-8"))}
        for split in arguments.splits
        for seed in arguments.seeds
        for variant in arguments.variants
        if (file := _folder(arguments, variant, split, seed) / "zero_shot.json").is_file()
    ]
    settings = {name: str(value) if isinstance(value, Path) else value for name, value in vars(arguments).items()}
    return {"settings": settings, "runs": runs}


def _tables(results: dict[str, Any]) -> str:
    runs = results["runs"]
    there = [name for name in VARIANTS if any(run["variant"] == name for run in runs)]
    main_rows = [name for name in VARIANTS if name in there and name not in ("none", "noise", "random")]
    lines = ["", "| method | task | mAP | F1@3 | F1@5 |", "|---|---|---|---|---|"]
    for name in main_rows:
        for task, title in TASKS.items():
            cells = [_cell([run for run in runs if run["variant"] == name], task, metric) for metric in METRICS]
            lines.append(f"| {VARIANTS[name][0]} | {title} | {' | '.join(cells)} |")
    chance = [100 * statistics.mean(run["chance"][metric] for run in runs) for metric in METRICS]
    lines.append(f"| chance | ZSL | {' | '.join(f'{value:.1f}' for value in chance)} |")
    lines += ["", "| augmentation | ZSL mAP | seen mAP |", "|---|---|---|"]
    augmentations = [("none", "none"), ("noise", "noise"), ("random", "random queries"), ("full", "both")]
    augmentations += [("full-pseudo", "none, pseudo-labels"), ("full-pseudo-on", "both, pseudo-labels")]
    for name, title in augmentations:
        if name in there:
            chosen = [run for run in runs if run["variant"] == name]
            lines.append(f"| {title} | {_cell(chosen, 'zsl', 'mAP')} | {_cell(chosen, 'seen_only', 'mAP')} |")
    return "\n".join(lines)


def _cell(runs: list[dict[str, Any]], task: str, metric: str) -> str:
    values = [100 * run[task][metric]["value"] for run in runs]
    if len(values) > 1:
        return f"{statistics.mean(values):.1f} ± {statistics.stdev(values):.1f}"
    found = runs[0][task][metric]
    interval = "" if found["low"] is None else f" ({100 * found['low']:.1f} to {100 * found['high']:.1f})"
    return f"{values[0]:.1f}{interval}"


if __name__ == "__main__":
    main()
