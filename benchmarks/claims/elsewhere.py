"""Claims measured by other benchmarks: costs, zero-shot labels, self-distillation, experts."""

import json
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.claims.verdict import Difference, from_pairs, verdict
from benchmarks.paper_costs import hybrid_sharing_rows, ml_decoder_rows, representation_mixup_rows

from manylabel.classifier import Classifier
from manylabel.data import ImageDataset
from manylabel.explain import expert_load

RESULTS = Path(__file__).parents[1] / "results"
COCO = "coco:coco/annotations/instances_train2014.json,images=coco/train2014,val_fraction=0.5"
DEFAULTS = {
    "variants": ["base", "longer", "SD", "ensemble", "average", "CGPD", "DGPD", "CPSD", "random"],
    "head": "ml_decoder",
    "head_settings": '{"width": 128, "feedforward": 256, "add_csra": false}',
    "seeds": [0, 1, 2],
    "epochs": 6,
    "k": 5,
    "views": 1,
    "student_epochs": None,
    "train_from": None,
    "backbone_scale": None,
}
"""Defaults of self_distillation_results.py, omitted from commands."""


def row(number: int, text: str, paper: str, ours: str, conclusion: str, command: str) -> dict[str, Any]:
    """Return a row of the table."""
    return {"number": number, "text": text, "paper": paper, "ours": ours, "verdict": conclusion, "command": command}


def costs() -> list[dict[str, Any]]:
    """Recompute the papers' costs."""
    printed: dict[tuple[str, ...], list[bool]] = {}  # HSQ's numbers are counted in two ways
    for each in (*ml_decoder_rows(), *hybrid_sharing_rows(), *representation_mixup_rows()):
        name = each.row.partition(",")[0] if each.table == "Table A.2" else each.row
        printed.setdefault((each.table, name, each.quantity), []).append(each.agrees)
    agreeing = sum(map(any, printed.values()))
    open_images = {each.row: each for each in ml_decoder_rows() if each.table == "Table 2"}
    pooled = next(each for name, each in open_images.items() if name.startswith("GAP"))
    grouped = next(each for name, each in open_images.items() if "K=100" in name)
    extra = grouped.ours / pooled.ours - 1
    return [
        row(
            5,
            "With groups the cost hardly grows with the number of labels: 9,600 labels, 100 groups, against pooling",
            f"{grouped.paper / pooled.paper - 1:+.0%} MACs (Table 2)",
            f"{extra:+.0%} MACs",
            "holds" if extra < 0.2 else "does not hold",
            "python -m benchmarks.paper_costs",
        ),
        row(
            16,
            "The published MACs and parameters",
            f"{len(printed)} numbers",
            f"{agreeing} of {len(printed)} reproduced; the others have a note explaining why",
            "holds" if agreeing == len(printed) else "holds in part",
            "python -m benchmarks.paper_costs",
        ),
    ]


def experts(models: Sequence[Path], dataset: ImageDataset) -> list[dict[str, Any]]:
    """Count the dead experts of the sharing arm."""
    loads = [expert_load(Classifier.from_pretrained(model).eval(), dataset) for model in models]
    dead = [len(load.dead) for load in loads]
    least = min(float(load.average.min()) * len(load.average) for load in loads)
    return [
        row(
            12,
            "All experts are used",
            "none is dead (Figure 5)",
            f"dead: {', '.join(map(str, dead))} of {len(loads[0].average)}; "
            f"the least used has {least:.2f} of a uniform load",
            "does not hold" if any(dead) else "holds",
            "python -m benchmarks.claims $VOC --only 12",
        )
    ]


