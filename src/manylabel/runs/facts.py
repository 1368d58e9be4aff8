"""What was trained on what, and how: the plain facts of runs as tables."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from manylabel.classifier.head_config import describe_head
from manylabel.page import Cell, Note, Part, Section, Table, Text
from manylabel.progress import duration
from manylabel.runs.finding import differences
from manylabel.runs.judging import JudgedRun
from manylabel.runs.run import Run

__all__ = ["facts_table", "settings_parts"]


def facts_table(runs: Sequence[JudgedRun]) -> Table:
    """Tell of each run what was trained on what, a column for each."""
    facts: dict[str, list[Cell]] = {
        "recipe": [judged.run.recipe for judged in runs],
        "data": [judged.held_out.name for judged in runs],
        "pictures to train on": [f"{len(judged.train):,}" for judged in runs],
        "pictures held out": [f"{len(judged.held_out):,}" for judged in runs],
        "labels": [f"{len(judged.held_out.labels):,}" for judged in runs],
        "backbone": [_backbone(judged) for judged in runs],
        "picture size": [" x ".join(map(str, judged.model.input_spec.size)) + " pixels" for judged in runs],
        "head": [_head(judged) for judged in runs],
        "loss": [_with_settings(judged.run.settings, "loss") for judged in runs],
        "optimizer": [_optimizer(judged.run.settings) for judged in runs],
        "epochs": [_epochs(judged.run) for judged in runs],
        "time of the epochs": [duration(judged.run.seconds) for judged in runs],
        "parameters": [f"{judged.cost.parameters / 1e6:.2f} M" for judged in runs],
        "of these in the head": [f"{_head_parameters(judged) / 1e6:.2f} M" for judged in runs],
        "MACs of a picture": [f"{judged.cost.macs / 1e9:.3f} G" for judged in runs],
        "begun": [f"{judged.run.started:%Y-%m-%d %H:%M} UTC" for judged in runs],
    }
    return Table(["", *(judged.run.name for judged in runs)], [[name, *cells] for name, cells in facts.items()])


def _epochs(run: Run) -> str:
    """Return how many epochs there were, and of how many, where the settings say it."""
    asked = run.settings.get("epochs")
    return f"{len(run.epochs)} of {asked}" if asked else f"{len(run.epochs)}"


def settings_parts(runs: Sequence[Run]) -> Iterator[Part]:
    """Tell all settings, with those that differ first, and what the runs ran on.

    Args:
        runs: The runs, judged or not.
    """
    columns = ["setting", *(run.name for run in runs)]
    if len(runs) > 1:
        changed = differences(runs)
        if changed:
            yield Table(columns, _rows(changed), caption="Settings in which the runs differ.")
        else:
            yield Note("All settings are the same.")
    yield Section("All settings", [Table(columns, _rows(differences(runs, everything=True)))])
    for run in runs:
        yield Section(f"Command and environment of {run.name}", [Text(run.command or "?"), _environment(run)])


def _rows(settings: dict[str, list[Any]]) -> list[list[Cell]]:
    return [[name, *("" if value is None else str(value) for value in values)] for name, values in settings.items()]


def _environment(run: Run) -> Table:
    plain = {name: value for name, value in run.environment.items() if name not in ("packages", "executable")}
    packages = {name: value for name, value in run.environment.get("packages", {}).items() if value}
    rows: list[list[Cell]] = [[name, str(value)] for name, value in {**plain, **packages}.items()]
    return Table(["what", "which"], rows)


def _backbone(judged: JudgedRun) -> str:
    start = "pretrained" if judged.run.settings.get("pretrained", True) else "untrained at first"
    return f"{judged.model.backbone.name} ({'frozen' if judged.model.backbone.frozen else 'trained'}, {start})"


def _with_settings(settings: Mapping[str, Any], part: str) -> str:
    own = ", ".join(f"{name}={value}" for name, value in (settings.get(f"{part}_settings") or {}).items())
    return f"{settings.get(part, '?')}{f' ({own})' if own else ''}"


def _head(judged: JudgedRun) -> str:
    """Return the head of the model, which is not that of the settings where the run started from another model."""
    name: str = describe_head(judged.model.head).name
    return _with_settings(judged.run.settings, "head") if judged.run.settings.get("head") == name else name


def _optimizer(settings: Mapping[str, Any]) -> str:
    batch = settings.get("batch_size", "?")
    rate = settings.get("learning_rate", "?")
    return f"{settings.get('optimizer', '?')}, learning rate {rate}, batches of {batch}"


def _head_parameters(judged: JudgedRun) -> int:
    return sum(parameter.numel() for parameter in judged.model.head.parameters())
