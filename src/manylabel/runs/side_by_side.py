"""Several runs beside each other: what each is worth, measure by measure and label by label."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from manylabel.classifier.head_config import describe_head
from manylabel.evaluation import MEASURES, compare, label_pair
from manylabel.evaluation.pages.words import interval, number, some, with_interval
from manylabel.page import Cell, Columns, Heading, Note, Part, Share, Table, Tile, Tiles
from manylabel.runs.judging import JudgedRun
from manylabel.runs.plots import draw_label_dots, draw_label_pair
from manylabel.runs.tradeoff import TradeoffPoint, draw_tradeoff

__all__ = ["are_comparable", "side_by_side"]

_MOST_TILES = 6
_MOST_PAIRS = 2


def side_by_side(runs: Sequence[JudgedRun], *, pairs: Sequence[tuple[str, str]] = ()) -> list[Part]:
    """Show runs beside each other, the best first.

    Args:
        runs: At least two, judged; if on other pictures, they are still shown, with a warning.
        pairs: Labels to put against each other; the two pairs that are most often confused when left out.
    """
    ranked = sorted(runs, key=lambda judged: -judged.evaluation.measures["mAP"].value)
    is_same = are_comparable(runs)
    return [
        _key_figures(ranked),
        *(_verdicts(ranked) if is_same else _other_pictures()),
        *_measures(ranked),
        *(_labels(ranked) if is_same else ()),
        *(_pairs(ranked, pairs or _confused(ranked)) if is_same else ()),
        *(_tradeoff(ranked) if is_same else ()),
    ]


def are_comparable(runs: Sequence[JudgedRun]) -> bool:
    """Say whether all runs were judged on the same pictures and labels."""
    return len({(judged.scored.names, judged.scored.labels.names) for judged in runs}) == 1


def _key_figures(runs: Sequence[JudgedRun]) -> Tiles:
    return Tiles(
        [
            Tile(
                number(judged.evaluation.measures["mAP"].value),
                f"mAP of {judged.run.name}",
                interval(judged.evaluation.measures["mAP"]),
            )
            for judged in runs[:_MOST_TILES]
        ]
    )


def _other_pictures() -> Iterator[Part]:
    yield Note(
        "The runs are judged on different pictures or labels, so that their numbers say little about each other.",
        kind="warning",
    )


def _verdicts(runs: Sequence[JudgedRun]) -> Iterator[Part]:
    """Say from which runs the best one can be told, by a paired bootstrap."""
    best, *others = runs
    draws = best.evaluation.draws
    if not draws:
        return
    clear: list[str] = []
    unclear: list[str] = []
    for judged in others:
        change = compare(judged.scored, best.scored, draws=draws, seed=best.evaluation.seed).measures["mAP"]
        words = f"{judged.run.name} ({number(change.difference.value, signed=True)}, "
        words += f"{interval(change.difference, signed=True)})"
        (clear if change.verdict == "better" else unclear).append(words)
    if clear:
        yield Note(f"{best.run.name} has a clearly higher mAP than {some(clear)}, on the same pictures.", kind="good")
    if unclear:
        yield Note(
            f"{best.run.name} cannot be told from {some(unclear)} by mAP: the interval of the difference holds 0."
        )


def _measures(runs: Sequence[JudgedRun]) -> Iterator[Part]:
    yield Heading("Measures side by side")
    names = [name for name in MEASURES if all(name in judged.evaluation.measures for judged in runs)]
    rows: list[list[Cell]] = []
    for name in names:
        values = [judged.evaluation.measures[name] for judged in runs]
        cells = (
            with_interval(value) if MEASURES[name].is_share else f"{number(value.value, measure=name)}"
            for value in values
        )
        rows.append([MEASURES[name].title, *cells, "higher" if MEASURES[name].higher_is_better else "lower"])
    columns = ["measure", *(judged.run.name for judged in runs), "better"]
    yield Table(columns, rows, caption="Shares in per cent, with 95 % intervals.")
    if all(judged.evaluation.by_size for judged in runs):
        yield _sizes(runs)


def _sizes(runs: Sequence[JudgedRun]) -> Table:
    sizes = [{group.name: group for group in judged.evaluation.by_size} for judged in runs]
    rows: list[list[Cell]] = [
        [name, group.positives, *(with_interval(by_name[name].recall) if name in by_name else "" for by_name in sizes)]
        for name, group in sizes[0].items()
    ]
    columns = ["size", "picture x label", *(judged.run.name for judged in runs)]
    return Table(columns, rows, caption="Recall by the size of a label's largest object, in per cent.")


def _labels(runs: Sequence[JudgedRun]) -> Iterator[Part]:
    yield Heading("Labels side by side")
    labels = {judged.run.name: judged.evaluation.labels for judged in runs}
    if any(label.positives for label in runs[0].evaluation.labels):
        yield draw_label_dots(labels)
    rows: list[list[Cell]] = []
    for results in zip(*labels.values(), strict=True):
        values = [result.value for result in results]
        shares: list[Cell] = [Share(value) if results[0].positives else None for value in values]
        gap = round(100 * (max(values) - min(values)), 1) if results[0].positives else None
        rows.append([results[0].display_name, results[0].positives, *shares, gap])
    columns = ["label", "pictures", *labels, "best - worst"]
    yield Table(columns, rows, caption="Average precision of every label; press a head to sort.")


def _confused(runs: Sequence[JudgedRun]) -> list[tuple[str, str]]:
    """Return the pairs of labels that the best run confuses most, each pair once."""
    judged = {label.name for label in runs[0].evaluation.labels if label.positives}
    found = [tuple(sorted((pair.missed, pair.invented))) for pair in runs[0].evaluation.confusions]
    likely = [(first, second) for first, second in dict.fromkeys(found) if {first, second} <= judged]
    return likely[:_MOST_PAIRS]


def _pairs(runs: Sequence[JudgedRun], pairs: Sequence[tuple[str, str]]) -> Iterator[Part]:
    if pairs:
        yield Heading("Labels against labels")
    display = runs[0].held_out.labels.display
    for first, second in pairs:
        found = label_pair([judged.evaluation for judged in runs], first, second)
        yield Columns(draw_label_pair(found, display(first), display(second)))


def _tradeoff(runs: Sequence[JudgedRun]) -> Iterator[Part]:
    yield Heading("Cost against accuracy")
    yield draw_tradeoff(
        [
            TradeoffPoint(
                run=judged.run.name,
                head=describe_head(judged.model.head).name,
                backbone=judged.model.backbone.name,
                cost=judged.cost.macs / 1e9,
                mean_average_precision=judged.evaluation.measures["mAP"].value,
            )
            for judged in runs
        ]
    )
