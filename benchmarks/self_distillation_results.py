"""Table 3 of the CPSD paper on frozen features: python benchmarks/self_distillation_results.py --data SPEC --val SPEC.

Trains base, SD, CGPD, DGPD, CPSD and a random partition for each seed, on the same cached features. Finished runs are
reused, interrupted ones resumed. Other data or settings need another --out.

Equal for all variants (`--same`):
- total: the number of training images, counted over all models of a variant. With a budget of E epochs, base trains E
  epochs; a variant whose teachers use T epochs' worth of images trains its student for E - T epochs, rounded.
- student: the epochs of the student, as in the paper: base and every student train E epochs, the teachers additionally.

Base and all students of one seed start from the same weights and use the same order of images. mAP is that of the last
epoch's averaged weights on all images of --val; with `--watch N`, earlier epochs are evaluated on N of them only, which
saves time. Differences are to base, per seed; 95 % intervals: Student's t over seeds (variation between trainings), and
a paired bootstrap over images of the mean over seeds (variation between test sets).
"""

import argparse
import json
from dataclasses import replace
from pathlib import Path
from statistics import mean, stdev
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from rich.console import Console
from scipy import stats

from manylabel.classifier import Classifier
from manylabel.evaluation import ScoredImages, bootstrap, compute_metrics
from manylabel.features import CachedFeatures, FeatureLoader
from manylabel.heads import HEADS
from manylabel.heads.traits import probe_defaults
from manylabel.recipes import Probe, SelfDistillation, TrainAndVal, open_sets, probe, self_distillation
from manylabel.recipes.loaders import cache_sets
from manylabel.recipes.models import build_classifier
from manylabel.storage import write_text
from manylabel.training import RunFolder

VARIANTS = {"base": None, "SD": "whole", "CGPD": "co", "DGPD": "dis", "CPSD": "both", "random": "random"}


def settings_for(options: argparse.Namespace, sets: TrainAndVal, variant: str, seed: int) -> Probe | SelfDistillation:
    """Return the settings of one run."""
    common: dict[str, Any] = {
        "data": options.data,
        "val": options.val,
        "limit": options.limit,
        "backbone": options.backbone,
        "head": options.head,
        "head_settings": {**probe_defaults(HEADS[options.head]).settings, **json.loads(options.head_settings)},
        "epochs": options.budget,
        "batch_size": options.batch_size,
        "learning_rate": options.learning_rate,
        "weight_decay": options.weight_decay,
        "seed": seed,
        "device": options.device,
        "logger": "none",
        "out": options.out / f"{variant}-{seed}",
    }
    partition = VARIANTS[variant]
    if partition is None:
        return Probe(**common, views=1, feature_dropout=0.0)  # as the teachers and students train
    settings = SelfDistillation(
        **common,
        partition=partition,
        k=options.k,
        tau=options.tau,
        teacher_epochs=options.teacher_epochs,
        teacher_images=options.teacher_images,
        distillation_weight=options.distillation_weight,
        executor=options.executor,
        processes=options.processes,
        baseline=False,
    )
    if options.same == "student":
        return settings
    total = self_distillation.setup(settings, sets=sets).total_epochs or 0.0  # that of teachers and student
    left = round(2 * options.budget - total)
    if left < 1:
        raise SystemExit(
            f"{variant}: teachers take {total - options.budget:.1f} of {options.budget} epochs; raise --budget"
        )
    return replace(settings, epochs=left)


def scores_of(run: RunFolder, cached: CachedFeatures) -> NDArray[np.float32]:
    """Return the scores of a run's model on the validation images, ``[N, L]``."""
    saved = run.path.with_suffix(".npy")
    if not saved.is_file():
        head = Classifier.load(run.model).head
        with torch.inference_mode():
            batches = [head(batch.features).sigmoid() for batch in FeatureLoader(cached, batch_size=256, view=0)]
        np.save(saved, torch.cat(batches).numpy())
    return np.load(saved)


def interval(differences: list[float]) -> list[float] | None:
    """Return a t interval of 95 % of the mean."""
    if len(differences) < 2:
        return None
    half = float(stats.t.ppf(0.975, len(differences) - 1)) * stdev(differences) / len(differences) ** 0.5
    return [mean(differences) - half, mean(differences) + half]


def scored(run: RunFolder, cached: CachedFeatures) -> ScoredImages:
    """Combine the scores of a run's model with the targets."""
    values, known = cached.dataset.targets.dense()
    return ScoredImages.from_arrays(scores_of(run, cached), values, known=known, labels=cached.dataset.labels)


def drawn_means(runs: list[RunFolder], cached: CachedFeatures, draws: int) -> NDArray[np.float64]:
    """Return the mean mAP over seeds in each draw of images, the same draws for every variant."""
    return np.mean([bootstrap(scored(run, cached), ["mAP"], draws=draws).metrics["mAP"][1:] for run in runs], axis=0)