def zero_shot() -> list[dict[str, Any]]:
    """Read the results of results_zero_shot.py, paired by split and seed; with pseudo-labels, where they were used."""
    pairs = (
        (7, "Query augmentation helps unseen labels", "+1.2 (Table 3)", "full", "none"),
        (8, "Full decoding beats groups for unseen labels", "+2.4 (Table 4)", "full", "group"),
        (7, "Query augmentation helps unseen labels", "+1.2 (Table 3)", "full-pseudo-on", "full-pseudo"),
        (8, "Full decoding beats groups for unseen labels", "+2.4 (Table 4)", "full-pseudo", "group-pseudo"),
    )
    rows = []
    for file in sorted(RESULTS.glob("zero_shot_*.json")):
        results = json.loads(file.read_text(encoding="utf-8"))
        found: dict[str, dict[tuple[int, int], dict[str, float]]] = {}
        for run in results["runs"]:
            found.setdefault(run["variant"], {})[run["split"], run["seed"]] = run["zsl"]["mAP"]
        varied = "splits" if len(results["settings"]["splits"]) > 1 else "seeds"
        wanted = ("data", "val", "unseen", "splits", "seeds", "variants", "width", "feedforward", "precision")
        command = f"{command_of('results_zero_shot.py', results['settings'], *wanted)} --runs runs/{file.stem}"
        for number, text, paper, first, second in pairs:
            reached = [found.get(arm, {}) for arm in (first, second)]
            common = sorted(reached[0].keys() & reached[1].keys())
            if not common:
                continue
            if len(common) >= 3:
                values = ([100 * arm[run]["value"] for run in common] for arm in reached)
                difference, over = from_pairs(*values), f"{len(common)} {varied}"
            else:
                difference = bounded_difference(*(arm[common[0]] for arm in reached))
                over = "one split, over images"
            name = file.stem.removeprefix("zero_shot_").replace("_pseudo", ", pseudo-labels")
            ours = f"{name}: {difference} ZSL mAP, {over}"
            rows.append(row(number, text, paper, ours, verdict(difference, "better", 0), command))
    return rows


def bounded_difference(first: Mapping[str, float], second: Mapping[str, float]) -> Difference:
    """Return the difference of two values with intervals, bounded by their limits: wider than a paired interval."""
    value, low, high = (
        100 * (first[one] - second[other]) for one, other in (("value", "value"), ("low", "high"), ("high", "low"))
    )
    return Difference(value, low, high)


def self_distillation() -> list[dict[str, Any]]:
    """Read the results of self_distillation_results.py, paired by seed."""
    pairs = (
        ("Self-distillation beats training once", "+0.3 (Table 3, R101)", "SD", "base"),
        ("CPSD beats training once", "+1.5", "CPSD", "base"),
        ("CPSD beats plain self-distillation", "+1.2", "CPSD", "SD"),
        ("CPSD beats training once for twice as long", "not tried", "CPSD", "longer"),
        ("CPSD beats two distilled teachers of all labels", "not tried", "CPSD", "ensemble"),
        ("CPSD beats the mean score of two models", "not tried", "CPSD", "average"),
        ("Co-occurrence partitions beat plain self-distillation", "+0.5", "CGPD", "SD"),
        ("Dis-occurrence partitions beat plain self-distillation", "+0.8", "DGPD", "SD"),
        ("Both beat co-occurrence alone", "+0.7", "CPSD", "CGPD"),
        ("Both beat dis-occurrence alone", "+0.4", "CPSD", "DGPD"),
        ("Co-occurrence partitions beat random ones", "Figure 3", "CGPD", "random"),
        ("Dis-occurrence partitions beat random ones", "Figure 3", "DGPD", "random"),
    )
    rows = []
    for file in sorted(RESULTS.glob("distilled_*.json")):
        results = json.loads(file.read_text(encoding="utf-8"))
        given = {name: value for name, value in results["options"].items() if value != DEFAULTS.get(name)}
        found = {each["variant"]: dict(zip(each["seeds"], each["mAP"], strict=True)) for each in results["rows"]}
        command = (
            f"{command_of('self_distillation_results.py', given, 'data', 'val', *DEFAULTS)} --out runs/{file.stem}"
        )
        for text, paper, *arms in pairs:
            reached = [found.get(arm, {}) for arm in arms]
            seeds = sorted(reached[0].keys() & reached[1].keys())
            if len(seeds) < 3:
                continue
            difference = from_pairs(*([each[seed] for seed in seeds] for each in reached))
            regime = ", top trained" if given.get("train_from") else ""
            ours = f"{file.stem.split('_')[1]}{regime}: {difference} mAP, {len(seeds)} seeds"
            rows.append(row(15, text, paper, ours, verdict(difference, "better", 0), command))
    return rows


def command_of(script: str, options: Mapping[str, Any], *names: str) -> str:
    """Return the command that produced a result, from its recorded options."""
    parts = [f"python benchmarks/{script}"]
    for name in names:
        value = options.get(name)
        if value is not None:
            text = (" ".join(map(str, value)) if isinstance(value, list) else str(value)).replace(COCO, "$C")
            parts.append(f"--{name.replace('_', '-')} {shlex.quote(text) if '{' in text else text}")
    return " ".join(parts)
