"""Metrics of an evaluation: a table of names, definitions and functions, and the format of their values.

A new metric is one function in `manylabel.metrics` and one line in `METRICS`.

Letters in shape comments: N images, L labels, D draws.
"""

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from manylabel import metrics
from manylabel.errors import ConfigError, list_choices
from manylabel.evaluation.bootstrap import Estimate, bootstrap_weights
from manylabel.evaluation.scores import ScoredImages

Compute = Callable[[ScoredImages, Tensor], Any]
"""Computes a result from scores and image weights ``[1 + D, N]``; several metrics may be parts of one result."""


@dataclass(frozen=True)
class Metric:
    """A metric.

    Args:
        title: Name in tables.
        meaning: Definition in one sentence.
        compute: Function that computes it, possibly together with others.
        better: Whether higher or lower values are better.
        part: Function that extracts it from the result, ``[1 + D]`` (default: the result itself).
        is_fraction: Whether it is in 0..1 and formatted in per cent.
    """

    title: str
    meaning: str
    compute: Compute
    better: Literal["higher", "lower"] = "higher"
    part: Callable[[Any], Tensor] = lambda result: result
    is_fraction: bool = True

    def number(self, value: float, *, signed: bool = False) -> str:
        """Format a value, in per cent if it is a fraction.

        Examples:
            >>> METRICS["mAP"].number(0.61234), METRICS["mAP"].number(-0.0001, signed=True)
            ('61.2', '0.0')
        """
        shown = f"{100 * value:z.1f}" if self.is_fraction else f"{value:z.2f}"
        return f"+{shown}" if signed and float(shown) > 0 else shown

    def interval(self, estimate: Estimate, *, signed: bool = False) -> str:
        """Format the interval of an estimate; empty if it has none.

        Examples:
            >>> METRICS["mAP"].interval(Estimate(0.5, 0.4, 0.6)), METRICS["mAP"].interval(Estimate(0.5))
            ('40.0 to 60.0', '')
        """
        if estimate.low is None or estimate.high is None:
            return ""
        return f"{self.number(estimate.low, signed=signed)} to {self.number(estimate.high, signed=signed)}"

    def with_interval(self, estimate: Estimate | None) -> str:
        r"""Format a value and its interval without line breaks; empty for None.

        Examples:
            >>> ascii(METRICS["mAP"].with_interval(Estimate(0.5, 0.4, 0.6)))
            "'50.0\\xa0(40.0\\u2013\\u206060.0)'"
        """
        if estimate is None:
            return ""
        bounds = self.interval(estimate).replace(" to ", "\u2013\u2060")  # a word joiner
        return self.number(estimate.value) + (f"\u00a0({bounds})" if bounds else "")


def _of_scores(function: Callable[..., Any], **settings: object) -> Compute:
    return lambda scored, weights: function(*scored.inputs, weights=weights, **settings)


def _of_decisions(function: Callable[..., Any]) -> Compute:
    return lambda scored, weights: function(*scored.decisions, weights=weights)


def _top_one(scored: ScoredImages, weights: Tensor) -> Tensor:
    accuracy = 1 - metrics.one_error(*scored.inputs, weights=weights)
    return accuracy if scored.has_one_label_each else torch.full_like(accuracy, torch.nan)


def _interpolated(points: str) -> Compute:
    return _of_scores(metrics.average_precision, interpolation=points)


def _loss(title: str, function: Callable[..., Any], meaning: str, of: Callable[..., Compute] = _of_scores) -> Metric:
    """Return a metric of which lower values are better."""
    return Metric(title, meaning, of(function), "lower")


def _mean(title: str, meaning: str, compute: Compute) -> Metric:
    """Return the mean of a metric over labels."""
    return Metric(title, meaning, compute, part=lambda values: values.nanmean(dim=-1))


_AVERAGE_PRECISION = _of_scores(metrics.average_precision)
_PRECISION_RECALL = {
    None: _of_decisions(metrics.precision_recall),
    3: _of_scores(metrics.precision_recall, top_k=3),
    5: _of_scores(metrics.precision_recall, top_k=5),
}


def _average(name: str, meaning: str = "", *, top_k: int | None = None) -> Metric:
    """Return an average of precision and recall, of decisions by threshold or of the highest scores of each image."""
    title = name if top_k is None else f"{name}, top {top_k}"
    meaning = meaning or f"{name} with the {top_k} highest scores of each image as predictions."
    return Metric(title, meaning, _PRECISION_RECALL[top_k], part=lambda result: result.averages[name])


