"""Table 3 of the CPSD paper: python benchmarks/self_distillation_results.py --data SPEC --val SPEC.

Trains each variant for each seed on the same cached features of a frozen backbone, or with --train-from on maps of its
bottom, so that its top is trained, too, with the settings of `finetune`. All models of a run - base, teachers,
students - train for the same number of epochs with the same settings, as in the authors' code; "longer" is base with
twice the epochs, "ensemble" a student of two teachers of all labels, and "average" the mean score of these two
teachers, without a student. CPSD uses the teachers of CGPD and DGPD. Base and all students of one seed start from the
same weights and use the same order of images. Finished runs are reused, interrupted ones resumed; results.json in --out
is updated after every run. Other data or settings need another --out.

mAP is that of the last epoch's averaged weights on all images of --val; earlier epochs are evaluated on --watch images.
Differences are to base, per seed; 95 % intervals: Student's t over seeds (variation between trainings), and a paired
bootstrap over images of the mean over seeds (variation between test sets).
"""

import argparse
import json
import shutil
from pathlib import Path
from statistics import mean, stdev
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from rich.console import Console
from scipy import stats

from manylabel.classifier import Classifier
from manylabel.data import ImageDataset
from manylabel.evaluation import ScoredImages, bootstrap, compute_metrics
from manylabel.features import FeatureCache, FeatureLoader
from manylabel.recipes import (
    Finetune,
    Probe,
    SelfDistillation,
    TrainAndVal,
    finetune,
    open_sets,
    probe,
    self_distillation,
)
from manylabel.recipes.finetune import TopAndHead
from manylabel.recipes.reporter import Reporter
from manylabel.storage import write_text
from manylabel.training import RunFolder

PAPERS_HEAD = '{"width": 128, "feedforward": 256, "add_csra": false}'
VARIANTS = {
    "base": None,
    "longer": None,
    "SD": "whole",
    "ensemble": "ensemble",
    "average": "ensemble",
    "CGPD": "co",
    "DGPD": "dis",
    "CPSD": "both",
    "random": "random",
}


def settings_for(options: argparse.Namespace, variant: str, seed: int) -> Probe | Finetune | SelfDistillation:
    """Return the settings of one run."""
    common: dict[str, Any] = {
        "data": options.data,
        "val": options.val,
        "limit": options.limit,
        "backbone": options.backbone,
        "head": options.head,
        "head_settings": json.loads(options.head_settings),
        "loss": SelfDistillation.loss,
        "epochs": options.epochs * (2 if variant == "longer" else 1),
        "batch_size": options.batch_size,
        "precision": options.precision,
        "seed": seed,
        "tune": False,
        "logger": "none",
        "out": options.out / f"{variant}-{seed}",
    }
    partition, recipe = VARIANTS[variant], Probe if options.train_from is None else Finetune
    if recipe is Finetune:
        common |= {name: getattr(Finetune, name) for name in ("learning_rate", "weight_decay", "ema_decay")}
        common |= {"train_from": options.train_from, "backbone_scale": options.backbone_scale}
    else:
        common |= {"views": options.views}
    if partition is None:
        return recipe(**common)
    student = {"epochs": options.student_epochs or options.epochs, "teacher_epochs": options.epochs}
    student |= {"training": recipe.__name__.lower()}
    return SelfDistillation(
        **{**common, **student}, partition=partition, k=options.k, executor="sequential", baseline=False
    )


def train(options: argparse.Namespace, sets: TrainAndVal, variant: str, seed: int) -> RunFolder:
    """Train a variant, with the teachers of earlier variants where they fit."""
    settings = settings_for(options, variant, seed)
    if not isinstance(settings, SelfDistillation):
        recipe = probe if isinstance(settings, Probe) else finetune
        return recipe(settings, sets=sets, resume=True, reporter=Reporter())
    run = RunFolder(settings.out)
    if variant == "CPSD" and not run.is_finished:
        for side in ("CGPD", "DGPD"):
            for teacher in (options.out / f"{side}-{seed}" / "teachers").glob("*"):
                shutil.copytree(teacher, run.path / "teachers" / teacher.name, dirs_exist_ok=True)
    return self_distillation(settings, sets=sets, resume=True, reporter=Reporter())


def scored(out: Path, models: list[Path], val: ImageDataset, *, cut: str | None) -> ScoredImages:
    """Return the mean scores of models on the validation images, from cached features; saved next to the runs."""
    saved = out.with_suffix(".npy")
    if not saved.is_file():
        np.save(
            saved, np.mean([scores_of(Classifier.from_pretrained(model), val, cut=cut) for model in models], axis=0)
        )
    values, known = val.targets.dense()
    return ScoredImages.from_arrays(np.load(saved), values, known=known, labels=val.labels)


@torch.inference_mode()
def scores_of(model: Classifier, val: ImageDataset, *, cut: str | None) -> NDArray[np.float32]:
    """Return the scores of a model on the validation images, ``[N, L]``."""
    frozen, part = model.backbone, model.head
    if cut is not None:
        frozen, top = model.backbone.split(cut, size=model.input_spec.size)
        part = TopAndHead(top, model.head)
    cache = FeatureCache(frozen, input_spec=model.input_spec)
    cached = cache.fill(cache.plan(val, pooling="none"))
    logits = [part.eval()(batch.features) for batch in FeatureLoader(cached, batch_size=256, view=0)]
    found: NDArray[np.float32] = torch.cat(logits).sigmoid().numpy()
    return found


