"""Label graphs: co-occurrence of labels, partitions of the labels by it, and drawings of both."""

from importlib import import_module
from typing import TYPE_CHECKING

from manylabel.labelgraph.graph import LabelGraph, Neighbour
from manylabel.labelgraph.partition import Partition, PartitionKind, partition_labels

if TYPE_CHECKING:
    from manylabel.labelgraph.drawing import draw_graph

__all__ = ["LabelGraph", "Neighbour", "Partition", "PartitionKind", "draw_graph", "partition_labels"]


def __getattr__(name: str) -> object:
    if name == "draw_graph":  # matplotlib is imported when something is drawn
        return import_module("manylabel.labelgraph.drawing").draw_graph
    raise AttributeError(f"module 'manylabel.labelgraph' has no attribute {name!r}")
