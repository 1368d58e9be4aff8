"""Time and memory of an evaluation with intervals at COCO's size: python benchmarks/evaluation.py [--draws 1000].

The baseline is a loop over draws and labels with scikit-learn for the interval of mAP alone, timed on `--loop-draws`
draws and extrapolated. Both must give the same mAP in each of these draws. Scores are random, the worst case: no image
ranks below the last positive of a label. Set the number of cores with OMP_NUM_THREADS.
"""

import argparse
import json
import resource
import time
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.metrics import average_precision_score

from manylabel.evaluation import ScoredImages, bootstrap, bootstrap_weights, compare, evaluate
from manylabel.storage import write_text

RESULTS = Path(__file__).parent / "results" / "evaluation.json"


def random_scores(num_images: int, num_labels: int, *, seed: int) -> ScoredImages:
    """Return random scores, for labels as frequent as COCO's on average."""
    generator = torch.Generator().manual_seed(seed)
    targets = torch.rand(num_images, num_labels, generator=torch.Generator().manual_seed(0)) < 2.9 / num_labels
    scores = torch.rand(num_images, num_labels, generator=generator)
    return ScoredImages.from_arrays(scores, targets, labels=[f"label {number}" for number in range(num_labels)])


def loop(scored: ScoredImages, *, draws: int) -> NDArray[np.float64]:
    """Return the mAP of each draw, computed label by label."""
    weights = bootstrap_weights(len(scored), draws=draws)[1:].numpy()
    targets, scores = scored.targets.numpy(), scored.scores.numpy()
    return np.array(
        [
            np.mean(
                [
                    average_precision_score(targets[:, label], scores[:, label], sample_weight=weights[draw])
                    for label in range(len(scored.labels))
                ]
            )
            for draw in range(draws)
        ]
    )


def main() -> None:
    """Time all of it and write the results."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--images", type=int, default=40_137)
    parser.add_argument("--labels", type=int, default=80)
    parser.add_argument("--draws", type=int, default=1000)
    parser.add_argument("--loop-draws", type=int, default=2)
    options = parser.parse_args()
    first, second = (random_scores(options.images, options.labels, seed=seed) for seed in (1, 2))
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss

    start = time.perf_counter()
    expected = loop(first, draws=options.loop_draws)
    loop_seconds = (time.perf_counter() - start) * options.draws / options.loop_draws
    difference = np.abs(bootstrap(first, draws=options.loop_draws).metrics["mAP"][1:] - expected).max()

    start = time.perf_counter()
    evaluate(first, draws=options.draws)
    seconds = time.perf_counter() - start
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    start = time.perf_counter()
    compare(first, second, draws=options.draws)
    compare_seconds = time.perf_counter() - start

    result = {
        **vars(options),
        "threads": torch.get_num_threads(),
        "evaluate_seconds": round(seconds, 1),
        "compare_seconds": round(compare_seconds, 1),
        "loop_seconds_for_map_alone": round(loop_seconds),
        "times_faster": round(loop_seconds / seconds, 1),
        "largest_difference_of_map": float(difference),
        "additional_memory_mb": round((peak - before) / 1024),
    }
    print(json.dumps(result, indent=2))
    write_text(RESULTS, json.dumps(result, indent=2) + "\n", overwrite=True)


if __name__ == "__main__":
    main()
