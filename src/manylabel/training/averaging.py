"""A moving average of the weights, judged and saved in their place."""

from lightning.pytorch.callbacks import WeightAveraging
from torch import Tensor, nn

from manylabel.errors import ConfigError

__all__ = ["MovingAverage", "average"]


class MovingAverage(WeightAveraging):
    """Keeps an exponential moving average of a task's weights; validation sees it, and so does the saved model.

    A long memory would keep the untrained weights in a short run, so the decay grows with the number of steps n, as
    min(decay, (1 + n) / (10 + n)).

    Args:
        decay: The share of the average that a step keeps, in the end.

    Examples:
        >>> MovingAverage(decay=0.9997).decay
        0.9997
    """

    def __init__(self, *, decay: float) -> None:
        if not 0 < decay < 1:
            raise ConfigError(f"decay must be above 0 and below 1, got {decay}; 0.9997 is the papers'")
        self.decay = decay
        super().__init__(avg_fn=self._average)

    def _average(self, averaged: Tensor, current: Tensor, num_averaged: Tensor | int) -> Tensor:
        steps = int(num_averaged)
        return average(averaged, current, keep=min(self.decay, (1 + steps) / (10 + steps)))

    def weights(self, task: nn.Module) -> nn.Module:
        """Return the module that holds the averaged weights; the task itself before there are any."""
        return task if self._average_model is None else self._average_model.module


def average(averaged: Tensor, current: Tensor, *, keep: float) -> Tensor:
    """Return the next average of a weight.

    Args:
        averaged: The average so far.
        current: The weight now.
        keep: The share of the average that stays.

    Returns:
        The average; the current value of what is not a number to average, such as an order of labels.

    Examples:
        >>> import torch
        >>> average(torch.tensor([1.0]), torch.tensor([0.0]), keep=0.9)
        tensor([0.9000])
        >>> average(torch.tensor(3), torch.tensor(5), keep=0.9)
        tensor(5)
    """
    # lerp leaves what never changes exactly as it is, which keep * a + (1 - keep) * a does not
    return averaged.lerp(current, 1 - keep) if averaged.is_floating_point() else current
