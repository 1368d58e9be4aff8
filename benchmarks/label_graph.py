"""Time of a label graph and its partitions, for 10,000 labels by default: python benchmarks/label_graph.py.

Images have one of 200 themes with 50 labels each; 70 % of the labels of an image belong to its theme. Wall clock of one
run, including the stability over ten seeds.
"""

import argparse
from time import perf_counter

import numpy as np

from manylabel.labelgraph import LabelGraph, partition_labels
from manylabel.targets import Targets, boolean_matrix
from manylabel.types import LabelSpace


def draw_targets(num_labels: int, num_images: int) -> Targets:
    """Return targets in which few labels are frequent and most are rare, within themes and over all."""
    generator = np.random.default_rng(0)
    theme = generator.integers(0, num_labels // 50, num_images)
    rows = np.repeat(np.arange(num_images), generator.poisson(7, num_images) + 1)
    of_theme = theme[rows] * 50 + np.minimum((generator.pareto(1.0, len(rows)) * 3).astype(int), 49)
    of_any = np.minimum((generator.pareto(0.7, len(rows)) * 30).astype(int), num_labels - 1)
    columns = np.where(generator.random(len(rows)) < 0.7, of_theme, of_any)
    return Targets(boolean_matrix(rows, columns, shape=(num_images, num_labels)))


def main() -> None:
    """Print seconds, sizes and stability."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--labels", type=int, default=10_000)
    parser.add_argument("--images", type=int, default=300_000)
    parser.add_argument("--k", type=int, nargs="+", default=[5, 20])
    arguments = parser.parse_args()
    targets = draw_targets(arguments.labels, arguments.images)
    labels = LabelSpace([f"label {index}" for index in range(arguments.labels)])
    start = perf_counter()
    graph = LabelGraph.from_targets(targets, labels)
    print(f"graph of {arguments.labels:,} labels, {graph.pairs.nnz // 2:,} links: {perf_counter() - start:.1f} s")
    for num_subsets in arguments.k:
        for kind in ("co", "dis"):
            start = perf_counter()
            partition = partition_labels(graph, num_subsets, kind=kind)
            seconds, sizes = perf_counter() - start, ", ".join(map(str, partition.sizes[:5]))
            print(f"{kind:>4} k={num_subsets:<4} {seconds:5.1f} s  stability {partition.stability:.2f}  sizes {sizes}")


if __name__ == "__main__":
    main()
