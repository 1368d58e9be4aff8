"""Measures of an evaluation: a table of names, meanings and metrics, and the format of their values.

A new measure is one function in `manylabel.metrics` and one line in `MEASURES`.

Letters in shape comments: L labels, D draws.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from operator import attrgetter
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from manylabel.errors import ConfigError, list_choices
from manylabel.evaluation.bootstrap import Estimate, draw_counts
from manylabel.evaluation.scores import ScoredImages
from manylabel.metrics import (
    PrecisionRecall,
    average_precision,
    calibration,
    coverage,
    hamming_loss,
    one_error,
    precision_recall,
    ranking_loss,
    subset_accuracy,
)

__all__ = ["DEFAULT_MEASURES", "MEASURES", "Draws", "Measure", "bootstrap", "choose_measures", "measure"]

Compute = Callable[[ScoredImages, Tensor | None], Any]
"""Computes a result from scores and image weights; several measures may be parts of one result."""


@dataclass(frozen=True)
class Measure:
    """A measure.

    Args:
        title: Name in tables.
        meaning: Definition in one sentence.
        compute: Function that computes it, possibly together with others.
        part: Function that extracts it from the result, ``[]`` or ``[D]``; NaN where undefined.
        higher_is_better: Whether higher values are better.
        is_fraction: Whether it is in 0..1 and formatted in per cent.
        is_default: Whether it is computed by default.
    """

    title: str
    meaning: str
    compute: Compute
    part: Callable[[Any], Tensor]
    higher_is_better: bool = True
    is_fraction: bool = True
    is_default: bool = True

    def number(self, value: float, *, signed: bool = False) -> str:
        """Format a value, in per cent if it is a fraction.

        Examples:
            >>> MEASURES["mAP"].number(0.61234), MEASURES["mAP"].number(-0.0001, signed=True)
            ('61.2', '+0.0')
        """
        sign = "+" if signed else ""
        return f"{100 * value:{sign or '-'}z.1f}" if self.is_fraction else f"{value:{sign or '-'}z.2f}"

    def interval(self, estimate: Estimate, *, signed: bool = False) -> str:
        """Format the interval of an estimate; empty if it has none.

        Examples:
            >>> MEASURES["mAP"].interval(Estimate(0.5, 0.4, 0.6)), MEASURES["mAP"].interval(Estimate(0.5))
            ('40.0 to 60.0', '')
        """
        if estimate.low is None or estimate.high is None:
            return ""
        return f"{self.number(estimate.low, signed=signed)} to {self.number(estimate.high, signed=signed)}"

    def with_interval(self, estimate: Estimate | None) -> str:
        r"""Format a value and its interval without line breaks; empty for None.

        Examples:
            >>> ascii(MEASURES["mAP"].with_interval(Estimate(0.5, 0.4, 0.6)))
            "'50.0\\xa0(40.0\\u201360.0)'"
        """
        if estimate is None:
            return ""
        if estimate.low is None or estimate.high is None:
            return self.number(estimate.value)
        bounds = f"{self.number(estimate.low)}\u2013{self.number(estimate.high)}"
        return f"{self.number(estimate.value)}\u00a0({bounds})"


def _average_precision(scored: ScoredImages, weights: Tensor | None) -> Tensor:
    return average_precision(*scored.inputs, weights=weights)


def _all_points(scored: ScoredImages, weights: Tensor | None) -> Tensor:
    return average_precision(*scored.inputs, weights=weights, interpolation="all_points")


def _eleven_points(scored: ScoredImages, weights: Tensor | None) -> Tensor:
    return average_precision(*scored.inputs, weights=weights, interpolation="eleven_points")


def _at_thresholds(scored: ScoredImages, weights: Tensor | None) -> PrecisionRecall:
    return precision_recall(*scored.decisions, weights=weights)


def _top_three(scored: ScoredImages, weights: Tensor | None) -> PrecisionRecall:
    return precision_recall(*scored.inputs, weights=weights, top_k=3)


def _top_five(scored: ScoredImages, weights: Tensor | None) -> PrecisionRecall:
    return precision_recall(*scored.inputs, weights=weights, top_k=5)


def _one_error(scored: ScoredImages, weights: Tensor | None) -> Tensor:
    return one_error(*scored.inputs, weights=weights)


def _top_one(scored: ScoredImages, weights: Tensor | None) -> Tensor:
    accuracy = 1 - one_error(*scored.inputs, weights=weights)
    return accuracy if scored.has_one_label_each else torch.full_like(accuracy, torch.nan)


def _mean_over_labels(values: Tensor) -> Tensor:
    return values.nanmean(dim=-1)


def _itself(value: Tensor) -> Tensor:
    return value


_CP, _CR, _CF1 = (attrgetter(f"class_{what}") for what in ("precision", "recall", "f1"))
_OP, _OR, _OF1 = (attrgetter(f"overall_{what}") for what in ("precision", "recall", "f1"))
_OF_THREE = "with the three highest scores of each image as predictions."

MEASURES: dict[str, Measure] = {
    "mAP": Measure("mAP", "Mean average precision over labels.", _average_precision, _mean_over_labels),
    "CP": Measure("CP", "Precision averaged over labels; 0 for labels never predicted.", _at_thresholds, _CP),
    "CR": Measure("CR", "Recall averaged over labels.", _at_thresholds, _CR),
    "CF1": Measure("CF1", "Harmonic mean of CP and CR.", _at_thresholds, _CF1),
    "OP": Measure("OP", "Overall precision, all labels pooled.", _at_thresholds, _OP),
    "OR": Measure("OR", "Overall recall, all labels pooled.", _at_thresholds, _OR),
    "OF1": Measure("OF1", "Harmonic mean of OP and OR.", _at_thresholds, _OF1),
    "CF1@3": Measure("CF1, top 3", f"CF1 {_OF_THREE}", _top_three, _CF1),
    "OF1@3": Measure("OF1, top 3", f"OF1 {_OF_THREE} Zero-shot papers call it F1@3.", _top_three, _OF1),
    "ranking_loss": Measure(
        "ranking loss",
        "Fraction of (present, absent) label pairs ranked in the wrong order, averaged over images.",
        lambda scored, weights: ranking_loss(*scored.inputs, weights=weights),
        _itself,
        higher_is_better=False,
    ),
    "one_error": Measure(
        "one-error",
        "Fraction of images whose top-ranked label is absent.",
        _one_error,
        _itself,
        higher_is_better=False,
    ),
    "calibration_error": Measure(
        "calibration error",
        "Expected calibration error (ECE): mean gap between score and frequency of the label.",
        lambda scored, weights: calibration(*scored.inputs, weights=weights),
        attrgetter("error"),
        higher_is_better=False,
    ),
    "top_1": Measure("top-1 accuracy", "Fraction of images whose top-ranked label is correct.", _top_one, _itself),
    "mAP_all_points": Measure(
        "mAP, VOC 2010",
        "mAP with all-point interpolation (VOC 2010).",
        _all_points,
        _mean_over_labels,
        is_default=False,
    ),
    "mAP_eleven_points": Measure(
        "mAP, VOC 2007",
        "mAP with 11-point interpolation (VOC 2007).",
        _eleven_points,
        _mean_over_labels,
        is_default=False,
    ),
    "CP@3": Measure("CP, top 3", f"CP {_OF_THREE}", _top_three, _CP, is_default=False),
    "CR@3": Measure("CR, top 3", f"CR {_OF_THREE}", _top_three, _CR, is_default=False),
    "OP@3": Measure("OP, top 3", f"OP {_OF_THREE}", _top_three, _OP, is_default=False),
    "OR@3": Measure("OR, top 3", f"OR {_OF_THREE}", _top_three, _OR, is_default=False),
    "OF1@5": Measure(
        "OF1, top 5",
        "OF1 with the five highest scores of each image as predictions.",
        _top_five,
        _OF1,
        is_default=False,
    ),
    "coverage": Measure(
        "coverage",
        "Number of top-ranked labels needed to cover all present ones.",
        lambda scored, weights: coverage(*scored.inputs, weights=weights),
        _itself,
        higher_is_better=False,
        is_fraction=False,
        is_default=False,
    ),
    "subset_accuracy": Measure(
        "subset accuracy",
        "Fraction of images with every label correct.",
        lambda scored, weights: subset_accuracy(*scored.decisions, weights=weights),
        _itself,
        is_default=False,
    ),
    "hamming_loss": Measure(
        "Hamming loss",
        "Fraction of (image, label) entries that are wrong.",
        lambda scored, weights: hamming_loss(*scored.decisions, weights=weights),
        _itself,
        higher_is_better=False,
        is_default=False,
    ),
}
"""All measures by their names in files, in table order."""

DEFAULT_MEASURES = tuple(name for name, entry in MEASURES.items() if entry.is_default)


@dataclass(frozen=True, eq=False)
class Draws:
    """Measures of each bootstrap draw; NaN where undefined in a draw.

    Args:
        measures: ``[D]`` for each measure, by its name.
        average_precision: ``[L, D]``.
    """

    measures: dict[str, NDArray[np.float64]]
    average_precision: NDArray[np.float64]


def choose_measures(names: Iterable[str]) -> tuple[str, ...]:
    """Return measures in the order of `MEASURES`, mAP always among them.

    Args:
        names: Names of measures, or ``"all"``.

    Raises:
        ConfigError: There is no such measure.

    Examples:
        >>> choose_measures(["OF1", "CF1"])
        ('mAP', 'CF1', 'OF1')
    """
    chosen = {"mAP", *names}
    unknown = sorted(chosen - set(MEASURES) - {"all"})
    if unknown:
        raise ConfigError(f"no measure {unknown[0]!r}; {list_choices(unknown[0], ('all', *MEASURES))}")
    return tuple(name for name in MEASURES if "all" in chosen or name in chosen)


def measure(scored: ScoredImages, names: Iterable[str] = DEFAULT_MEASURES) -> dict[str, float]:
    """Compute measures of a model.

    Args:
        scored: Scores and targets.
        names: Names of measures (default: the most common dozen).

    Returns:
        Values of the defined measures by name, in the order of `MEASURES`.

    Raises:
        ConfigError: There is no such measure.

    Examples:
        >>> scored = ScoredImages.from_arrays([[0.9, 0.6], [0.8, 0.1]], [[1, 0], [1, 1]], labels=["cat", "dog"])
        >>> round(measure(scored)["mAP"], 4)
        0.75
    """
    found, _ = _compute(scored, names, None)
    return {name: value.item() for name, value in found.items() if not math.isnan(value)}


def bootstrap(
    scored: ScoredImages, names: Iterable[str] = DEFAULT_MEASURES, *, draws: int = 1000, seed: int = 0
) -> Draws:
    """Compute measures of a model on resampled images.

    Args:
        scored: Scores and targets.
        names: Names of measures (default: the most common dozen).
        draws: Number of draws.
        seed: Seed of the draws.

    Examples:
        >>> scores, targets = torch.rand(50, 2), torch.arange(100).reshape(50, 2) % 3 == 0
        >>> drawn = bootstrap(ScoredImages.from_arrays(scores, targets, labels=["cat", "dog"]), draws=10)
        >>> drawn.average_precision.shape, drawn.measures["mAP"].shape
        ((2, 10), (10,))
    """
    found, by_label = _compute(scored, names, draw_counts(len(scored), draws=draws, seed=seed))
    values = {name: value.double().numpy() for name, value in found.items()}
    return Draws(values, by_label.double().t().numpy())


def _compute(scored: ScoredImages, names: Iterable[str], weights: Tensor | None) -> tuple[dict[str, Tensor], Tensor]:
    """Return the measures and the average precision of each label; shared results are computed once."""
    results: dict[Compute, Any] = {}
    chosen = {name: MEASURES[name] for name in choose_measures(names)}
    for entry in chosen.values():
        if entry.compute not in results:
            results[entry.compute] = entry.compute(scored, weights)
    return {name: entry.part(results[entry.compute]) for name, entry in chosen.items()}, results[_average_precision]
