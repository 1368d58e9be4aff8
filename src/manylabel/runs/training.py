"""Training section of the report: tables of facts and settings, training curves."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from manylabel.classifier.head_config import describe_head
from manylabel.page import ACCENT, Cell, Figure, Note, Part, Section, Table, Text, new_figure
from manylabel.progress import duration
from manylabel.runs.evaluation import EvaluatedRun
from manylabel.runs.run import Run, differences

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["draw_curves", "facts_table", "settings_parts"]

# Okabe and Ito's colours, each with its own line style and marker: distinguishable without colour.
STROKES = (
    (ACCENT, "-", "o"),
    ("#d55e00", "--", "s"),
    ("#009e73", "-.", "^"),
    ("#cc79a7", ":", "D"),
    ("#e69f00", (0, (5, 1, 1, 1)), "v"),
    ("#56b4e9", (0, (8, 3)), "P"),
)


def facts_table(runs: Sequence[EvaluatedRun]) -> Table:
    """Return a table of facts with one column per run."""
    facts: dict[str, list[Cell]] = {
        "recipe": [each.run.recipe for each in runs],
        "data": [each.val.name for each in runs],
        "training images": [f"{len(each.train):,}" for each in runs],
        "validation images": [f"{len(each.val):,}" for each in runs],
        "labels": [f"{len(each.val.labels):,}" for each in runs],
        "backbone": [_backbone(each) for each in runs],
        "image size": [" x ".join(map(str, each.model.input_spec.size)) + " pixels" for each in runs],
        "head": [_head(each) for each in runs],
        "loss": [_with_settings(each.run.settings, "loss") for each in runs],
        "optimizer": [_optimizer(each.run.settings) for each in runs],
        "epochs": [_epochs(each.run) for each in runs],
        "training time": [duration(each.run.seconds) for each in runs],
        "parameters": [f"{each.cost.parameters / 1e6:.2f} M" for each in runs],
        "parameters of the head": [f"{_head_parameters(each) / 1e6:.2f} M" for each in runs],
        "MACs per image": [f"{each.cost.macs / 1e9:.3f} G" for each in runs],
        "started": [f"{each.run.started:%Y-%m-%d %H:%M} UTC" for each in runs],
    }
    return Table(["", *(each.run.name for each in runs)], [[name, *cells] for name, cells in facts.items()])


def _epochs(run: Run) -> str:
    """Return the number of completed epochs, and the total if the settings have it."""
    asked = run.settings.get("epochs")
    return f"{len(run.epochs)} of {asked}" if asked else f"{len(run.epochs)}"


def settings_parts(runs: Sequence[Run]) -> Iterator[Part]:
    """Yield tables of settings, the differing ones first, and environments.

    Args:
        runs: The runs, evaluated or not.
    """
    columns = ["setting", *(run.name for run in runs)]
    if len(runs) > 1:
        changed = differences(runs)
        if changed:
            yield Table(columns, _rows(changed), caption="Settings that differ between the runs.")
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
    return Table(["name", "value"], rows)


def _backbone(each: EvaluatedRun) -> str:
    start = "pretrained" if each.run.settings.get("pretrained", True) else "randomly initialised"
    return f"{each.model.backbone.name} ({'frozen' if each.model.backbone.frozen else 'trained'}, {start})"


def _with_settings(settings: Mapping[str, Any], part: str) -> str:
    own = ", ".join(f"{name}={value}" for name, value in (settings.get(f"{part}_settings") or {}).items())
    return f"{settings.get(part, '?')}{f' ({own})' if own else ''}"


def _head(each: EvaluatedRun) -> str:
    """Return the head of the model; it differs from the settings if the run started from another model."""
    name: str = describe_head(each.model.head).name
    return _with_settings(each.run.settings, "head") if each.run.settings.get("head") == name else name


def _optimizer(settings: Mapping[str, Any]) -> str:
    batch = settings.get("batch_size", "?")
    rate = settings.get("learning_rate", "?")
    return f"{settings.get('optimizer', '?')}, learning rate {rate}, batch size {batch}"


def _head_parameters(each: EvaluatedRun) -> int:
    return sum(parameter.numel() for parameter in each.model.head.parameters())


def draw_curves(runs: Sequence[Run]) -> list[Figure]:
    """Plot loss and mAP over epochs, one line per run.

    Args:
        runs: The runs.

    Returns:
        Two figures; none if no run has completed an epoch.

    Examples:
        >>> from pathlib import Path
        >>> rows = tuple({"epoch": n, "train_loss": 1 / n, "val_mAP": 1 - 1 / n} for n in (1.0, 2.0, 3.0))
        >>> len(draw_curves([Run(Path("a"), "a", {}, rows, {}, "", True)]))
        2
    """
    from matplotlib.ticker import MaxNLocator

    trained = [run for run in runs if run.epochs]
    if not trained:
        return []
    loss, loss_axes = new_figure(width=5.0, height=3.2)
    precision, precision_axes = new_figure(width=5.0, height=3.2)
    for number, run in enumerate(trained):
        _line(loss_axes, number, run, "train_loss", run.name)
        _line(loss_axes, number, run, "val_loss", None, faint=True)
        _line(precision_axes, number, run, "val_mAP", run.name, factor=100)
    has_val_loss = any("val_loss" in run.epochs[0] for run in trained)
    loss_axes.set(xlabel="epoch", ylabel="loss", yscale="log" if _spans_tenfold(trained) else "linear")
    if loss_axes.get_yscale() == "log":
        loss_axes.yaxis.set_major_formatter(lambda value, _: f"{value:g}")  # pages have no TeX
    precision_axes.set(xlabel="epoch", ylabel="validation mAP in per cent")
    for axes in (loss_axes, precision_axes):
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
        if len(trained) > 1:
            axes.legend(frameon=False, fontsize=8.5, labelcolor="linecolor")
    also = " (faint: validation loss)" if has_val_loss else ""
    return [
        Figure(precision, "Validation mAP after each epoch."),
        Figure(loss, f"Training loss, mean over each epoch{also}."),
    ]


def _line(
    axes: Axes, number: int, run: Run, what: str, label: str | None, *, factor: float = 1, faint: bool = False
) -> None:
    points = [(row["epoch"], factor * row[what]) for row in run.epochs if what in row]
    if points:
        colour, stroke, mark = STROKES[number % len(STROKES)]
        alpha = 0.4 if faint else 1.0
        epochs, values = zip(*points, strict=True)
        shown = mark if len(points) <= 30 else ""
        axes.plot(epochs, values, color=colour, linestyle=stroke, marker=shown, markersize=4, alpha=alpha, label=label)


def _spans_tenfold(runs: Sequence[Run]) -> bool:
    """Return whether the losses need a logarithmic axis."""
    losses = [row["train_loss"] for run in runs for row in run.epochs if row.get("train_loss", 0) > 0]
    return bool(losses) and max(losses) > 10 * min(losses)