METRICS: dict[str, Metric] = {
    "mAP": _mean("mAP", "Mean average precision over labels.", _AVERAGE_PRECISION),
    "CP": _average("CP", "Precision averaged over labels; 0 for labels never predicted."),
    "CR": _average("CR", "Recall averaged over labels."),
    "CF1": _average("CF1", "Harmonic mean of CP and CR."),
    "OP": _average("OP", "Overall precision, all labels pooled."),
    "OR": _average("OR", "Overall recall, all labels pooled."),
    "OF1": _average("OF1", "Harmonic mean of OP and OR."),
    "CF1@3": _average("CF1", top_k=3),
    "OF1@3": _average("OF1", top_k=3),
    "ranking_loss": _loss("ranking loss", metrics.ranking_loss, "Fraction of label pairs ranked in the wrong order."),
    "one_error": _loss("one-error", metrics.one_error, "Fraction of images whose top-ranked label is absent."),
    "calibration_error": _loss(
        "calibration error", metrics.calibration_error, "Expected gap between score and frequency of the label (ECE)."
    ),
    "top_1": Metric("top-1 accuracy", "Fraction of images whose top-ranked label is correct.", _top_one),
    "mAP_all_points": _mean("mAP, VOC 2010", "mAP with all-point interpolation.", _interpolated("all_points")),
    "mAP_eleven_points": _mean("mAP, VOC 2007", "mAP with 11-point interpolation.", _interpolated("eleven_points")),
    **{f"{name}@3": _average(name, top_k=3) for name in ("CP", "CR", "OP", "OR")},
    "OF1@5": _average("OF1", top_k=5),
    "coverage": replace(
        _loss("coverage", metrics.coverage, "Number of top-ranked labels needed to cover all present ones."),
        is_fraction=False,
    ),
    "subset_accuracy": Metric(
        "subset accuracy", "Fraction of images with every label correct.", _of_decisions(metrics.subset_accuracy)
    ),
    "hamming_loss": _loss(
        "Hamming loss", metrics.hamming_loss, "Fraction of wrong entries (image, label).", _of_decisions
    ),
}
"""All metrics by their names in files, in table order."""

DEFAULT_METRICS = tuple(METRICS)[: list(METRICS).index("top_1") + 1]
"""The most common ones, computed by default."""


@dataclass(frozen=True, eq=False)
class Resampled:
    """Metrics of the images themselves, then of each bootstrap draw; NaN where undefined.

    Args:
        metrics: ``[1 + D]`` for each metric, by its name.
        average_precision: ``[L, 1 + D]``.
        weights: ``[1 + D, N]``, how often each image was drawn.
    """

    metrics: dict[str, NDArray[np.float64]]
    average_precision: NDArray[np.float64]
    weights: Tensor


def choose_metrics(names: Iterable[str]) -> tuple[str, ...]:
    """Return metrics in the order of `METRICS`, mAP always among them.

    Args:
        names: Names of metrics, or ``"all"``.

    Raises:
        ConfigError: There is no such metric.

    Examples:
        >>> choose_metrics(["OF1", "CF1"])
        ('mAP', 'CF1', 'OF1')
    """
    chosen = {"mAP", *names}
    unknown = sorted(chosen - set(METRICS) - {"all"})
    if unknown:
        raise ConfigError(f"no metric {unknown[0]!r}; {list_choices(unknown[0], ('all', *METRICS))}")
    return tuple(name for name in METRICS if "all" in chosen or name in chosen)


def compute_metrics(scored: ScoredImages, names: Iterable[str] = DEFAULT_METRICS) -> dict[str, float]:
    """Compute metrics of a model, without intervals.

    Args:
        scored: Scores and targets.
        names: Names of metrics (default: the most common dozen).

    Returns:
        Values of the defined metrics by name, in the order of `METRICS`.

    Raises:
        ConfigError: There is no such metric.

    Examples:
        >>> scored = ScoredImages.from_arrays([[0.9, 0.6], [0.8, 0.1]], [[1, 0], [1, 1]], labels=["cat", "dog"])
        >>> round(compute_metrics(scored)["mAP"], 4)
        0.75
    """
    values = bootstrap(scored, names, draws=0).metrics
    return {name: float(value[0]) for name, value in values.items() if not math.isnan(value[0])}


def bootstrap(
    scored: ScoredImages, names: Iterable[str] = DEFAULT_METRICS, *, draws: int = 1000, seed: int = 0
) -> Resampled:
    """Compute metrics of a model, and again on resampled images.

    Args:
        scored: Scores and targets.
        names: Names of metrics (default: the most common dozen).
        draws: Number of draws.
        seed: Seed of the draws.

    Raises:
        ConfigError: There is no such metric.

    Examples:
        >>> scores, targets = torch.rand(50, 2), torch.arange(100).reshape(50, 2) % 3 == 0
        >>> values = bootstrap(ScoredImages.from_arrays(scores, targets, labels=["cat", "dog"]), draws=10)
        >>> values.average_precision.shape, values.metrics["mAP"].shape
        ((2, 11), (11,))
    """
    weights = bootstrap_weights(len(scored), draws=draws, seed=seed)
    chosen = {name: METRICS[name] for name in choose_metrics(names)}
    results = {compute: compute(scored, weights) for compute in dict.fromkeys(each.compute for each in chosen.values())}
    values = {name: metric.part(results[metric.compute]).double().numpy() for name, metric in chosen.items()}
    return Resampled(values, results[_AVERAGE_PRECISION].double().t().numpy(), weights)
