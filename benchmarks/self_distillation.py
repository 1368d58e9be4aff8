"""Gain from shared features: python benchmarks/self_distillation.py [--data scenes:300] [--epochs 5] [--head linear].

Trains the teachers of both sides (k = 5, so ten) twice in one process: separately, each image decoded and passed
through the frozen backbone in every epoch; and together on features that are computed once, the pass included. Heads,
images, epochs and the loop are the same. The cache is empty at the start. Prints the ratio of wall clocks.
"""

import argparse
import json
import os
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from manylabel.recipes import SelfDistillation, TrainAndVal, open_sets, self_distillation
from manylabel.recipes.loaders import cache_sets
from manylabel.recipes.reporter import Reporter
from manylabel.recipes.self_distillation.partition import TeacherTask, partition_sides, teacher_tasks
from manylabel.recipes.self_distillation.teachers import TeacherTraining, train_model, train_teacher
from manylabel.recipes.setup import build_teacher
from manylabel.storage import write_text
from manylabel.training import RunFolder

RESULTS = Path(__file__).parent / "results" / "self_distillation.json"


def together(settings: SelfDistillation, sets: TrainAndVal, tasks: Sequence[TeacherTask], folder: Path) -> None:
    """Pass the images through the backbone once and train all teachers on the features."""
    cached = cache_sets(self_distillation.setup(settings, sets=sets), Reporter())
    training = TeacherTraining(settings, cached, folder / "together")
    for task in tasks:
        train_teacher(training, task)


def alone(settings: SelfDistillation, sets: TrainAndVal, tasks: Sequence[TeacherTask], folder: Path) -> None:
    """Train each teacher on its own images, through the backbone in every epoch."""
    training = TeacherTraining(settings, sets, folder / "alone")
    for task in tasks:
        own = training.settings_of(task)
        parts = training.sets_of(task)
        assert isinstance(parts, TrainAndVal)
        model = build_teacher(settings, parts.train.labels, seed=own.seed, frozen=True)
        run = RunFolder.open(own.out)
        train_model(training, parts, model, replace(own, augment=False), run=run)
        run.save(model)


def main() -> None:
    """Time both and write the results."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", default="scenes:300")
    parser.add_argument("--limit", type=int, default=None)
    parser.add_argument("--backbone", default="offline:efficientnet_lite0")
    parser.add_argument("--head", default="linear")
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--k", type=int, default=5)
    parser.add_argument("--workers", type=int, default=0, help="processes that decode images, in both ways")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as root:
        os.environ["MANYLABEL_CACHE"] = root
        settings = SelfDistillation(
            data=options.data,
            limit=options.limit,
            backbone=options.backbone,
            head=options.head,
            epochs=options.epochs,
            k=options.k,
            workers=options.workers,
            logger="none",
        )
        sets = open_sets(settings)
        tasks = teacher_tasks(partition_sides(sets.train, partition="both", k=settings.k, tau=settings.tau, seed=0))
        start = time.perf_counter()
        together(settings, sets, tasks, Path(root))
        middle = time.perf_counter()
        print(f"together: {middle - start:.1f} s", file=sys.stderr)
        alone(settings, sets, tasks, Path(root))
        end = time.perf_counter()
    result = {
        **vars(options),
        "images": len(sets.train),
        "validation_images": len(sets.val),
        "teachers": len(tasks),
        "together_seconds": round(middle - start, 1),
        "alone_seconds": round(end - middle, 1),
        "times_faster": round((end - middle) / (middle - start), 1),
    }
    print(json.dumps(result, indent=2))
    write_text(RESULTS, json.dumps(result, indent=2) + "\n", overwrite=True)


if __name__ == "__main__":
    main()
