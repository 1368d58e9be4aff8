"""Splits compared with iterative stratification: python benchmarks/splits.py [--coco instances.json].

Deviation is the mean over folds and labels (or pairs of labels) of |fraction in the fold - overall fraction|. Both are
interleaved in one process; times are medians of `--repeats` rounds, each with another seed.
"""

import argparse
import json
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
from iterstrat.ml_stratifiers import MultilabelStratifiedKFold, MultilabelStratifiedShuffleSplit
from numpy.typing import NDArray
from scipy.sparse import csr_array

from manylabel.data.splits import stratified_folds, stratified_split
from manylabel.storage import write_text
from manylabel.targets import Targets, boolean_matrix

Parts = list[NDArray[np.int64]]
RESULTS = Path(__file__).parent / "results" / "splits.json"


def coco_like(num_images: int = 50_000, num_labels: int = 80, num_groups: int = 12, seed: int = 0) -> Targets:
    """Draw labels with skewed frequencies that come together in groups, about three an image."""
    generator = np.random.default_rng(seed)
    popularity = np.arange(1, num_labels + 1) ** -0.9
    groups = generator.integers(num_groups, size=num_labels)
    chances = popularity * np.where(groups == np.arange(num_groups)[:, None], 6.0, 0.35)  # [groups, L]
    chances = np.minimum(chances * 2.9 / chances.sum(axis=1).mean(), 0.9)
    scenes = generator.integers(num_groups, size=num_images)
    return Targets(csr_array(generator.random((num_images, num_labels)) < chances[scenes]))


def read_coco(path: Path) -> Targets:
    """Read which labels each image has from an instances file."""
    content = json.loads(path.read_text(encoding="utf-8"))
    rows = {image["id"]: row for row, image in enumerate(content["images"])}
    columns = {label["id"]: column for column, label in enumerate(content["categories"])}
    pairs = [(rows[found["image_id"]], columns[found["category_id"]]) for found in content["annotations"]]
    return Targets(boolean_matrix(*np.array(pairs).T, shape=(len(rows), len(columns))))


def deviations(targets: Targets, parts: Parts) -> tuple[float, float]:
    """Return the mean deviation of the fractions of labels, and of pairs of labels."""

    def fractions(present: csr_array) -> NDArray[np.float64]:
        counts = present.astype(np.float64)
        return (counts.T @ counts).toarray() / counts.shape[0]  # [L, L], labels on the diagonal

    overall = fractions(targets.present)
    off = np.abs(np.stack([fractions(targets.present[part]) for part in parts]) - overall)
    upper = np.triu_indices(len(overall), k=1)
    return float(np.diagonal(off, axis1=1, axis2=2).mean()), float(off[:, *upper].mean())


def our_folds(targets: Targets, seed: int) -> Parts:
    """Make five folds with manylabel."""
    return [val for _, val in stratified_folds(targets, num_folds=5, seed=seed)]


def our_split(targets: Targets, seed: int) -> Parts:
    """Split 80/20 with manylabel."""
    return list(stratified_split(targets, val_fraction=0.2, seed=seed))


def their_folds(dense: NDArray[np.int64], seed: int) -> Parts:
    """Make five folds with iterative stratification."""
    return [val for _, val in MultilabelStratifiedKFold(5, shuffle=True, random_state=seed).split(dense, dense)]


def their_split(dense: NDArray[np.int64], seed: int) -> Parts:
    """Split 80/20 with iterative stratification."""
    return list(next(MultilabelStratifiedShuffleSplit(1, test_size=0.2, random_state=seed).split(dense, dense)))


def measure(split: Callable[[int], Parts], seed: int, targets: Targets) -> list[float]:
    """Return the seconds that a split takes and its two deviations."""
    start = time.perf_counter()
    parts = split(seed)
    return [time.perf_counter() - start, *deviations(targets, parts)]


def compare(name: str, targets: Targets, repeats: int) -> list[dict[str, str | float]]:
    """Measure both libraries on one set of targets, in turns."""
    dense = targets.present.toarray().astype(np.int64)  # what iterative stratification takes; not in its time
    tasks = {
        "5 folds": (partial(our_folds, targets), partial(their_folds, dense)),
        "80/20": (partial(our_split, targets), partial(their_split, dense)),
    }
    results: list[dict[str, str | float]] = []
    for task, (ours, theirs) in tasks.items():
        rounds = [(measure(ours, seed, targets), measure(theirs, seed, targets)) for seed in range(repeats)]
        (seconds, labels, pairs), (their_seconds, their_labels, their_pairs) = np.median(rounds, axis=0).tolist()
        results.append(
            {
                "data": f"{name}, {targets.shape[0]} x {targets.shape[1]}",
                "task": task,
                "seconds": seconds,
                "seconds_iterstrat": their_seconds,
                "times_faster": float(np.median([theirs[0] / ours[0] for ours, theirs in rounds])),
                "deviation_labels": labels,
                "deviation_labels_iterstrat": their_labels,
                "deviation_pairs": pairs,
                "deviation_pairs_iterstrat": their_pairs,
            }
        )
    return results


def main() -> None:
    """Print the table and write it as JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--coco", type=Path, help="an instances JSON file of COCO, to measure real labels too")
    parser.add_argument("--repeats", type=int, default=5)
    arguments = parser.parse_args()
    results = compare("generated", coco_like(), arguments.repeats)
    if arguments.coco:
        results += compare("COCO train2014", read_coco(arguments.coco), arguments.repeats)
    print("| data | task | ms | iterstrat ms | times faster | labels off | iterstrat | pairs off | iterstrat |")
    print("|---|---|---|---|---|---|---|---|---|")
    for row in results:
        times = f"{row['seconds'] * 1e3:.0f} | {row['seconds_iterstrat'] * 1e3:.0f} | {row['times_faster']:.1f}"
        labels = f"{row['deviation_labels']:.2e} | {row['deviation_labels_iterstrat']:.2e}"
        pairs = f"{row['deviation_pairs']:.2e} | {row['deviation_pairs_iterstrat']:.2e}"
        print(f"| {row['data']} | {row['task']} | {times} | {labels} | {pairs} |")
    write_text(RESULTS, json.dumps(results, indent=2) + "\n", overwrite=True)


if __name__ == "__main__":
    main()
