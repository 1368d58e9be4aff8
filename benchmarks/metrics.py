"""Time and memory of mAP over many images and labels, compared with torchmetrics: python benchmarks/metrics.py.

torchmetrics would take minutes, so it is timed on the first 32 labels, in its preferred layout, and the time per label
is compared. Both run on one thread, interleaved; numbers are medians of processor time, which is robust against other
work on the machine. Peak memory is measured in a separate process, beyond the memory of the inputs (Linux only).
"""

import argparse
import json
import platform
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import torch
from torchmetrics.functional.classification import multilabel_average_precision

from manylabel.metrics import average_precision
from manylabel.storage import write_text

CASES = {"many images": (100_000, 1_000, 0.01), "many labels": (20_000, 9_600, 0.001)}  # ..., fraction of positives
FEW = 32
RESULTS = Path(__file__).parent / "results" / "metrics.json"


def make(case: str) -> tuple[torch.Tensor, torch.Tensor]:
    """Return random scores and targets."""
    images, labels, fraction = CASES[case]
    targets = torch.empty(images, labels, dtype=torch.bool).bernoulli_(fraction)
    return torch.rand(images, labels), targets


def seconds(function: Callable[[], object]) -> float:
    """Return the processor time of one call."""
    start = time.process_time()
    function()
    return time.process_time() - start


def compare_time(case: str, rounds: int) -> dict[str, float]:
    """Return both times per label, their ratio, and the largest difference of the results."""
    scores, targets = make(case)
    few, few_targets = scores[:, :FEW].contiguous(), targets[:, :FEW].long().contiguous()

    def reference() -> torch.Tensor:
        return multilabel_average_precision(few, few_targets, FEW, average=None, thresholds=None, validate_args=False)

    ours, theirs = [], []
    for _ in range(rounds):
        ours.append(1e3 * seconds(lambda: average_precision(scores, targets)) / scores.shape[1])
        theirs.append(1e3 * seconds(reference) / FEW)
    return {
        "manylabel_ms_per_label": round(statistics.median(ours), 3),
        "manylabel_spread_ms": round(max(ours) - min(ours), 3),
        "torchmetrics_ms_per_label": round(statistics.median(theirs), 3),
        "torchmetrics_spread_ms": round(max(theirs) - min(theirs), 3),
        "ratio": round(statistics.median(theirs) / statistics.median(ours), 1),
        "largest_difference": (reference() - average_precision(few, few_targets)).abs().max().item(),
    }


def measure_memory(case: str) -> dict[str, float]:
    """Return the size of the scores, and the peak of the memory beyond that of the inputs."""
    scores, targets = make(case)
    average_precision(scores[:, :2], targets[:, :2])  # imports on first use do not count
    before, done, seen = _held(), threading.Event(), [0.0]

    def watch() -> None:
        while not done.wait(0.002):
            seen.append(_held())

    watcher = threading.Thread(target=watch)
    watcher.start()
    average_precision(scores, targets)
    done.set()
    watcher.join()
    extra, size = max(seen) - before, scores.numel() * scores.element_size() / 1e6
    return {"scores_mb": round(size), "additional_memory_mb": round(extra), "ratio_to_scores": round(extra / size, 2)}


def _held() -> float:
    """Return the anonymous memory of this process in MB, without libraries, which the kernel loads and drops."""
    lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("RssAnon:")) * 1024 / 1e6


def main() -> None:
    """Measure every case, print and save the results."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--memory-of", choices=CASES, help="Measure only this case, in this process.")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    if arguments.memory_of:
        print(json.dumps(measure_memory(arguments.memory_of)))
        return
    results: dict[str, object] = {"python": platform.python_version(), "torch": torch.__version__, "threads": 1}
    for case, (images, labels, fraction) in CASES.items():
        command = [sys.executable, __file__, "--memory-of", case]
        memory = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
        size = {"images": images, "labels": labels, "fraction_of_positives": fraction}
        results[case] = size | compare_time(case, arguments.rounds) | memory
    print(json.dumps(results, indent=2))
    write_text(RESULTS, json.dumps(results, indent=2) + "\n", overwrite=True)


if __name__ == "__main__":
    main()
