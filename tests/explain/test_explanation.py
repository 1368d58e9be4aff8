import pytest
import torch
from PIL import Image

from manylabel.errors import ConfigError
from manylabel.explain import Explanation, draw_grid


def some(label="cat", **changes):
    return Explanation(Image.new("RGB", (60, 40)), label, 0.9, torch.eye(2), **{"method": "cam", **changes})


def titles(figure):
    return [axes.get_title() for axes in figure.axes if axes.get_title()]


@pytest.mark.slow
def test_columns_are_named_by_what_they_differ_in():
    assert titles(draw_grid([some(), some("dog")])) == ["CAM"]
    assert titles(draw_grid([some(), some(method="grad_cam")])) == ["CAM", "Grad-CAM"]
    assert titles(draw_grid([some(block=0), some(block=3)])) == ["block 0", "block 3"]
    assert titles(draw_grid([some(model="a"), some(model="b")])) == ["a", "b"]
    assert titles(draw_grid([some(block=0), some(method="eigen_cam", block=3)])) == [
        "CAM, block 0",
        "EigenCAM, block 3",
    ]


@pytest.mark.slow
def test_every_label_has_a_row_and_gaps_stay_empty():
    figure = draw_grid([some("cat", model="a"), some("cat", model="b"), some("$dog$", model="b")])
    assert len(figure.axes) == 2 * 3 + 1
    assert [axes.get_ylabel() for axes in figure.axes if axes.get_ylabel()] == ["cat", "$dog$"]
    assert [bool(axes.images) for axes in figure.axes[:6]] == [True, True, True, True, False, True]
    figure.draw_without_rendering()


def test_an_empty_grid_is_refused():
    with pytest.raises(ConfigError, match="nothing to draw"):
        draw_grid([])