def main() -> None:
    """Train what is missing, print the table and write it as JSON."""
    options = parse()
    console = Console(stderr=True)
    whole = open_sets(SelfDistillation(data=options.data, val=options.val, limit=options.limit))
    sets = whole if options.watch is None else TrainAndVal(whole.train, whole.val.subset(range(options.watch)))
    runs: dict[str, list[RunFolder]] = {variant: [] for variant in options.variants}
    epochs: dict[str, list[int]] = {variant: [] for variant in options.variants}
    for seed in options.seeds:
        for variant in options.variants:
            settings = settings_for(options, sets, variant, seed)
            console.print(f"{variant}, seed {seed}: {settings.epochs} epochs", highlight=False)
            train = probe if variant == "base" else self_distillation
            runs[variant].append(train(settings, sets=sets, resume=True))
            epochs[variant].append(settings.epochs)
    base = settings_for(options, sets, "base", 0)
    cached = cache_sets(build_classifier(base, whole.train, frozen=True), whole, base).val
    rows = summarise(options, runs, epochs, cached)
    print(table(rows, options))
    recorded = {name: str(value) if isinstance(value, Path) else value for name, value in vars(options).items()}
    text = json.dumps({"options": recorded, "images": len(sets.train), "rows": rows}, indent=2)
    write_text(options.out / "results.json", text + "\n", overwrite=True)


def summarise(
    options: argparse.Namespace,
    runs: dict[str, list[RunFolder]],
    epochs: dict[str, list[int]],
    cached: CachedFeatures,
) -> list[dict[str, Any]]:
    """Return a row for each variant."""
    reached = {
        name: [100 * compute_metrics(scored(run, cached))["mAP"] for run in listed] for name, listed in runs.items()
    }
    drawn = {name: 100 * drawn_means(listed, cached, options.draws) for name, listed in runs.items()}
    rows = []
    for name in options.variants:
        row: dict[str, Any] = {
            "variant": name,
            "epochs": epochs[name],
            "mAP": reached[name],
            "mean": mean(reached[name]),
        }
        if name != "base" and "base" in runs:
            differences = [one - other for one, other in zip(reached[name], reached["base"], strict=True)]
            row |= {"difference": mean(differences), "over_seeds": interval(differences)}
            row["over_images"] = np.quantile(drawn[name] - drawn["base"], [0.025, 0.975]).tolist()
        rows.append(row)
    return rows


def table(rows: list[dict[str, Any]], options: argparse.Namespace) -> str:
    """Return the rows as a table in Markdown."""

    def words(limits: list[float] | None) -> str:
        return "" if limits is None else f"{limits[0]:+.2f} to {limits[1]:+.2f}"

    lines = [f"| {options.head} | student epochs | mAP | vs. base | over seeds | over images |"]
    lines.append("|---|---|---|---|---|---|")
    for row in rows:
        spread = f" ± {stdev(row['mAP']):.2f}" if len(row["mAP"]) > 1 else ""
        difference = f"{row['difference']:+.2f}" if "difference" in row else ""
        limits = [words(row.get("over_seeds")), words(row.get("over_images"))]
        cells = [row["variant"], f"{mean(row['epochs']):.0f}", f"{row['mean']:.2f}{spread}", difference, *limits]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def parse() -> argparse.Namespace:
    """Read the flags."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", required=True)
    parser.add_argument("--val", default=None)
    parser.add_argument("--limit", type=int, default=None)
    parser.add_argument("--out", type=Path, default=Path("runs/self_distillation_results"))
    parser.add_argument("--backbone", default="offline:efficientnet_lite0")
    parser.add_argument("--head", default="linear")
    parser.add_argument("--head-settings", default="{}", help="as JSON")
    parser.add_argument("--variants", nargs="+", choices=list(VARIANTS), default=list(VARIANTS))
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2, 3, 4])
    parser.add_argument("--same", choices=["total", "student"], default="total")
    parser.add_argument("--budget", type=int, default=60, help="epochs")
    parser.add_argument("--teacher-epochs", type=int, default=10)
    parser.add_argument("--teacher-images", choices=["all", "own"], default="own")
    parser.add_argument("--distillation-weight", type=float, default=0.5)
    parser.add_argument("--k", type=int, default=5)
    parser.add_argument("--tau", type=float, default=2.0)
    parser.add_argument("--batch-size", type=int, default=256)
    parser.add_argument("--learning-rate", type=float, default=1e-3)
    parser.add_argument("--weight-decay", type=float, default=1e-2)
    parser.add_argument("--watch", type=int, default=None, help="held-out images to look at after each epoch")
    parser.add_argument("--draws", type=int, default=1000)
    parser.add_argument("--device", default="auto")
    # Processes take seconds to start, which short trainings on pooled features do not repay.
    parser.add_argument("--executor", choices=["sequential", "processes", "ray"], default="sequential")
    parser.add_argument("--processes", type=int, default=None)
    return parser.parse_args()


if __name__ == "__main__":
    main()
