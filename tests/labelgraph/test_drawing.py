"""Drawings show what they should; whether they please is for people to say."""

from itertools import pairwise

import numpy as np
import pytest
from PIL import Image

from manylabel.errors import ConfigError, OutputExistsError
from manylabel.labelgraph import LabelGraph, Partition, draw_graph, partition_labels
from manylabel.page import write_drawing
from manylabel.targets import Targets
from manylabel.types import LabelSpace


def make_graph(names, *, display_names=None):
    generator = np.random.default_rng(0)
    images = [generator.choice(len(names), size=min(3, len(names)), replace=False).tolist() for _ in range(60)]
    labels = LabelSpace(names, display_names=display_names)
    return LabelGraph.from_targets(Targets.from_lists(images, num_labels=len(names)), labels)


def texts(axes):
    return [text.get_text() for text in axes.texts]


@pytest.mark.slow
def test_draws_a_heat_map_and_a_circle_for_each_partition():
    graph = make_graph([f"label {index}" for index in range(9)])
    partitions = [partition_labels(graph, 3, kind=kind, num_seeds=2) for kind in ("co", "dis")]
    figure = draw_graph(graph, partitions)
    heats, circles = figure.axes[0::3], figure.axes[1::3]
    for partition, heat, circle in zip(partitions, heats, circles, strict=True):
        ticks = [tick.get_text() for tick in heat.get_yticklabels()]
        assert sorted(ticks) == sorted(graph.labels)
        starts = np.cumsum([0, *partition.sizes])
        blocks = [set(ticks[start:end]) for start, end in pairwise(starts)]
        assert blocks == [set(subset) for subset in partition.subsets]
        order = [graph.labels.index(name) for name in ticks]
        shown = heat.images[0].get_array()
        np.testing.assert_allclose(shown.data, graph.affinity.toarray()[np.ix_(order, order)])
        assert set(graph.labels) <= set(texts(circle))


@pytest.mark.slow
def test_shows_display_names_and_shortens_long_ones():
    graph = make_graph(["/m/1", "a name that is far too long to be drawn", "$x$"], display_names={"/m/1": "cat"})
    figure = draw_graph(graph, [partition_labels(graph, 2)])
    assert {"cat", "$x$"} <= set(texts(figure.axes[1]))
    assert any(text.startswith("a name that") and text.endswith("…") for text in texts(figure.axes[1]))


def test_of_many_labels_draws_the_most_frequent():
    graph = make_graph([f"label {index}" for index in range(30)])
    figure = draw_graph(graph, [partition_labels(graph, 4, num_seeds=1)], at_most=10)
    drawn = {tick.get_text() for tick in figure.axes[0].get_yticklabels()}
    most = np.sort(graph.counts)[-10]
    assert len(drawn) == 10
    assert all(graph.counts[graph.labels.index(name)] >= most for name in drawn)
    assert "the 10 most frequent of 30 labels" in figure.subfigs[0].get_suptitle()


@pytest.mark.parametrize("size", [1, 2, 12])
@pytest.mark.slow
def test_draws_every_size_and_labels_that_no_font_knows(size, tmp_path):
    graph = make_graph([f"\u732b {index}" for index in range(size)])
    path = write_drawing(draw_graph(graph, [partition_labels(graph, size)]), tmp_path / "graph.png")
    with Image.open(path) as image:
        assert image.format == "PNG"
        assert image.width > 1000


@pytest.mark.slow
def test_draws_labels_without_any_link(tmp_path):
    graph = LabelGraph.from_targets(Targets.from_lists([], num_labels=5), LabelSpace(list("abcde")))
    assert write_drawing(draw_graph(graph, [partition_labels(graph, 2)]), tmp_path / "graph.png").exists()


@pytest.mark.slow
def test_a_file_is_not_overwritten_unless_asked(tmp_path):
    graph = make_graph(["cat", "dog", "cow"])
    figure = draw_graph(graph, [partition_labels(graph, 1)])
    (tmp_path / "graph.png").write_text("mine")
    with pytest.raises(OutputExistsError):
        write_drawing(figure, tmp_path / "graph.png")
    write_drawing(figure, tmp_path / "graph.png", overwrite=True)


def test_refuses_partitions_of_other_labels():
    graph = make_graph(["cat", "dog", "cow"])
    with pytest.raises(ConfigError, match="the partition and the graph have different labels"):
        draw_graph(graph, [Partition((("cat",), ("dog",)), kind="co")])
    with pytest.raises(ConfigError, match="needs a partition"):
        draw_graph(graph, [])
