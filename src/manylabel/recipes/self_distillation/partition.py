"""Partitions of the labels: every subset has a teacher.

Xu et al., *Boosting Multi-Label Image Classification with Complementary Parallel Self-Distillation*, 2022, section 3.2.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import msgspec
import numpy as np
from numpy.typing import NDArray

from manylabel.data import ImageDataset
from manylabel.errors import ConfigError
from manylabel.labelgraph import LabelGraph, Partition, PartitionKind, draw_graph, partition_labels
from manylabel.page import write_drawing
from manylabel.storage import decode_json, write_text
from manylabel.targets import Targets
from manylabel.types import LabelSpace

__all__ = ["Side", "TeacherTask", "image_mask", "partition_sides", "read_or_partition", "teacher_tasks"]

_SIDES: dict[str, tuple[PartitionKind, ...]] = {
    "both": ("co", "dis"),
    "co": ("co",),
    "dis": ("dis",),
    "random": ("random",),
    "whole": ("co",),  # of which one subset holds all labels
}


@dataclass(frozen=True)
class Side:
    """One partition of the labels: the teachers of its subsets together know them all.

    Args:
        name: Name of the side, such as ``co``.
        partition: The subsets.
    """

    name: str
    partition: Partition


@dataclass(frozen=True)
class TeacherTask:
    """The labels that one teacher learns.

    Args:
        name: The teacher's, such as ``co-03``.
        side: That of its side.
        labels: Its labels.
        number: Its number among all teachers.
    """

    name: str
    side: str
    labels: tuple[str, ...]
    number: int


class _SavedSides(msgspec.Struct):
    """Content of partitions.json."""

    sides: list[dict[str, Any]]


def partition_sides(train: ImageDataset, *, partition: str, k: int, tau: float, seed: int) -> list[Side]:
    """Partition the labels of a dataset.

    Args:
        train: The training images.
        partition: The kind: both, co, dis, random or whole.
        k: Number of subsets.
        tau: Root that is taken of co-occurrences.
        seed: Seed of the clustering.

    Raises:
        ConfigError: There are more subsets than labels.

    Examples:
        >>> from manylabel.data import scenes
        >>> [side.partition.sizes for side in partition_sides(scenes(99), partition="whole", k=5, tau=2, seed=0)]
        [(24,)]
    """
    graph = LabelGraph.from_targets(train.targets, train.labels, tau=tau)
    return _partition(graph, partition=partition, k=k, seed=seed)


def read_or_partition(
    folder: Path, train: ImageDataset, *, partition: str, k: int, tau: float, seed: int
) -> list[Side]:
    """Read the partitions in a run's folder, or make them and leave partitions.json and a drawing there.

    Args:
        folder: The run's.
        train: The training images.
        partition: The kind: both, co, dis, random or whole.
        k: Number of subsets.
        tau: Root that is taken of co-occurrences.
        seed: Seed of the clustering.
    """
    path = folder / "partitions.json"
    if path.is_file():
        advice = "start a new run (--out)"
        saved = decode_json(path.read_bytes(), _SavedSides, source=path, error=ConfigError, advice=advice)
        return [Side(str(each.get("name")), Partition.from_dict(each)) for each in saved.sides]
    graph = LabelGraph.from_targets(train.targets, train.labels, tau=tau)
    sides = _partition(graph, partition=partition, k=k, seed=seed)
    partitions = [side.partition for side in sides]
    write_drawing(draw_graph(graph, partitions), folder / "label-graph.png", overwrite=True)
    values = {"tau": tau, "sides": [{"name": side.name, **side.partition.to_dict()} for side in sides]}
    write_text(path, json.dumps(values, indent=2) + "\n")
    return sides


def teacher_tasks(sides: Sequence[Side]) -> list[TeacherTask]:
    """Return a task for each subset, numbered from 1 within its side.

    Examples:
        >>> side = Side("dis", Partition((("cat", "dog"), ("cow",)), kind="dis"))
        >>> [task.name for task in teacher_tasks([side])]
        ['dis-01', 'dis-02']
    """
    named = [
        (f"{side.name}-{number:02}", side.name, subset)
        for side in sides
        for number, subset in enumerate(side.partition.subsets, 1)
    ]
    return [TeacherTask(name, side, subset, number) for number, (name, side, subset) in enumerate(named)]


def image_mask(
    targets: Targets, labels: LabelSpace, task: TeacherTask, *, which: Literal["all", "own"]
) -> NDArray[np.bool_]:
    """Return the images that a teacher trains on, and is asked about, as a mask ``[N]``.

    With ``"all"``, as in the authors' code, every image; one without its labels is all negative. With ``"own"``, as in
    the paper's text (X_C), those that show one of its labels. Two cases in which nothing could be learned from those
    alone get all images there, too: a single label, which would never be absent, and labels that no image shows.

    Args:
        targets: What is present, absent and unknown.
        labels: All labels.
        task: The teacher's.
        which: ``"all"`` or ``"own"``.

    Examples:
        >>> targets = Targets.from_lists([[0], [1], [2]], num_labels=3)
        >>> labels = LabelSpace(["cat", "dog", "cow"])
        >>> image_mask(targets, labels, TeacherTask("co-01", "co", ("cat", "cow"), 0), which="own").tolist()
        [True, False, True]
    """
    everything = np.ones(len(targets), dtype=np.bool_)
    if which == "all" or len(task.labels) == 1:
        return everything
    own = targets.of_labels([labels.index(name) for name in task.labels]).labels_per_image > 0
    return own if own.any() else everything


def _partition(graph: LabelGraph, *, partition: str, k: int, seed: int) -> list[Side]:
    subsets = 1 if partition == "whole" else k
    names = ("whole",) if partition == "whole" else _SIDES[partition]
    partitions = [partition_labels(graph, subsets, kind=kind, seed=seed) for kind in _SIDES[partition]]
    return [Side(name, part) for name, part in zip(names, partitions, strict=True)]
