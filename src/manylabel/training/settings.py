"""What every training loop can be set to, whatever it trains."""

from dataclasses import dataclass
from typing import Annotated, Literal

from manylabel.training.config import check
from manylabel.training.fields import Rule

__all__ = ["AtLeastOne", "LoopSettings", "NotNegative", "Positive", "Share"]

FEWEST_EPOCHS, FEWEST_STEPS = 6, 200

AtLeastOne = Rule(lambda value: value >= 1, "at least 1")
NotNegative = Rule(lambda value: value >= 0, "0 or more")
Positive = Rule(lambda value: value > 0, "above 0")
Share = Rule(lambda value: 0 <= value < 1, "at least 0 and below 1")
_Shares = Rule(lambda value: len(value) == 2 and all(0 <= one < 1 for one in value), "two numbers from 0 to below 1")


@dataclass(frozen=True, kw_only=True)
class LoopSettings:
    """Settings of the loop: optimizer, schedule, averaging, checkpoints and the machine.

    Raises:
        ConfigError: A setting is wrong; the message lists all that are.

    Examples:
        >>> LoopSettings(epochs=3).schedule
        'one_cycle'
    """

    epochs: Annotated[int | None, AtLeastOne] = 20
    """How often every picture is seen; when None, 6 times, or more often where that would be less than 200 steps."""

    batch_size: Annotated[int, AtLeastOne] = 64
    """Pictures per step, on each device."""

    accumulate: Annotated[int, AtLeastOne] = 1
    """Batches whose gradients are added up before a step: the effect of a larger batch without its memory."""

    optimizer: Literal["adam", "adamw", "sgd"] = "adamw"
    """What turns gradients into steps."""

    learning_rate: Annotated[float, Positive] = 1e-3
    """The largest step size of the schedule."""

    weight_decay: Annotated[float, NotNegative] = 1e-2
    """How strongly weights are drawn to zero; biases and norms never are."""

    betas: Annotated[tuple[float, float], _Shares] = (0.9, 0.999)
    """How long Adam and AdamW remember gradients and their squares."""

    momentum: Annotated[float, Share] = 0.9
    """How long SGD remembers gradients."""

    schedule: Literal["one_cycle", "cosine", "constant"] = "one_cycle"
    """How the learning rate rises and falls: see `manylabel.training.schedules`."""

    warmup: Annotated[float, Share] = 0.2
    """The share of all steps in which the learning rate rises."""

    clip_gradients: Annotated[float | None, Positive] = None
    """The largest length of the gradient; longer ones are shortened to it. None leaves them as they are."""

    ema_decay: Annotated[float, Share] = 0.9997
    """Judge and save a moving average of the weights that keeps this share each step, once it had time to; 0 does not
    average."""

    patience: Annotated[int | None, AtLeastOne] = None
    """Stop after this many epochs in a row without a better validation mAP; None trains all epochs."""

    keep: Literal["last", "best"] = "last"
    """Which epoch's weights become the model. The best one was chosen on the validation pictures, so its mAP on them
    flatters."""

    seed: Annotated[int, NotNegative] = 0
    """Fixes the start, the order of the pictures, their augmentation and dropout."""

    precision: Literal["auto", "float32", "bfloat16", "float16"] = "auto"
    """The numbers to compute in; auto takes half precision where the device is fast in it."""

    device: Literal["auto", "cpu", "cuda", "mps"] = "auto"
    """Where to compute; auto takes a GPU if there is one."""

    devices: Annotated[int, AtLeastOne] = 1
    """How many GPUs, or processes on a CPU, train together."""

    workers: Annotated[int | None, NotNegative] = None
    """Processes that decode pictures; as many as there are cores, up to 8, when None."""

    checkpoint_minutes: Annotated[float, Positive] = 5.0
    """Save the state of the run this often within an epoch, to resume from; it is saved at every epoch's end, too."""

    logger: Literal["auto", "none", "tensorboard", "wandb"] = "auto"
    """Where curves go beside metrics.csv; auto takes TensorBoard if it is installed."""

    def __post_init__(self) -> None:
        check(self)

    def num_epochs(self, steps_per_epoch: int) -> int:
        """Return how often every picture is seen, where once takes so many steps of the optimizer.

        Examples:
            >>> LoopSettings(epochs=3).num_epochs(5)
            3
            >>> LoopSettings(epochs=None).num_epochs(100), LoopSettings(epochs=None).num_epochs(5)
            (6, 40)
        """
        return self.epochs or max(FEWEST_EPOCHS, -(-FEWEST_STEPS // steps_per_epoch))
