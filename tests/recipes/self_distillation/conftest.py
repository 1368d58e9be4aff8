"""Settings of a run of self-distillation that takes a second or two."""

import pytest


@pytest.fixture
def brief(quick):
    return {
        **quick,
        "head": "linear",
        "epochs": 3,
        "teacher_epochs": 2,
        "k": 2,
        "executor": "sequential",
        "baseline": False,
        "retries": 0,
    }
