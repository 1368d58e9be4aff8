"""Report of finished runs as one self-contained HTML page: training, results and errors."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

from manylabel import page
from manylabel.cost import count_parameters
from manylabel.errors import ImageError, MissingExtraError
from manylabel.evaluation import METRICS, Comparison, compare, pages
from manylabel.evaluation.evaluate import ImageResult
from manylabel.explain import draw_experts, expert_load, heat_thumbnail, mixup_scale
from manylabel.heads.config import describe_head
from manylabel.heads.head import as_expert_head, as_mixup_head
from manylabel.labelgraph import LabelGraph, draw_graph, partition_labels
from manylabel.page import ACCENT, INK, Html, plural, some
from manylabel.progress import duration
from manylabel.recipes.setup import are_tags_incomplete, resolve_loss
from manylabel.runs.run import EvaluatedRun, Run, differences

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure as Drawing

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
_MAP = METRICS["mAP"]


def report_page(
    runs: Sequence[EvaluatedRun],
    *,
    failed: Mapping[str, tuple[Run, str]] | None = None,
    draw: Callable[[EvaluatedRun], pages.DrawImage] | None = None,
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
    sets = {(each.val.name, len(each.val), len(each.val.labels)) for each in runs}
    subtitle = "; ".join(
        f"{plural(count, 'validation image')} of {name}, {plural(labels, 'label')}"
        for name, count, labels in sorted(sets)
    )
    failures = [f"{name} could not be evaluated: {why}" for name, (_, why) in (failed or {}).items()]
    parts = [
        *(pages.evaluation_headline(runs[0].evaluation) if len(runs) == 1 else _comparisons(runs)),
        *(page.note(words, "warning") for words in failures),
        *_training(runs, known),
        *_results(runs, draw),
        *_graphs(runs),
        *_settings(known),
    ]
    return page.Page(title, subtitle, parts)


def heat_thumbnails(run: EvaluatedRun) -> pages.DrawImage:
    """Return a function that draws an image with the heat map of its worst error, or of a correct label.

    Args:
        run: The run; its model explains the images.
    """

    def draw(result: ImageResult, caption: str) -> page.Thumbnail:
        tags = [*result.false_negatives, *result.false_positives, *result.true_positives]
        try:
            if tags:
                label = tags[0].label
                words = f"{caption}. Right: heat map of {run.val.labels.display(label)}"
                return heat_thumbnail(run.model, run.val, result.index, label, caption=words)
        except (ImageError, OSError, MissingExtraError):
            pass
        return run.val.thumbnail(result.index, caption=caption)

    return draw


def _comparisons(runs: Sequence[EvaluatedRun]) -> Iterator[Html]:
    """Compare the best run with each of the others."""
    if not runs:
        return
    best, *others = ranked = sorted(runs, key=lambda each: -each.evaluation.metrics["mAP"].value)
    is_same = len({(each.scored.names, each.scored.labels.names) for each in runs}) == 1
    draws = best.evaluation.draws
    comparisons = [compare(each.scored, best.scored, draws=draws) for each in others] if is_same else []
    if len(comparisons) == 1:
        yield from pages.comparison_parts(comparisons[0], best.val)
        return
    yield page.tiles(
        pages.metric_tile(_MAP, each.evaluation.metrics["mAP"], f"mAP of {each.run.name}")
        for each in ranked[:_MOST_TILES]
    )
    if not is_same:
        words = "The runs have different validation images or labels, so their results are not comparable."
        yield page.note(words, "warning")
    yield from _verdicts(best.run.name, comparisons)
    rows = [
        [each.title, *(each.with_interval(run.evaluation.metrics[name]) for run in ranked), each.better]
        for name, each in METRICS.items()
        if all(name in run.evaluation.metrics for run in ranked)
    ]
    columns = ["metric", *(each.run.name for each in ranked), "better"]
    yield page.table(columns, rows, caption="In per cent with 95 % intervals.")
    for comparison in comparisons:
        yield page.section(comparison.title, *pages.comparison_parts(comparison, best.val))


def _verdicts(best: str, comparisons: Sequence[Comparison]) -> Iterator[Html]:
    """Report which runs the best one significantly outperforms."""
    words: dict[bool, list[str]] = {True: [], False: []}
    for comparison in comparisons:
        change = comparison.metrics["mAP"]
        difference = f"{_MAP.number(change.difference.value, signed=True)}, "
        difference += _MAP.interval(change.difference, signed=True)
        if change.p_value is not None:
            words[change.verdict == "better"].append(f"{comparison.first} ({difference})")
    if words[True]:
        yield page.note(f"{best} has a significantly higher mAP than {some(words[True])}.", "good")
    if words[False]:
        yield page.note(
            f"{best} does not have a significantly higher mAP than {some(words[False])}: the interval of the "
            "difference includes 0."
        )


def _training(evaluated: Sequence[EvaluatedRun], runs: Sequence[Run]) -> Iterator[Html]:
    yield page.heading("Training")
    if evaluated:
        facts = [_facts(each) for each in evaluated]
        rows = [[name, *(each[name] for each in facts)] for name in facts[0]]
        yield page.table(["property", *(each.run.name for each in evaluated)], rows)
    figures = draw_curves(runs)
    yield page.columns(*figures) if figures else page.text("No curves: no epoch was completed.")


def _facts(each: EvaluatedRun) -> dict[str, str]:
    """Return the facts about a run, from its model where the settings leave something open."""
    settings, model = each.run.settings, each.model
    weights = "pretrained" if settings.get("pretrained", True) else "randomly initialised"
    state = "frozen" if model.backbone.frozen else "trained"
    head = describe_head(model.head).name  # another than in the settings if the run started from a model
    incomplete = are_tags_incomplete(each.train, settings.get("loss_settings", {}))
    loss = resolve_loss(settings.get("loss", "?"), single_label=model.single_label, incomplete=incomplete)
    optimizer, rate, batch = (settings.get(name, "?") for name in ("optimizer", "learning_rate", "batch_size"))
    epochs = f"{len(each.run.epochs)}" + (f" of {settings['epochs']}" if settings.get("epochs") else "")
    return {
        "recipe": each.run.recipe,
        "training images": f"{len(each.train):,} of {each.train.name}",
        "validation images": f"{len(each.val):,} of {each.val.name}",
        "labels": f"{len(each.val.labels):,}",
        "backbone": f"{model.backbone.name} ({state}, {weights})",
        "image size": f"{' x '.join(map(str, model.input_spec.size))} pixels",
        "head": f"{head}{_own(settings, 'head') if settings.get('head') == head else ''}",
        "loss": f"{loss}{_own(settings, 'loss')}",
        "optimizer": f"{optimizer}, learning rate {rate}, batch size {batch}",
        "epochs": epochs,
        "training time": duration(each.run.seconds),
        "parameters": f"{each.cost.parameters / 1e6:.2f} M",
        "parameters of the head": f"{count_parameters(model.head) / 1e6:.2f} M",
        "MACs per image": f"{each.cost.macs / 1e9:.3f} G",
        "started": f"{each.run.started:%Y-%m-%d %H:%M} UTC",
    }


def _own(settings: Mapping[str, Any], part: str) -> str:
    """Return the settings of a head or loss in brackets."""
    own = _shown(settings.get(f"{part}_settings"))
    return f" ({own})" if own else ""


def _shown(value: object) -> str:
    """Return a setting as text: empty for None, pairs for a mapping."""
    if isinstance(value, Mapping):
        return ", ".join(f"{name}={each}" for name, each in value.items())
    return "" if value is None else str(value)


def _results(runs: Sequence[EvaluatedRun], draw: Callable[[EvaluatedRun], pages.DrawImage] | None) -> Iterator[Html]:
    for each in runs:
        details = pages.evaluation_details(each.evaluation, each.val, draw=None if draw is None else draw(each))
        if len(runs) == 1:
            yield from (*details, *_head_parts(each))
        else:
            headline = pages.evaluation_headline(each.evaluation)
            yield page.section(f"{each.run.name} in detail", *headline, *details, *_head_parts(each))


def _head_parts(run: EvaluatedRun) -> Iterator[Html]:
    """Show the expert or layer weights of a head that has them."""
    head = run.model.head
    if as_expert_head(head):
        load = expert_load(run.model, run.val, limit=_IMAGES)
        yield page.heading("Experts")
        yield page.note(load.summary(), "warning" if load.dead else "good")
        caption = (
            f"Mean weight of each expert for each label over {plural(load.num_images, 'image')}, on a log scale. "
            "The last row is the mean over labels, the last column each label's own expert."
        )
        yield page.figure(_in_page_ink(draw_experts(load)), caption)
    if as_mixup_head(head):
        scale = mixup_scale(run.model, run.val, limit=_IMAGES)
        yield page.heading("Weight of earlier layers")
        yield page.note(scale.summary())
        rows = [[name, f"{value:.3g}"] for name, value in scale.by_label[:_MOST_ROWS]]
        caption = "Mean weight of the earlier layers over the images of a label, largest first."
        yield page.table(["label", "alpha"], rows, caption=caption)


def _graphs(runs: Sequence[EvaluatedRun]) -> Iterator[Html]:
    """Draw the label co-occurrence graph, once per training set."""
    sets = {(each.train.name, len(each.train), each.train.labels.names): each.train for each in runs}
    for train in sets.values():
        if len(train.labels) >= 3:
            graph = LabelGraph.from_targets(train.targets, train.labels)
            partition = partition_labels(graph, min(_MOST_SUBSETS, len(train.labels) - 1))
            captions: dict[Literal["heat map", "circle"], str] = {
                "heat map": f"Label co-occurrence in {plural(len(train), 'training image')} of {train.name}.",
                "circle": "Each label and the three that it co-occurs with most.",
            }
            yield page.heading("Co-occurrence of labels")
            yield page.columns(
                *(
                    page.figure(_in_page_ink(draw_graph(graph, [partition], only=part)), caption)
                    for part, caption in captions.items()
                )
            )


def _in_page_ink(drawing: "Drawing") -> "Drawing":
    """Give the text of a drawing the text colour of the page, which depends on light or dark mode."""
    from matplotlib.text import Text as DrawnText

    for text in drawing.findobj(DrawnText):
        if isinstance(text, DrawnText) and text.get_color() != "white":
            text.set_color(INK)
    return drawing


def _settings(runs: Sequence[Run]) -> Iterator[Html]:
    """Yield tables of settings, the differing ones first, and environments."""

    def table(settings: Mapping[str, Sequence[Any]], caption: str = "") -> Html:
        rows = [[name, *map(_shown, values)] for name, values in settings.items()]
        return page.table(["setting", *(run.name for run in runs)], rows, caption=caption)

    yield page.heading("Settings and environment")
    if len(runs) > 1:
        changed = differences(runs)
        same = page.note("All settings are the same.")
        yield table(changed, "Settings that differ between the runs.") if changed else same
    yield page.section("All settings", table(differences(runs, everything=True)))
    for run in runs:
        facts = {**run.environment, **run.environment.get("packages", {})}
        rows = [[name, str(value)] for name, value in facts.items() if value and name not in ("packages", "executable")]
        command = page.text(run.command or "?")
        yield page.section(f"Command and environment of {run.name}", command, page.table(["name", "value"], rows))


def draw_curves(runs: Sequence[Run]) -> list[Html]:
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
        names = (run.name, None) if len(trained) > 1 else ("training", "validation")
        _line(loss_axes, number, run, "train_loss", names[0])
        _line(loss_axes, number, run, "val_loss", names[1], alpha=0.4)
        _line(precision_axes, number, run, "val_mAP", run.name, factor=100)
    losses = [row["train_loss"] for run in trained for row in run.epochs if row.get("train_loss", 0) > 0]
    loss_axes.set(xlabel="epoch", ylabel="loss")
    if losses and max(losses) > 10 * min(losses):
        loss_axes.set_yscale("log")
        loss_axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        loss_axes.yaxis.set_major_formatter(lambda value, _: f"{value:g}")  # pages have no TeX
        loss_axes.yaxis.set_minor_formatter(NullFormatter())
    precision_axes.set(xlabel="epoch", ylabel="validation mAP (%)")
    for axes in (loss_axes, precision_axes):
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
        if len(axes.lines) > 1:
            axes.legend(frameon=False, fontsize=8.5, labelcolor="linecolor")
    also = " (faint: validation loss)" if any("val_loss" in run.epochs[0] for run in trained) else ""
    return [
        page.figure(precision, "Validation mAP after each epoch."),
        page.figure(loss, f"Training loss, mean over each epoch{also}."),
    ]


def _line(
    axes: "Axes", number: int, run: Run, what: str, label: str | None, *, factor: float = 1, alpha: float = 1
) -> None:
    points = [(row["epoch"], factor * row[what]) for row in run.epochs if what in row]
    if points:
        colour, stroke, mark = STROKES[number % len(STROKES)]
        shown = mark if len(points) <= 30 else ""
        axes.plot(
            *zip(*points, strict=True),
            color=colour,
            linestyle=stroke,
            marker=shown,
            markersize=4,
            alpha=alpha,
            label=label,
        )
