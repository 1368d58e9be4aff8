"""Coverage of the 95 % interval of mAP: python benchmarks/intervals.py [--repeats 150].

Images are made up: scores are normal, higher by `strength` where a label is present. The interval should hold the
mean of mAP over sets of as many images, and that of the difference of two equally good models should hold 0.
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


def made_up(targets: torch.Tensor, strength: float) -> ScoredImages:
    """Return scores of a model that is as good as its strength."""
    scores = (torch.randn(targets.shape) + strength * targets).sigmoid()
    return ScoredImages.from_arrays(scores, targets, labels=[str(number) for number in range(targets.shape[1])])


def mean_average_precision(scored: ScoredImages) -> float:
    """Return mAP."""
    return metrics.mean_average_precision(*scored.inputs).item()


def holds(found: Estimate, truth: float) -> bool:
    """Return true if an interval contains the true value."""
    return found.low is not None and found.high is not None and found.low <= truth <= found.high


def measure(num_images: int, share: float, strength: float, *, repeats: int, draws: int) -> dict[str, float]:
    """Return how often the intervals are right in one case."""

    def targets() -> torch.Tensor:
        return torch.rand(num_images, NUM_LABELS) < share

    truth = float(np.mean([mean_average_precision(made_up(targets(), strength)) for _ in range(3 * repeats)]))
    centred, plain, same = [], [], []
    for _ in range(repeats):
        there = targets()
        models = [made_up(there, strength) for _ in range(2)]
        first, second = (bootstrap(model, ["mAP"], draws=draws).metrics["mAP"] for model in models)
        centred.append(holds(estimate(first), truth))
        plain.append(holds(estimate(first, centred=False), truth))
        change = estimate(second - first, bounds=(-1, 1), centred=False)
        same.append(holds(change, 0))
    return {
        "images": num_images,
        "positives_a_label": num_images * share,
        "true_map": truth,
        "interval_holds": float(np.mean(centred)),
        "unmoved_interval_holds": float(np.mean(plain)),
        "interval_of_difference_holds": float(np.mean(same)),
    }


def main() -> None:
    """Print the table and write it as JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=150)
    parser.add_argument("--draws", type=int, default=200)
    options = parser.parse_args()
    torch.manual_seed(0)
    results = [measure(*case, repeats=options.repeats, draws=options.draws) for case in CASES]
    print("| images | positives a label | mAP | interval holds | unmoved | of a difference |")
    print("|---|---|---|---|---|---|")
    for row in results:
        shares = " | ".join(f"{100 * row[name]:.0f} %" for name in list(row)[3:])
        print(f"| {row['images']} | {row['positives_a_label']:.0f} | {100 * row['true_map']:.1f} | {shares} |")
    write_text(RESULTS, json.dumps(results, indent=2) + "\n", overwrite=True)


if __name__ == "__main__":
    main()
