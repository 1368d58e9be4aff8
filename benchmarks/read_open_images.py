# python benchmarks/read_open_images.py
"""Reading five million rows in the format of Open Images, compared with pandas: time and memory.

Each reader runs in a process of its own; the memory of imported libraries, the same in both, is subtracted. Runs are
interleaved; prints medians.
"""

import argparse
import json
import platform
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
from scipy.sparse import csr_array

from manylabel.data import open_images
from manylabel.storage import write_text

FILE = "train-annotations-human-imagelabels.csv"
CLASSES = "classes-trainable.txt"
RESULTS = Path(__file__).parent / "results" / "read_open_images.json"


def generate(folder: Path, *, num_rows: int, num_images: int, num_labels: int, seed: int = 0) -> None:
    """Write annotations in which the images stand together, as in the release, and few labels are frequent."""
    generator = np.random.default_rng(seed)
    identifiers = np.unique(generator.integers(0, 2**63, num_images, dtype=np.uint64))
    images = pl.Series([f"{number:016x}" for number in identifiers.tolist()])
    labels = pl.Series([f"/m/0{number:05x}" for number in range(num_labels)])
    of_image = np.sort(generator.integers(0, len(images), num_rows))
    of_label = np.minimum((generator.pareto(1.0, num_rows) * 40).astype(np.int64), num_labels - 1)
    rows = pl.DataFrame(
        {
            "ImageID": images[of_image],
            "Source": pl.repeat("verification", num_rows, eager=True),
            "LabelName": labels[of_label],
            "Confidence": (generator.random(num_rows) < 0.4).astype(np.int8),
        }
    )
    # Of an image and a label that were drawn twice, one row: pandas, as used below, knows no contradictions.
    rows.unique(["ImageID", "LabelName"], keep="first", maintain_order=True).write_csv(folder / FILE)
    write_text(folder / CLASSES, "\n".join(labels))


def read_with_manylabel(folder: Path) -> tuple[csr_array, csr_array, float]:
    """Return what is present, what is absent, and the memory of the images' names in MB."""
    dataset = open_images(folder, split="train")
    return dataset.targets.present, dataset.targets.absent, dataset.images.names.estimated_size() / 1e6


def read_with_pandas(folder: Path) -> tuple[csr_array, csr_array, float]:
    """Do the same with pandas: read the table, number images and labels, build the matrices."""
    labels = (folder / CLASSES).read_text().splitlines()
    table = pd.read_csv(folder / FILE, usecols=["ImageID", "LabelName", "Confidence"])
    table = table[table["LabelName"].isin(labels)]
    rows, names = pd.factorize(table["ImageID"], sort=True)
    columns = pd.Categorical(table["LabelName"], categories=labels).codes
    matrices = []
    for value in (1, 0):
        chosen = (table["Confidence"] == value).to_numpy()
        entries = (rows[chosen], columns[chosen])
        matrices.append(csr_array((np.ones(int(chosen.sum()), bool), entries), shape=(len(names), len(labels))))
    return matrices[0], matrices[1], names.memory_usage(deep=True) / 1e6


READERS = {"manylabel": read_with_manylabel, "pandas": read_with_pandas}


def peak() -> float:
    """Return the most memory this process has had, in MB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / (1e6 if platform.system() == "Darwin" else 1e3)


def measure(reader: str, folder: Path) -> dict[str, Any]:
    """Read once, in this process."""
    before, start = peak(), time.perf_counter()
    present, absent, names = READERS[reader](folder)
    seconds = time.perf_counter() - start
    matrices = [part.nbytes for matrix in (present, absent) for part in (matrix.data, matrix.indices, matrix.indptr)]
    return {
        "seconds": seconds,
        "peak_mb": peak() - before,
        "held_mb": sum(matrices) / 1e6 + names,
        "shape": list(present.shape),
        "positives": int(present.nnz),
        "checksum": int(present.tocoo().row.astype(np.int64) @ present.tocoo().col),
    }


def step(name: str, rows: int, folder: str) -> str:
    """Do one step in a process of its own, which begins with the peak of the process that starts it."""
    command = [sys.executable, __file__, "--step", name, "--rows", str(rows), "--folder", folder]
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout


def run(arguments: argparse.Namespace) -> None:
    """Generate the file, measure in turns, print a table and write the numbers."""
    runs: dict[str, list[dict[str, Any]]] = {reader: [] for reader in READERS}
    with tempfile.TemporaryDirectory() as name:
        step("generate", arguments.rows, name)
        megabytes = (Path(name) / FILE).stat().st_size / 1e6
        for _ in range(arguments.repeats):
            for reader in READERS:
                runs[reader].append(json.loads(step(reader, arguments.rows, name)))
    answers = {(*one["shape"], one["positives"], one["checksum"]) for results in runs.values() for one in results}
    if len(answers) > 1:
        raise SystemExit(f"the readers disagree: {answers}")
    keys = ("seconds", "peak_mb", "held_mb")
    medians = {reader: {key: statistics.median(one[key] for one in runs[reader]) for key in keys} for reader in READERS}
    print(f"{arguments.rows:,} rows drawn, {megabytes:.0f} MB of CSV, {runs['manylabel'][0]['shape']} targets")
    print("| reader | seconds | peak memory, MB | dataset in memory, MB |\n|---|---|---|---|")
    for reader, numbers in medians.items():
        print(f"| {reader} | {numbers['seconds']:.1f} | {numbers['peak_mb']:.0f} | {numbers['held_mb']:.0f} |")
    ratios = {key: medians["manylabel"][key] / medians["pandas"][key] for key in keys}
    print("| manylabel / pandas | " + " | ".join(f"{ratio:.2f}" for ratio in ratios.values()) + " |")
    results = {"rows": arguments.rows, "csv_mb": megabytes, "medians": medians, "ratios": ratios, "runs": runs}
    if arguments.rows == parser().get_default("rows"):
        write_text(RESULTS, json.dumps(results, indent=2) + "\n", overwrite=True)


def parser() -> argparse.ArgumentParser:
    """Return the options; `--step` is how the script calls itself."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--rows", type=int, default=5_000_000)
    options.add_argument("--repeats", type=int, default=3)
    options.add_argument("--step", choices=["generate", *READERS])
    options.add_argument("--folder", type=Path)
    return options


if __name__ == "__main__":
    given = parser().parse_args()
    if given.step is None:
        run(given)
    elif given.step == "generate":
        generate(given.folder, num_rows=given.rows, num_images=given.rows // 5, num_labels=9600)
    else:
        print(json.dumps(measure(given.step, given.folder)))
