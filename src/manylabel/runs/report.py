"""Report of finished runs as one self-contained HTML page: training, results and errors."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from PIL import Image

from manylabel import page
from manylabel.classifier.head_config import describe_head
from manylabel.cost import count_parameters
from manylabel.errors import ImageError, MissingExtraError
from manylabel.evaluation import METRICS, Comparison, compare
from manylabel.evaluation.pages import DrawImage, comparison_parts, evaluation_details, evaluation_headline, thumbnail
from manylabel.evaluation.results import ImageResult
from manylabel.explain import draw_experts, expert_load, explain, mixup_scale
from manylabel.heads.traits import as_expert_head, as_mixup_head
from manylabel.images import decode
from manylabel.labelgraph import LabelGraph, draw_graph, partition_labels
from manylabel.page import ACCENT, INK, Cell, Figure, Heading, Note, Part, Section, Table, plural, some
from manylabel.progress import duration
from manylabel.recipes.models import resolve_loss
from manylabel.runs.evaluation import EvaluatedRun
from manylabel.runs.run import Run, differences

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure as Drawing

__all__ = ["STROKES", "draw_curves", "heat_thumbnails", "report_page"]

# Okabe and Ito's colours, each with its own line style and marker: distinguishable without colour.
STROKES = (
    (ACCENT, "-", "o"),
    ("#d55e00", "--", "s"),
    ("#009e73", "-.", "^"),
    ("#cc79a7", ":", "D"),
    ("#e69f00", (0, (5, 1, 1, 1)), "v"),
    ("#56b4e9", (0, (8, 3)), "P"),
)

_MOST_SUBSETS = 5
_MOST_TILES = 6
_MOST_ROWS = 20
_IMAGES = 128  # run through a head again to inspect it
_HEIGHT, _GAP = 112, 3  # of thumbnails, in pixels
_MAP = METRICS["mAP"]


def report_page(
    runs: Sequence[EvaluatedRun],
    *,
    failed: Mapping[str, tuple[Run, str]] | None = None,
    draw: Callable[[EvaluatedRun], DrawImage] | None = None,
) -> page.Page:
    """Show finished runs as a page.

    Args:
        runs: The runs; the one with the highest mAP is compared with each of the others.
        failed: Runs that could not be evaluated and the reason, by name; only curves and settings are shown.
        draw: Returns the function that draws the thumbnails of a run (default: plain thumbnails).

    Returns:
        The page; under 10 MB for a handful of runs with any number of labels.
    """
    known = [*(each.run for each in runs), *(run for run, _ in (failed or {}).values())]
    title = f"Run {known[0].name}" if len(known) == 1 else f"{len(known)} runs"
    return page.Page(title, subtitle=_subtitle(runs)).add(
        *_headline(runs),
        *(Note(f"{name} could not be evaluated: {why}", kind="warning") for name, (_, why) in (failed or {}).items()),
        *_training(runs, known),
        *_results(runs, draw),
        *_graphs(runs),
        Heading("Settings and environment"),
        *_settings_parts(known),
    )


def heat_thumbnails(run: EvaluatedRun) -> DrawImage:
    """Return a function that draws an image with the heat map of its worst error, or of a correct label.

    Args:
        run: The run; its model explains the images.
    """

    def draw(result: ImageResult, caption: str) -> page.Thumbnail:
        tags = [*result.false_negatives, *result.false_positives, *result.true_positives]
        try:
            if tags:
                return _with_heat_map(run, result.index, tags[0].label, caption)
        except (ImageError, OSError, MissingExtraError):
            pass
        return thumbnail(run.val, result.index, caption)

    return draw


def _with_heat_map(run: EvaluatedRun, index: int, label: str, caption: str) -> page.Thumbnail:
    images = run.val.images
    [found] = explain(run.model, decode(images[index], name=images.name(index)), labels=label)
    sides = [found.image.convert("RGB"), found.overlay()]
    for side in sides:
        side.thumbnail((2 * _HEIGHT, _HEIGHT))
    both = Image.new("RGB", (2 * sides[0].width + _GAP, sides[0].height), "white")
    both.paste(sides[0], (0, 0))
    both.paste(sides[1], (sides[0].width + _GAP, 0))
    encoded = io.BytesIO()
    both.save(encoded, "JPEG", quality=72, optimize=True)
    return page.Thumbnail(encoded.getvalue(), f"{caption}. Right: heat map of {run.val.labels.display(label)}")


def _subtitle(runs: Sequence[EvaluatedRun]) -> str:
    kinds = {(each.val.name, len(each.val), len(each.val.labels)) for each in runs}
    return "; ".join(
        f"{plural(count, 'validation image')} of {name}, {plural(labels, 'label')}"
        for name, count, labels in sorted(kinds)
    )


def _headline(runs: Sequence[EvaluatedRun]) -> list[Part]:
    if len(runs) == 1:
        return evaluation_headline(runs[0].evaluation)
    return [*_comparisons(sorted(runs, key=lambda each: -each.evaluation.metrics["mAP"].value))] if runs else []


def _comparisons(runs: Sequence[EvaluatedRun]) -> Iterator[Part]:
    """Compare the best run, which comes first, with each of the others."""
    best, *others = runs
    is_same = len({(each.scored.names, each.scored.labels.names) for each in runs}) == 1
    draws, seed = best.evaluation.draws, best.evaluation.seed
    comparisons = [compare(each.scored, best.scored, draws=draws, seed=seed) for each in others] if is_same else []
    if len(comparisons) == 1:
        yield from comparison_parts(comparisons[0], best.val)
        return
    estimates = {f"mAP of {each.run.name}": each.evaluation.metrics["mAP"] for each in runs[:_MOST_TILES]}
    yield page.Tiles(
        [page.Tile(_MAP.number(value.value), name, _MAP.interval(value)) for name, value in estimates.items()]
    )
    if not is_same:
        text = "The runs have different validation images or labels, so their results are not comparable."
        yield Note(text, kind="warning")
    yield from _verdicts(best.run.name, comparisons)
    yield _metrics_table(runs)
    for comparison in comparisons:
        title = f"{comparison.second} against {comparison.first}"
        yield Section(title, comparison_parts(comparison, best.val))


def _verdicts(best: str, comparisons: Sequence[Comparison]) -> Iterator[Part]:
    """Report which runs the best one significantly outperforms."""
    words: dict[bool, list[str]] = {True: [], False: []}
    for comparison in comparisons:
        change = comparison.metrics["mAP"]
        difference = f"{_MAP.number(change.difference.value, signed=True)}, "
        difference += _MAP.interval(change.difference, signed=True)
        if change.p_value is not None:
            words[change.verdict == "better"].append(f"{comparison.first} ({difference})")
    if words[True]:
        yield Note(f"{best} has a significantly higher mAP than {some(words[True])}.", kind="good")
    if words[False]:
        yield Note(
            f"{best} does not have a significantly higher mAP than {some(words[False])}: the interval of the "
            "difference includes 0."
        )


def _metrics_table(runs: Sequence[EvaluatedRun]) -> Table:
    names = [name for name in METRICS if all(name in each.evaluation.metrics for each in runs)]
    rows: list[list[Cell]] = [
        [
            METRICS[name].title,
            *(METRICS[name].with_interval(each.evaluation.metrics[name]) for each in runs),
            "higher" if METRICS[name].higher_is_better else "lower",
        ]
        for name in names
    ]
    columns = ["metric", *(each.run.name for each in runs), "better"]
    return Table(columns, rows, caption="In per cent with 95 % intervals.")


def _training(evaluated: Sequence[EvaluatedRun], runs: Sequence[Run]) -> Iterator[Part]:
    yield Heading("Training")
    if evaluated:
        yield _facts_table(evaluated)
    figures = draw_curves(runs)
    yield page.Columns(figures) if figures else page.Text("No curves: no epoch was completed.")


def _results(runs: Sequence[EvaluatedRun], draw: Callable[[EvaluatedRun], DrawImage] | None) -> Iterator[Part]:
    for each in runs:
        parts = evaluation_details(each.evaluation, each.val, draw=None if draw is None else draw(each))
        parts += _head_parts(each)
        if len(runs) == 1:
            yield from parts
        else:
            yield Section(f"{each.run.name} in detail", [*evaluation_headline(each.evaluation), *parts])


def _head_parts(run: EvaluatedRun) -> Iterator[Part]:
    """Show the expert or layer weights of a head that has them."""
    head = run.model.head
    if as_expert_head(head):
        load = expert_load(run.model, run.val, limit=_IMAGES)
        yield Heading("Experts")
        yield Note(load.summary(), kind="warning" if load.dead else "good")
        caption = (
            f"Mean weight of each expert for each label over {plural(load.num_images, 'image')}, on a log scale. "
            "The last row is the mean over labels, the last column each label's own expert."
        )
        yield Figure(_in_page_ink(draw_experts(load)), caption)
    if as_mixup_head(head):
        scale = mixup_scale(run.model, run.val, limit=_IMAGES)
        yield Heading("Weight of earlier layers")
        yield Note(scale.summary())
        yield Table(
            ["label", "alpha"],
            [[name, f"{value:.3g}"] for name, value in scale.by_label[:_MOST_ROWS]],
            caption="Mean weight of the earlier layers over the images of a label, largest first.",
        )


def _graphs(runs: Sequence[EvaluatedRun]) -> Iterator[Part]:
    """Draw the label co-occurrence graph, once per training set."""
    seen = set()
    for each in runs:
        train = each.train
        if (key := (train.name, len(train), train.labels.names)) in seen or len(train.labels) < 3:
            continue
        seen.add(key)
        graph = LabelGraph.from_targets(train.targets, train.labels)
        subsets = min(_MOST_SUBSETS, len(train.labels) - 1)
        drawing = draw_graph(graph, [partition_labels(graph, subsets)])
        yield Heading("Co-occurrence of labels")
        caption = f"Label co-occurrence in {plural(len(train), 'training image')} of {train.name}."
        yield Figure(_in_page_ink(drawing), caption)


def _in_page_ink(drawing: Drawing) -> Drawing:
    """Give the text of a drawing the text colour of the page, which depends on light or dark mode."""
    from matplotlib.text import Text as DrawnText

    for text in drawing.findobj(DrawnText):
        if isinstance(text, DrawnText) and text.get_color() != "white":
            text.set_color(INK)
    return drawing


def _facts_table(runs: Sequence[EvaluatedRun]) -> Table:
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
        "loss": [_loss(each) for each in runs],
        "optimizer": [_optimizer(each.run.settings) for each in runs],
        "epochs": [_epochs(each.run) for each in runs],
        "training time": [duration(each.run.seconds) for each in runs],
        "parameters": [f"{each.cost.parameters / 1e6:.2f} M" for each in runs],
        "parameters of the head": [f"{count_parameters(each.model.head) / 1e6:.2f} M" for each in runs],
        "MACs per image": [f"{each.cost.macs / 1e9:.3f} G" for each in runs],
        "started": [f"{each.run.started:%Y-%m-%d %H:%M} UTC" for each in runs],
    }
    return Table(["property", *(each.run.name for each in runs)], [[name, *cells] for name, cells in facts.items()])


def _epochs(run: Run) -> str:
    """Return the number of completed epochs, and the total if the settings have it."""
    asked = run.settings.get("epochs")
    return f"{len(run.epochs)} of {asked}" if asked else f"{len(run.epochs)}"


def _settings_parts(runs: Sequence[Run]) -> Iterator[Part]:
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
        yield Section(f"Command and environment of {run.name}", [page.Text(run.command or "?"), _environment(run)])


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


def _loss(each: EvaluatedRun) -> str:
    """Return the loss that was used, which the settings may have left to the data."""
    settings = each.run.settings
    name = resolve_loss(settings.get("loss", "?"), single_label=each.model.single_label)
    return _with_settings({**settings, "loss": name}, "loss")


def _head(each: EvaluatedRun) -> str:
    """Return the head of the model; it differs from the settings if the run started from another model."""
    name: str = describe_head(each.model.head).name
    return _with_settings(each.run.settings, "head") if each.run.settings.get("head") == name else name


def _optimizer(settings: Mapping[str, Any]) -> str:
    batch = settings.get("batch_size", "?")
    rate = settings.get("learning_rate", "?")
    return f"{settings.get('optimizer', '?')}, learning rate {rate}, batch size {batch}"


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
    from matplotlib.ticker import LogLocator, MaxNLocator, NullFormatter

    trained = [run for run in runs if run.epochs]
    if not trained:
        return []
    loss, loss_axes = page.new_figure(width=5.0, height=3.2)
    precision, precision_axes = page.new_figure(width=5.0, height=3.2)
    for number, run in enumerate(trained):
        _line(loss_axes, number, run, "train_loss", run.name)
        _line(loss_axes, number, run, "val_loss", None, faint=True)
        _line(precision_axes, number, run, "val_mAP", run.name, factor=100)
    has_val_loss = any("val_loss" in run.epochs[0] for run in trained)
    loss_axes.set(xlabel="epoch", ylabel="loss", yscale="log" if _spans_tenfold(trained) else "linear")
    if loss_axes.get_yscale() == "log":
        loss_axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        loss_axes.yaxis.set_major_formatter(lambda value, _: f"{value:g}")  # pages have no TeX
        loss_axes.yaxis.set_minor_formatter(NullFormatter())
    precision_axes.set(xlabel="epoch", ylabel="validation mAP (%)")
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
