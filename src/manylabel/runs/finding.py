"""Find past runs, and what they differ in."""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from manylabel.runs.run import Run

__all__ = ["differences", "find_runs"]

_INSIDE = frozenset({"checkpoints", "model", "teachers", "tensorboard"})  # teachers know some of the labels only


def find_runs(folder: str | Path) -> list[Run]:
    """Find all runs in a folder and below it, the newest first.

    Args:
        folder: Where to look.

    Examples:
        >>> import tempfile
        >>> find_runs(tempfile.mkdtemp())
        []
    """
    found = []
    for place, below, files in os.walk(folder):
        if "config.yaml" in files and "environment.json" in files:
            found.append(Run.read(place))
            below[:] = [name for name in below if name not in _INSIDE]
    return sorted(found, key=lambda run: run.started, reverse=True)


def differences(runs: Sequence[Run], *, everything: bool = False) -> dict[str, list[Any]]:
    """Put the settings of several runs beside each other.

    Args:
        runs: The runs.
        everything: Whether to give the settings that are the same, too.

    Returns:
        For each setting what it is in each run, None where a run does not have it. Where a run was written to differs
        always and is left out.

    Examples:
        >>> runs = [Run(Path(head), head, {"head": head, "seed": 0}, (), {}, "", True) for head in ("linear", "csra")]
        >>> differences(runs)
        {'head': ['linear', 'csra']}
    """
    names = dict.fromkeys(name for run in runs for name in run.settings if name != "out")
    rows = {name: [run.settings.get(name) for run in runs] for name in names}
    return {name: values for name, values in rows.items() if everything or any(value != values[0] for value in values)}
