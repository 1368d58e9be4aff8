"""The measures of an evaluation: a table of names, meanings and metrics, and how their values are written.

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
"""Makes results of scores, and of how often each image counts; several measures may be parts of one."""


@dataclass(frozen=True)
class Measure:
    """A measure.

    Args:
        title: Its name in tables.
        meaning: Its meaning, in one sentence.
        compute: Computes it, perhaps together with others.
        part: Takes it from the result, ``[]`` or ``[D]``; NaN where it is undefined.
        higher_is_better: Whether more of it is better.
        is_fraction: Whether it lies in 0..1 and is written as per cent.
        is_default: Whether it is computed without being asked for.
    """

    title: str
    meaning: str
    compute: Compute
    part: Callable[[Any], Tensor]
    higher_is_better: bool = True
    is_fraction: bool = True
    is_default: bool = True

    def number(self, value: float, *, signed: bool = False) -> str:
        """Write a value: in per cent where it is a fraction.

        Examples:
            >>> MEASURES["mAP"].number(0.61234), MEASURES["mAP"].number(-0.0001, signed=True)
            ('61.2', '+0.0')
        """
        sign = "+" if signed else ""
        return f"{100 * value:{sign or '-'}z.1f}" if self.is_fraction else f"{value:{sign or '-'}z.2f}"

    def interval(self, estimate: Estimate, *, signed: bool = False) -> str:
        """Write the interval of an estimate; nothing where it has none.

        Examples:
            >>> MEASURES["mAP"].interval(Estimate(0.5, 0.4, 0.6)), MEASURES["mAP"].interval(Estimate(0.5))
            ('40.0 to 60.0', '')
        """
        if estimate.low is None or estimate.high is None:
            return ""
        return f"{self.number(estimate.low, signed=signed)} to {self.number(estimate.high, signed=signed)}"

    def with_interval(self, estimate: Estimate | None) -> str:
        r"""Write a value and its interval as one word that does not break; nothing for None.

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
_OF_THREE = "when the three highest scores of each image are the predictions."

MEASURES: dict[str, Measure] = {
    "mAP": Measure("mAP", "Mean over labels of the average precision.", _average_precision, _mean_over_labels),
    "CP": Measure("CP", "Precision, averaged over labels; 0 for a label never predicted.", _at_thresholds, _CP),
    "CR": Measure("CR", "Recall, averaged over labels.", _at_thresholds, _CR),
    "CF1": Measure("CF1", "Harmonic mean of CP and CR.", _at_thresholds, _CF1),
    "OP": Measure("OP", "Precision, over all labels together.", _at_thresholds, _OP),
    "OR": Measure("OR", "Recall, over all labels together.", _at_thresholds, _OR),
    "OF1": Measure("OF1", "Harmonic mean of OP and OR.", _at_thresholds, _OF1),
    "CF1@3": Measure("CF1, top 3", f"CF1 {_OF_THREE}", _top_three, _CF1),
    "OF1@3": Measure("OF1, top 3", f"OF1 {_OF_THREE} Zero-shot papers call it F1@3.", _top_three, _OF1),
    "ranking_loss": Measure(
        "ranking loss",
        "Fraction of (present, absent) pairs of labels in the wrong order, averaged over images.",
        lambda scored, weights: ranking_loss(*scored.inputs, weights=weights),
        _itself,
        higher_is_better=False,
    ),
    "one_error": Measure(
        "one-error",
        "Fraction of images whose highest score is of an absent label.",
        _one_error,
        _itself,
        higher_is_better=False,
    ),
    "calibration_error": Measure(
        "calibration error",
        "Mean distance of a score and how often it is right (ECE).",
        lambda scored, weights: calibration(*scored.inputs, weights=weights),
        attrgetter("error"),
        higher_is_better=False,
    ),
    "top_1": Measure(
        "top-1 accuracy", "Fraction of images whose highest score is of their one label.", _top_one, _itself
    ),
    "mAP_all_points": Measure(
        "mAP, VOC 2010", "mAP by VOC's all-point interpolation.", _all_points, _mean_over_labels, is_default=False
    ),
    "mAP_eleven_points": Measure(
        "mAP, VOC 2007", "mAP by VOC's older eleven points.", _eleven_points, _mean_over_labels, is_default=False
    ),
    "CP@3": Measure("CP, top 3", f"CP {_OF_THREE}", _top_three, _CP, is_default=False),
    "CR@3": Measure("CR, top 3", f"CR {_OF_THREE}", _top_three, _CR, is_default=False),
    "OP@3": Measure("OP, top 3", f"OP {_OF_THREE}", _top_three, _OP, is_default=False),
    "OR@3": Measure("OR, top 3", f"OR {_OF_THREE}", _top_three, _OR, is_default=False),
    "OF1@5": Measure("OF1, top 5", "OF1 of the five highest scores of each image.", _top_five, _OF1, is_default=False),
    "coverage": Measure(
        "coverage",
        "Number of labels to take from the top to have all that are present.",
        lambda scored, weights: coverage(*scored.inputs, weights=weights),
        _itself,
        higher_is_better=False,
        is_fraction=False,
        is_default=False,
    ),
    "subset_accuracy": Measure(
        "subset accuracy",
        "Fraction of images of which every label is right.",
        lambda scored, weights: subset_accuracy(*scored.decisions, weights=weights),
        _itself,
        is_default=False,
    ),
    "hamming_loss": Measure(
        "Hamming loss",
        "Fraction of all entries (image, label) that are wrong.",
        lambda scored, weights: hamming_loss(*scored.decisions, weights=weights),
        _itself,
        higher_is_better=False,
        is_default=False,
    ),
}
"""All measures by their names in files, in the order of tables."""

DEFAULT_MEASURES = tuple(name for name, entry in MEASURES.items() if entry.is_default)


@dataclass(frozen=True, eq=False)
class Draws:
    """The measures of each draw of a bootstrap; NaN where a draw leaves one undefined.

    Args:
        measures: ``[D]`` for each measure, by its name.
        average_precision: ``[L, D]``.
    """

    measures: dict[str, NDArray[np.float64]]
    average_precision: NDArray[np.float64]


def choose_measures(names: Iterable[str]) -> tuple[str, ...]:
    """Return measures in the order of `MEASURES`, mAP always among them.

    Args:
        names: The measures; ``"all"`` for all there are.

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
    """Measure a model.

    Args:
        scored: Scores and targets.
        names: The measures (default: the most common dozen).

    Returns:
        A value for each measure that is defined, by its name and in the order of `MEASURES`.

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
    """Measure a model on resampled images.

    Args:
        scored: Scores and targets.
        names: The measures (default: the most common dozen).
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
    """Return the measures, and the average precision of each label; what several share is computed once."""
    results: dict[Compute, Any] = {}
    chosen = {name: MEASURES[name] for name in choose_measures(names)}
    for entry in chosen.values():
        if entry.compute not in results:
            results[entry.compute] = entry.compute(scored, weights)
    return {name: entry.part(results[entry.compute]) for name, entry in chosen.items()}, results[_average_precision]
