"""Settings of a run of self-distillation that takes a second or two."""

import pytest

from manylabel.recipes.self_distillation import executors, partition


@pytest.fixture
def brief(quick, monkeypatch):
    monkeypatch.setattr(executors, "RETRIES", 0)
    return {
        **quick,
        "head": "linear",
        "epochs": 3,
        "teacher_epochs": 2,
        "views": 1,
        "k": 2,
        "executor": "sequential",
        "baseline": False,
    }


@pytest.fixture
def undrawn(monkeypatch):
    """Leave out the drawing of the label graph, which takes longer than all the rest."""
    monkeypatch.setattr(partition, "draw_graph", lambda graph, partitions: None)
    monkeypatch.setattr(partition, "write_drawing", lambda figure, path, overwrite: path.touch())
