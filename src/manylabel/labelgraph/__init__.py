"""Label graphs: which labels come together in pictures, how to divide them by it, and drawings of both."""

from manylabel.labelgraph.drawing import draw_graph
from manylabel.labelgraph.graph import LabelGraph, Neighbour
from manylabel.labelgraph.partition import Partition, PartitionKind, partition_labels

__all__ = [
    "LabelGraph",
    "Neighbour",
    "Partition",
    "PartitionKind",
    "draw_graph",
    "partition_labels",
]
