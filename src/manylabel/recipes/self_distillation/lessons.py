"""What each teacher learns: the labels are divided, and every subset of them is a lesson.

Xu et al., *Boosting Multi-Label Image Classification with Complementary Parallel Self-Distillation*, 2022, section 3.2.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from manylabel.data import ImageDataset
from manylabel.labelgraph import LabelGraph, Partition, PartitionKind, draw_graph, partition_labels
from manylabel.page import write_drawing
from manylabel.storage import write_text
from manylabel.targets import Targets
from manylabel.types import LabelSpace

__all__ = ["Lesson", "Side", "count_pictures", "divide", "own_pictures", "plan_lessons", "read_or_divide"]

_SIDES: dict[str, tuple[PartitionKind, ...]] = {
    "both": ("co", "dis"),
    "co": ("co",),
    "dis": ("dis",),
    "random": ("random",),
    "whole": ("co",),  # of which one subset holds all labels
}


@dataclass(frozen=True)
class Side:
    """One way to divide the labels: the teachers of its subsets together know them all.

    Args:
        name: What its teachers are called.
        partition: The subsets.
    """

    name: str
    partition: Partition


@dataclass(frozen=True)
class Lesson:
    """What one teacher learns.

    Args:
        name: The teacher's, such as ``co-03``.
        side: That of its side.
        labels: Its labels.
        number: Its place among all teachers.
    """

    name: str
    side: str
    labels: tuple[str, ...]
    number: int


def divide(train: ImageDataset, *, partition: str, k: int, tau: float, seed: int) -> list[Side]:
    """Divide the labels of pictures.

    Args:
        train: The pictures to train on.
        partition: How: both, co, dis, random or whole.
        k: Into how many subsets.
        tau: The root that is taken of shares.
        seed: Seeds the clustering.

    Raises:
        ConfigError: There are more subsets than labels.

    Examples:
        >>> from manylabel.data import scenes
        >>> [side.partition.sizes for side in divide(scenes(99), partition="whole", k=5, tau=2, seed=0)]
        [(24,)]
    """
    graph = LabelGraph.from_targets(train.targets, train.labels, tau=tau)
    return _divide(graph, partition=partition, k=k, seed=seed)


def read_or_divide(folder: Path, train: ImageDataset, *, partition: str, k: int, tau: float, seed: int) -> list[Side]:
    """Divide the labels and leave partitions.json and a drawing in a folder, or read what an earlier run left there.

    Args:
        folder: The run's.
        train: The pictures to train on.
        partition: How: both, co, dis, random or whole.
        k: Into how many subsets.
        tau: The root that is taken of shares.
        seed: Seeds the clustering.
    """
    path = folder / "partitions.json"
    if path.is_file():
        listed: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        return [Side(each["name"], Partition.from_dict(each)) for each in listed["sides"]]
    graph = LabelGraph.from_targets(train.targets, train.labels, tau=tau)
    sides = _divide(graph, partition=partition, k=k, seed=seed)
    partitions = [side.partition for side in sides]
    write_drawing(draw_graph(graph, partitions), folder / "label-graph.png", overwrite=True)
    values = {"tau": tau, "sides": [{"name": side.name, **side.partition.to_dict()} for side in sides]}
    write_text(path, json.dumps(values, indent=2) + "\n")
    return sides


def plan_lessons(sides: Sequence[Side]) -> list[Lesson]:
    """Return a lesson for each subset, numbered from 1 within its side.

    Examples:
        >>> side = Side("dis", Partition((("cat", "dog"), ("cow",)), kind="dis"))
        >>> [lesson.name for lesson in plan_lessons([side])]
        ['dis-01', 'dis-02']
    """
    named = [
        (f"{side.name}-{number:02}", side.name, subset)
        for side in sides
        for number, subset in enumerate(side.partition.subsets, 1)
    ]
    return [Lesson(name, side, subset, number) for number, (name, side, subset) in enumerate(named)]


def own_pictures(targets: Targets, labels: LabelSpace, lesson: Lesson, *, which: Literal["own", "all"]) -> NDArray[Any]:
    """Return which pictures a teacher trains on, as a mask ``[N]``.

    With ``"own"``, as in the paper, those that show one of its labels. Two cases in which nothing could be learned from
    those alone get all pictures, unlike in the paper: a single label, which would never be seen missing, and labels
    that no picture shows.

    Args:
        targets: What is present, absent and unknown.
        labels: All labels.
        lesson: The teacher's.
        which: ``"own"`` or ``"all"``.

    Examples:
        >>> targets = Targets.from_lists([[0], [1], [2]], num_labels=3)
        >>> labels = LabelSpace(["cat", "dog", "cow"])
        >>> own_pictures(targets, labels, Lesson("co-01", "co", ("cat", "cow"), 0), which="own").tolist()
        [True, False, True]
    """
    everything = np.ones(len(targets), dtype=bool)
    if which == "all" or len(lesson.labels) == 1:
        return everything
    own = targets.of_labels([labels.index(name) for name in lesson.labels]).labels_per_picture > 0
    return own if own.any() else everything


def count_pictures(targets: Targets, labels: LabelSpace, lesson: Lesson, *, which: Literal["own", "all"]) -> int:
    """Return how many pictures a teacher trains on; see `own_pictures`."""
    return int(own_pictures(targets, labels, lesson, which=which).sum())


def _divide(graph: LabelGraph, *, partition: str, k: int, seed: int) -> list[Side]:
    subsets = 1 if partition == "whole" else k
    names = ("whole",) if partition == "whole" else _SIDES[partition]
    partitions = [partition_labels(graph, subsets, kind=kind, seed=seed) for kind in _SIDES[partition]]
    return [Side(name, part) for name, part in zip(names, partitions, strict=True)]
