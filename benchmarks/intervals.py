"""Coverage of the 95 % interval of mAP: python benchmarks/intervals.py [--repeats 150].

Scores are simulated: normal, higher by `strength` where a label is present. The interval should contain the mean mAP
over sets of the same size, and that of the difference between two equally good models should contain 0.
"""

import argparse
import json
from pathlib import Path

import numpy as np
import torch

from manylabel import metrics
from manylabel.evaluation import ScoredImages, bootstrap
from manylabel.evaluation.bootstrap import Estimate, estimate
from manylabel.storage import write_text

RESULTS = Path(__file__).parent / "results" / "intervals.json"
CASES = ((300, 0.03, 0.0), (300, 0.03, 1.5), (300, 0.1, 2.5), (2000, 0.03, 1.5), (300, 0.01, 2.5))
NUM_LABELS = 20


def simulate(targets: torch.Tensor, strength: float) -> ScoredImages:
    """Return simulated scores."""
    scores = (torch.randn(targets.shape) + strength * targets).sigmoid()
    return ScoredImages.from_arrays(scores, targets, labels=[str(number) for number in range(targets.shape[1])])


def mean_average_precision(scored: ScoredImages) -> float:
    """Return mAP."""
    return metrics.mean_average_precision(*scored.inputs).item()


def contains(found: Estimate, truth: float) -> bool:
    """Return true if an interval contains the true value."""
    return found.low is not None and found.high is not None and found.low <= truth <= found.high


def measure(num_images: int, fraction: float, strength: float, *, repeats: int, draws: int) -> dict[str, float]:
    """Return the coverage of the intervals in one case."""

    def targets() -> torch.Tensor:
        return torch.rand(num_images, NUM_LABELS) < fraction

    truth = float(np.mean([mean_average_precision(simulate(targets(), strength)) for _ in range(3 * repeats)]))
    centred, plain, same = [], [], []
    for _ in range(repeats):
        there = targets()
        models = [simulate(there, strength) for _ in range(2)]
        first, second = (bootstrap(model, ["mAP"], draws=draws).metrics["mAP"] for model in models)
        centred.append(contains(estimate(first), truth))
        plain.append(contains(estimate(first, centred=False), truth))
        change = estimate(second - first, bounds=(-1, 1), centred=False)
        same.append(contains(change, 0))
    return {
        "images": num_images,
        "positives_per_label": num_images * fraction,
        "true_map": truth,
        "coverage": float(np.mean(centred)),
        "coverage_without_shift": float(np.mean(plain)),
        "coverage_of_difference": float(np.mean(same)),
    }


def main() -> None:
    """Print the table and write it as JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=150)
    parser.add_argument("--draws", type=int, default=200)
    options = parser.parse_args()
    torch.manual_seed(0)
    results = [measure(*case, repeats=options.repeats, draws=options.draws) for case in CASES]
    print("| images | positives per label | mAP | coverage | without the shift | of a difference |")
    print("|---|---|---|---|---|---|")
    for row in results:
        fractions = " | ".join(f"{100 * row[name]:.0f} %" for name in list(row)[3:])
        print(f"| {row['images']} | {row['positives_per_label']:.0f} | {100 * row['true_map']:.1f} | {fractions} |")
    write_text(RESULTS, json.dumps(results, indent=2) + "\n", overwrite=True)


if __name__ == "__main__":
    main()
