"""Any metric of this package as a torchmetrics class, accumulated over batches and processes."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torchmetrics import Metric
from torchmetrics.utilities import dim_zero_cat

from manylabel.errors import ConfigError
from manylabel.metrics.decisions import PrecisionRecall
from manylabel.metrics.inputs import check


class AccumulatedMetric(Metric):
    """A torchmetrics metric that collects scores and targets and calls a function with all of them at once.

    Several in one `torchmetrics.MetricCollection` share their state.

    Args:
        function: A metric function of this package, such as `ranking_loss`.
        **settings: Its settings, such as ``top_k=3``.

    Examples:
        >>> from manylabel.metrics import mean_average_precision, precision_recall
        >>> metric = AccumulatedMetric(mean_average_precision)
        >>> metric.update(torch.tensor([[0.9, 0.2]]), torch.tensor([[1, 0]]))
        >>> metric.update(torch.tensor([[0.3, 0.1]]), torch.tensor([[0, 1]]))
        >>> metric.compute()
        tensor(0.7500)
        >>> metric = AccumulatedMetric(precision_recall, top_k=1)
        >>> metric.update(torch.tensor([[0.9, 0.8]]), torch.tensor([[1, 1]]))
        >>> {name: round(value.item(), 2) for name, value in metric.compute().items()}
        {'CP': 0.5, 'CR': 0.5, 'CF1': 0.5, 'OP': 1.0, 'OR': 0.5, 'OF1': 0.67}
    """

    is_differentiable = False
    full_state_update = False
    scores: list[Tensor] | Tensor
    targets: list[Tensor] | Tensor
    known: list[Tensor] | Tensor

    def __init__(self, function: Callable[..., Any], **settings: object) -> None:
        super().__init__()
        self.function = function
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

    def compute(self) -> Any:  # noqa: ANN401 (a tensor, or several by name)
        """Compute the metric over all batches; precision, recall and F1 by the names of the papers.

        Raises:
            ConfigError: No batch was added yet.
        """
        if not len(self.scores):
            raise ConfigError("there is nothing to compute yet; call update(scores, targets) first")
        known = dim_zero_cat(self.known)
        inputs = (dim_zero_cat(self.scores), dim_zero_cat(self.targets), None if known.all() else known)
        result = self.function(*inputs, **self.settings)
        return result.averages if isinstance(result, PrecisionRecall) else result
