"""Label partitions, with one teacher per subset.

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

_SIDES: dict[str, tuple[PartitionKind, ...]] = {
    "both": ("co", "dis"),
    "co": ("co",),
    "dis": ("dis",),
    "random": ("random",),
    "whole": ("co",),  # with one subset
    "ensemble": ("co", "co"),  # with one subset each
}


@dataclass(frozen=True)
class Side:
    """Partition of the labels, covered by the teachers of its subsets.

    Args:
        name: Name of the side, such as ``co``.
        partition: Partition of the labels.
    """

    name: str
    partition: Partition


@dataclass(frozen=True)
class TeacherTask:
    """Labels of one teacher.

    Args:
        name: Name of the teacher, such as ``co-03``.
        side: Name of its side.
        labels: Labels to learn.
        number: Number among all teachers.
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
        train: Training set.
        partition: Kind of partition: both, co, dis, random, whole or ensemble.
        k: Number of subsets.
        tau: Temperature of the co-occurrence rates.
        seed: Random seed of the clustering.

    Raises:
        ConfigError: There are more subsets than labels.

    Examples:
        >>> from manylabel.data import scenes
        >>> [side.partition.sizes for side in partition_sides(scenes(99), partition="whole", k=5, tau=2, seed=0)]
        [(24,)]
    """
    graph = LabelGraph.from_targets(train.targets, train.labels, tau=tau)
    names = {"whole": ("whole",), "ensemble": ("first", "second")}.get(partition, _SIDES[partition])
    subsets = k if names == _SIDES[partition] else 1
    partitions = [partition_labels(graph, subsets, kind=kind, seed=seed) for kind in _SIDES[partition]]
    return [Side(name, part) for name, part in zip(names, partitions, strict=True)]


def read_or_partition(
    folder: Path, train: ImageDataset, *, partition: str, k: int, tau: float, seed: int
) -> list[Side]:
    """Read the partitions from a run folder, or create them and write partitions.json and a drawing.

    Args:
        folder: Run folder.
        train: Training set.
        partition: Kind of partition: both, co, dis, random, whole or ensemble.
        k: Number of subsets.
        tau: Temperature of the co-occurrence rates.
        seed: Random seed of the clustering.
    """
    path = folder / "partitions.json"
    if path.is_file():
        advice = "start a new run (--out)"
        saved = decode_json(path.read_bytes(), _SavedSides, source=path, error=ConfigError, advice=advice)
        return [Side(str(each.get("name")), Partition.from_dict(each)) for each in saved.sides]
    sides = partition_sides(train, partition=partition, k=k, tau=tau, seed=seed)
    graph = LabelGraph.from_targets(train.targets, train.labels, tau=tau)
    drawing = draw_graph(graph, [side.partition for side in sides])
    write_drawing(drawing, folder / "label-graph.png", overwrite=True)
    values = {"tau": tau, "sides": [{"name": side.name, **side.partition.to_dict()} for side in sides]}
    write_text(path, json.dumps(values, indent=2) + "\n")
    return sides


def teacher_tasks(sides: Sequence[Side]) -> list[TeacherTask]:
    """Return a task per subset, named by its number within the side.

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
    """Return a mask ``[N]`` of the images on which a teacher is trained and queried.

    With ``"all"``, as in the authors' code, every image; without its labels, all targets are negative. With ``"own"``,
    as in the paper's text (X_C), images with one of its labels. Two cases use all images even then, since nothing could
    be learned otherwise: a single label, which would never be absent, and labels without positive images.

    Args:
        targets: Targets of all images.
        labels: All labels.
        task: Task of the teacher.
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