def teachers_of(run: RunFolder) -> dict[str, float]:
    """Return the joint mAP of the teachers of each side."""
    summary = run.path / "summary.json"
    return json.loads(summary.read_text(encoding="utf-8"))["sides"] if summary.is_file() else {}


def interval(differences: list[float]) -> list[float] | None:
    """Return a t interval of 95 % of the mean."""
    if len(differences) < 2:
        return None
    half = float(stats.t.ppf(0.975, len(differences) - 1)) * stdev(differences) / len(differences) ** 0.5
    return [mean(differences) - half, mean(differences) + half]


def main() -> None:
    """Train what is missing, print the table and write it as JSON."""
    options = parse()
    console = Console(stderr=True)
    whole = open_sets(SelfDistillation(data=options.data, val=options.val, limit=options.limit))
    sets = TrainAndVal(whole.train, whole.val.subset(range(min(options.watch, len(whole.val)))))
    found: dict[str, dict[int, NDArray[np.float64]]] = {variant: {} for variant in options.variants}
    teachers: dict[str, list[dict[str, float]]] = {variant: [] for variant in options.variants}
    for seed in options.seeds:
        for variant in options.variants:
            run = train(options, sets, "ensemble" if variant == "average" else variant, seed)
            both = [teacher / "model" for teacher in (run.path / "teachers").glob("*")]  # of all labels
            models = both if variant == "average" else [run.model]
            scores = scored(options.out / f"{variant}-{seed}", models, whole.val, cut=options.train_from)
            draws = bootstrap(scores, ["mAP"], draws=options.draws).metrics["mAP"]
            draws[0] = compute_metrics(scores)["mAP"]
            found[variant][seed] = 100 * draws
            teachers[variant].append(teachers_of(run))
            console.print(f"{variant}, seed {seed}: {100 * draws[0]:.2f} mAP", highlight=False)
            rows = summarise(found, teachers)
            recorded = {name: str(value) if isinstance(value, Path) else value for name, value in vars(options).items()}
            text = json.dumps({"options": recorded, "images": len(sets.train), "rows": rows}, indent=2)
            write_text(options.out / "results.json", text + "\n", overwrite=True)
    print(table(rows, options))


def summarise(
    found: dict[str, dict[int, NDArray[np.float64]]], teachers: dict[str, list[dict[str, float]]]
) -> list[dict[str, Any]]:
    """Return a row for each variant from its mAP and bootstrap draws, by seed."""
    rows = []
    for name, by_seed in found.items():
        values = [float(draws[0]) for draws in by_seed.values()]
        row: dict[str, Any] = {"variant": name, "seeds": [*by_seed], "mAP": values, "teachers": teachers[name]}
        both = [seed for seed in by_seed if seed in found.get("base", {})]
        if name != "base" and both:
            differences = np.stack([by_seed[seed] - found["base"][seed] for seed in both])  # [seeds, 1 + draws]
            row |= {"difference": float(differences[:, 0].mean()), "over_seeds": interval(differences[:, 0].tolist())}
            row["over_images"] = np.quantile(differences[:, 1:].mean(axis=0), [0.025, 0.975]).tolist()
        rows.append(row)
    return [row for row in rows if row["mAP"]]


def table(rows: list[dict[str, Any]], options: argparse.Namespace) -> str:
    """Return the rows as a table in Markdown."""

    def words(limits: list[float] | None) -> str:
        return "" if limits is None else f"{limits[0]:+.2f} to {limits[1]:+.2f}"

    lines = [
        f"| {options.head} | teachers, by side | mAP | vs. base | over seeds | over images |",
        "|---|---|---|---|---|---|",
    ]
    for row in rows:
        sides = {side for each in row["teachers"] for side in each}
        means = (f"{side} {100 * mean(each[side] for each in row['teachers']):.1f}" for side in sorted(sides))
        spread = f" ± {stdev(row['mAP']):.2f}" if len(row["mAP"]) > 1 else ""
        difference = f"{row['difference']:+.2f}" if "difference" in row else ""
        limits = [words(row.get("over_seeds")), words(row.get("over_images"))]
        cells = [row["variant"], ", ".join(means), f"{mean(row['mAP']):.2f}{spread}", difference, *limits]
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
    parser.add_argument("--head", default="ml_decoder")
    parser.add_argument("--head-settings", default=PAPERS_HEAD, help="as JSON")
    parser.add_argument("--variants", nargs="+", choices=list(VARIANTS), default=list(VARIANTS))
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--epochs", type=int, default=6)
    parser.add_argument("--student-epochs", type=int, help="default: --epochs, that of base and teachers")
    parser.add_argument("--k", type=int, default=5)
    parser.add_argument("--views", type=int, default=1)
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--train-from", help="cut above which the backbone is trained (default: heads only)")
    parser.add_argument("--backbone-scale", type=float, default=Finetune.backbone_scale, help="with --train-from")
    parser.add_argument("--precision", choices=["float32", "bfloat16"], default="bfloat16")
    parser.add_argument("--watch", type=int, default=200, help="validation images to evaluate after each epoch")
    parser.add_argument("--draws", type=int, default=1000)
    return parser.parse_args()


if __name__ == "__main__":
    main()
