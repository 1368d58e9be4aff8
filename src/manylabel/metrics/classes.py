"""Metrics as torchmetrics classes: they collect scores and targets over batches and over processes.

Several of them in one `torchmetrics.MetricCollection` share what they collect.
"""

from collections.abc import Callable
from typing import Any, ClassVar

import torch
from torch import Tensor
from torchmetrics import Metric
from torchmetrics.utilities import dim_zero_cat

from manylabel.errors import ConfigError
from manylabel.metrics.average_precision import Interpolation, check_interpolation, mean_average_precision
from manylabel.metrics.calibration import Calibration, calibration
from manylabel.metrics.decisions import PrecisionRecall, hamming_loss, precision_recall, subset_accuracy
from manylabel.metrics.inputs import Threshold, check
from manylabel.metrics.ranking import coverage, one_error, ranking_loss, top_one_accuracy

__all__ = [
    "AccumulatedMetric",
    "CalibrationError",
    "Coverage",
    "HammingLoss",
    "MeanAveragePrecision",
    "OneError",
    "PrecisionRecallF1",
    "RankingLoss",
    "SubsetAccuracy",
    "TopOneAccuracy",
]


class AccumulatedMetric(Metric):
    """Collects scores, targets and what is known; `compute` calls the metric with all of it at once.

    Args:
        **settings: Settings of the function.
    """

    is_differentiable = False
    full_state_update = False
    higher_is_better = True
    function: ClassVar[Callable[..., Any]]
    scores: list[Tensor] | Tensor
    targets: list[Tensor] | Tensor
    known: list[Tensor] | Tensor

    def __init__(self, **settings: object) -> None:
        super().__init__()
        self.settings = settings
        for name in ("scores", "targets", "known"):
            self.add_state(name, default=[], dist_reduce_fx="cat")

    def update(self, scores: Tensor, targets: Tensor, known: Tensor | None = None) -> None:
        """Add a batch.

        Args:
            scores: ``[B, L]``.
            targets: ``[B, L]``, 1 where a label is present, else 0.
            known: ``[B, L]``, true where the target is known (default: all of it).
        """
        given = check(scores, targets, known)
        for name, values in (
            ("scores", given.scores),
            ("targets", given.positives),
            ("known", torch.ones_like(given.positives) if known is None else known),
        ):
            getattr(self, name).append(values)

    def compute(self) -> Any:  # noqa: ANN401 (a tensor, or in one class several by name)
        """Compute the metric over all batches.

        Raises:
            ConfigError: There is none yet.
        """
        if not len(self.scores):
            raise ConfigError("there is nothing to compute yet; call update(scores, targets) first")
        known = dim_zero_cat(self.known)
        given = (dim_zero_cat(self.scores), dim_zero_cat(self.targets), None if known.all() else known)
        return type(self).function(*given, **self.settings)


class MeanAveragePrecision(AccumulatedMetric):
    """`mean_average_precision` of all batches.

    Args:
        interpolation: See `average_precision`.

    Examples:
        >>> metric = MeanAveragePrecision()
        >>> metric.update(torch.tensor([[0.9, 0.2]]), torch.tensor([[1, 0]]))
        >>> metric.update(torch.tensor([[0.3, 0.1]]), torch.tensor([[0, 1]]))
        >>> metric.compute()
        tensor(0.7500)
    """

    function = staticmethod(mean_average_precision)

    def __init__(self, *, interpolation: Interpolation = "none") -> None:
        check_interpolation(interpolation)
        super().__init__(interpolation=interpolation)


class PrecisionRecallF1(AccumulatedMetric):
    """CP, CR, CF1, OP, OR and OF1 by `precision_recall`.

    Args:
        threshold: See `precision_recall`.
        top_k: See `precision_recall`.

    Examples:
        >>> metric = PrecisionRecallF1(top_k=1)
        >>> metric.update(torch.tensor([[0.9, 0.8]]), torch.tensor([[1, 1]]))
        >>> {name: round(value.item(), 2) for name, value in metric.compute().items()}
        {'CP': 0.5, 'CR': 0.5, 'CF1': 0.5, 'OP': 1.0, 'OR': 0.5, 'OF1': 0.67}
    """

    function = staticmethod(precision_recall)

    def __init__(self, *, threshold: Threshold | None = None, top_k: int | None = None) -> None:
        super().__init__(threshold=threshold, top_k=top_k)

    def compute(self) -> dict[str, Tensor]:
        """Compute all six."""
        result: PrecisionRecall = super().compute()
        return {
            "CP": result.class_precision,
            "CR": result.class_recall,
            "CF1": result.class_f1,
            "OP": result.overall_precision,
            "OR": result.overall_recall,
            "OF1": result.overall_f1,
        }


class SubsetAccuracy(AccumulatedMetric):
    """`subset_accuracy` of all batches.

    Args:
        threshold: Predict labels whose score reaches it; one number or one for each label.
    """

    function = staticmethod(subset_accuracy)

    def __init__(self, *, threshold: Threshold = 0.5) -> None:
        super().__init__(threshold=threshold)


class HammingLoss(AccumulatedMetric):
    """`hamming_loss` of all batches.

    Args:
        threshold: Predict labels whose score reaches it; one number or one for each label.
    """

    higher_is_better = False
    function = staticmethod(hamming_loss)

    def __init__(self, *, threshold: Threshold = 0.5) -> None:
        super().__init__(threshold=threshold)


class CalibrationError(AccumulatedMetric):
    """The expected error of `calibration` over all batches.

    Args:
        num_bins: Number of bins.
    """

    higher_is_better = False
    function = staticmethod(calibration)

    def __init__(self, *, num_bins: int = 15) -> None:
        super().__init__(num_bins=num_bins)

    def compute(self) -> Tensor:
        """Compute the expected calibration error."""
        bins: Calibration = super().compute()
        return bins.error


class RankingLoss(AccumulatedMetric):
    """`ranking_loss` of all batches."""

    higher_is_better = False
    function = staticmethod(ranking_loss)


class Coverage(AccumulatedMetric):
    """`coverage` of all batches."""

    higher_is_better = False
    function = staticmethod(coverage)


class OneError(AccumulatedMetric):
    """`one_error` of all batches."""

    higher_is_better = False
    function = staticmethod(one_error)


class TopOneAccuracy(AccumulatedMetric):
    """`top_one_accuracy` of all batches."""

    function = staticmethod(top_one_accuracy)
