"""Label errors found again, compared with cleanlab: python -m benchmarks.label_errors --data SPEC [--head NAME].

Of all present labels, 5 % are removed, and as many absent ones added, both drawn uniformly over the known labels. The
dataset is cross-validated with these labels; both libraries rank the same scores. Precision is that of the first n of
all labels, recall that of the first 2n, n being the number of flips; AUROC is over all known labels. "listed" is the
length of the list of `manylabel data labels`, an estimate of the number of errors. Errors that the dataset had before
count as false alarms. Times are medians of `--repeats` interleaved calls, from scores to a ranking, in one process. The
CPU time of the cross-validation is without that of the features if a call before has cached them.
"""

import argparse
import json
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from statistics import median

import numpy as np
import torch
from cleanlab.multilabel_classification.filter import find_multilabel_issues_per_class
from cleanlab.multilabel_classification.rank import get_label_quality_scores_per_class
from numpy.typing import NDArray
from sklearn.metrics import roc_auc_score

from manylabel import Backbone
from manylabel.data import ImageDataset, load
from manylabel.evaluation import ScoredImages
from manylabel.heads import HEADS
from manylabel.label_issues import cross_validate, error_probabilities, find_label_issues
from manylabel.progress import ProgressBar
from manylabel.settings import Probe
from manylabel.storage import write_text

RESULTS = Path(__file__).parent / "results"


def flip(dataset: ImageDataset, fraction: float, seed: int) -> tuple[ImageDataset, NDArray[np.bool_]]:
    """Return the dataset with labels removed and as many added, and a mask of the flipped ones, ``[N, L]``."""
    generator = np.random.default_rng(seed)
    values, known = dataset.targets.dense()
    flips = np.zeros(values.shape, dtype=bool)
    count = round(fraction * int((known & (values == 1)).sum()))
    for value in (1, 0):
        chosen = generator.choice(np.flatnonzero(known & (values == value)), count, replace=False)
        flips.flat[chosen] = True
    targets = dataset.targets.with_values(*np.nonzero(flips), 1 - values[flips])
    return replace(dataset, targets=targets, areas=None), flips


def ours(scored: ScoredImages) -> NDArray[np.float64]:
    """Return the probability that each label is wrong."""
    return error_probabilities(scored).numpy()


def theirs(scored: ScoredImages) -> NDArray[np.float64]:
    """Return one minus cleanlab's label quality; its issues, which it finds label by label, take part in the time."""
    rows = [row.nonzero().flatten().tolist() for row in scored.targets]
    scores = scored.scores.numpy().astype(np.float64)
    find_multilabel_issues_per_class(rows, scores, n_jobs=1)
    return 1 - get_label_quality_scores_per_class(rows, scores)


def quality(errors: NDArray[np.float64], flips: NDArray[np.bool_], known: NDArray[np.bool_]) -> dict[str, float]:
    """Return precision, recall and AUROC of a ranking."""
    ranked, count = flips[known][np.argsort(-errors[known], kind="stable")], int(flips.sum())
    return {
        "precision_at_n": float(ranked[:count].mean()),
        "recall_at_2n": float(ranked[: 2 * count].sum() / count),
        "auroc": float(roc_auc_score(flips[known], errors[known])),
    }


def seconds(work: Callable[[ScoredImages], object], scored: ScoredImages) -> float:
    """Time one call."""
    start = time.perf_counter()
    work(scored)
    return time.perf_counter() - start


def main() -> None:
    """Measure every seed, print the rows and write them."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", required=True, help="data spec")
    parser.add_argument("--backbone", default="offline:everyday")
    parser.add_argument("--head", default=Probe.head, choices=sorted(HEADS))
    parser.add_argument("--fraction", type=float, default=0.05)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--repeats", type=int, default=5)
    options = parser.parse_args()
    dataset, backbone, rows = load(options.data), Backbone(options.backbone, frozen=True), []
    for seed in options.seeds:
        flipped, flips = flip(dataset, options.fraction, seed)
        start = time.process_time()
        with ProgressBar("cross-validating") as bar:
            scored = cross_validate(flipped, backbone, head=HEADS[options.head], progress=bar.update).scored
        spent, known = time.process_time() - start, scored.known.numpy()
        flips = flips[scored.indices]
        rounds = [(seconds(ours, scored), seconds(theirs, scored)) for _ in range(options.repeats)]
        rows.append(
            {
                "seed": seed,
                "flips": int(flips.sum()),
                "listed": len(find_label_issues(scored).issues),
                "cross_validation_cpu_seconds": round(spent, 1),
                "manylabel": quality(ours(scored), flips, known),
                "cleanlab": quality(theirs(scored), flips, known),
                "seconds": median(first for first, _ in rounds),
                "seconds_cleanlab": median(second for _, second in rounds),
                "times_faster": median(second / first for first, second in rounds),
            }
        )
        print(json.dumps(rows[-1]), flush=True)
    content = {"dataset": dataset.name, "images": len(dataset), "backbone": options.backbone, "head": options.head}
    content |= {"fraction": options.fraction, "threads": torch.get_num_threads(), "rows": rows}
    file = RESULTS / f"label_errors_{options.head}.json"
    write_text(file, json.dumps(content, indent=2) + "\n", overwrite=True)


if __name__ == "__main__":
    main()
