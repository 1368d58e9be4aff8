"""The page of a tuning: what it changed, on pictures that were not used for it."""

from __future__ import annotations

from manylabel.metrics.calibration import Calibration
from manylabel.page import ACCENT, INK, Cell, Figure, Heading, Note, Page, Share, Table, Text, Tile, Tiles, new_figure
from manylabel.tuning.tune import Tuning

__all__ = ["MEASURE_TITLES", "tuning_page"]

MEASURE_TITLES = {
    "CP": "precision, mean of labels (CP)",
    "CR": "recall, mean of labels (CR)",
    "CF1": "F1 of both (CF1)",
    "OP": "precision, all together (OP)",
    "OR": "recall, all together (OR)",
    "OF1": "F1 of both (OF1)",
    "calibration_error": "calibration error",
    "log_loss": "log loss",
}


def tuning_page(tuning: Tuning, *, model: str, dataset: str) -> Page:
    """Return a page with what a tuning changed.

    Args:
        tuning: The tuning.
        model: What to call the model.
        dataset: What to call the data.

    Returns:
        The page, to be written.
    """
    before, after = tuning.before.measures, tuning.after.measures
    tiles = [
        Tile(f"{100 * after[name]:.1f} %", title, f"was {100 * before[name]:.1f} %")
        for name, title in (("CF1", "CF1"), ("OF1", "OF1"), ("calibration_error", "calibration error"))
    ]
    aim = "calibration only" if tuning.objective is None else f"thresholds for {tuning.objective}"
    page = Page(f"Tuning of {model}", f"{tuning.num_pictures:,} pictures of {dataset}, {aim}")
    return page.add(
        Tiles(tiles),
        Text(
            f"Every picture is judged by numbers that were fitted without it, on the other {tuning.num_folds - 1} of "
            f"{tuning.num_folds} parts. The model keeps numbers that were fitted to all parts."
        ),
        *(Note(note) for note in tuning.notes),
        Heading("Before and after"),
        Table(["measure", "before", "after"], [_row(name, before[name], after[name]) for name in MEASURE_TITLES]),
        Heading("How often a score is right"),
        _draw(tuning.before.bins, tuning.after.bins),
        Heading("Labels"),
        _labels(tuning),
    )


def _labels(tuning: Tuning) -> Table:
    """List the labels, with their thresholds where they have any."""
    columns = ["label", "pictures", "F1 before", "F1 after"]
    rows: list[list[Cell]] = [
        [label.name, label.positives, Share(label.f1_before), Share(label.f1_after)] for label in tuning.labels
    ]
    if tuning.thresholds is not None:
        columns += ["threshold", "note"]
        rows = [[*row, label.threshold, label.note] for row, label in zip(rows, tuning.labels, strict=True)]
    return Table(columns, rows)


def _row(name: str, before: float, after: float) -> list[str | float | Share]:
    if name == "log_loss":
        return [MEASURE_TITLES[name], before, after]
    return [MEASURE_TITLES[name], Share(before), Share(after)]


def _draw(before: Calibration, after: Calibration) -> Figure:
    """Draw both curves; on the dotted line 70 % means 70 %."""
    drawing, axes = new_figure(width=5.0, height=3.6)
    axes.plot([0, 100], [0, 100], color=INK, linewidth=0.8, linestyle=":")
    for bins, name, colour, stroke in ((before, "before", INK, "--"), (after, "after", ACCENT, "-")):
        filled = bins.counts > 0
        scores, shares = (100 * values[filled].numpy() for values in (bins.scores, bins.shares))
        axes.plot(scores, shares, stroke, color=colour, marker="o", markersize=4, label=name)
    axes.set(xlim=(-3, 103), ylim=(-3, 103), xlabel="score, in per cent", ylabel="present, in per cent")
    axes.legend(frameon=False, loc="upper left")
    return Figure(drawing, "How often scores are right before and after. On the dotted line 70 % means 70 %.")
