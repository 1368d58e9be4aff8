"""Building blocks of recipe settings: data, model and training loop."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, TypeAlias

from msgspec import Meta

from manylabel.settings.schema import Count, Fraction, NotNegative, Positive, Whole, check, info

__all__ = ["DataSettings", "LoopSettings", "LossName", "ModelSettings", "RecipeSettings"]

FEWEST_EPOCHS, FEWEST_STEPS = 6, 200

LossName: TypeAlias = Literal["auto", "asymmetric", "binary_cross_entropy", "cross_entropy", "focal", "soft_margin"]


@dataclass(frozen=True, kw_only=True)
class DataSettings:
    """Training and validation set, and the run folder."""

    GROUP: ClassVar[str] = "Data and output"

    data: Annotated[str, info("Training set, such as labels.csv or voc:VOCdevkit/VOC2012.")]
    out: Annotated[Path, info("Run folder: settings, metrics, checkpoints and the model.", may_change=True)] = Path(
        "run"
    )
    val: Annotated[
        str | None, info("Validation set (default: the validation split of DATA, or a held-out fraction).")
    ] = None
    val_fraction: Annotated[
        Annotated[float, Meta(gt=0, lt=1)],
        info("Fraction held out for validation if DATA has no validation split; independent of --seed."),
    ] = 0.2
    limit: Annotated[Count | None, info("Maximum number of images per split, for quick tests.")] = None


@dataclass(frozen=True, kw_only=True)
class ModelSettings:
    """Backbone, head and loss."""

    GROUP: ClassVar[str] = "Model"

    head: Annotated[str, info("Classification head; see 'manylabel models list heads'.")] = "ml_decoder"
    head_settings: Annotated[Mapping[str, Any], info("Arguments of the head; as flags: --head.NAME VALUE.")] = field(
        default_factory=dict
    )
    backbone: Annotated[str, info("Backbone: any timm model; see 'manylabel models list backbones'.")] = (
        "offline:efficientnet_lite0"
    )
    pretrained: Annotated[bool, info("Initialise the backbone with pretrained weights.")] = True
    image_size: Annotated[Count | None, info("Input height and width in pixels (default: that of the backbone).")] = (
        None
    )
    loss: Annotated[
        LossName, info("Loss; auto: asymmetric, or cross_entropy for single-label data.", is_object=True)
    ] = "auto"
    loss_settings: Annotated[Mapping[str, Any], info("Arguments of the loss; as flags: --loss.NAME VALUE.")] = field(
        default_factory=dict
    )
    transform: Annotated[
        str | None, info("Training transform passed from Python (default: that of the recipe).", is_flag=False)
    ] = None
    single_label: Annotated[
        bool | None, info("Exactly one label per image: softmax scores (default: inferred from the dataset).")
    ] = None


@dataclass(frozen=True, kw_only=True)
class LoopSettings:
    """Training loop: optimizer, schedule, weight averaging, checkpoints and devices.

    Raises:
        ConfigError: A setting is invalid; the message lists all invalid ones.

    Examples:
        >>> LoopSettings(epochs=3).schedule
        'one_cycle'
    """

    GROUP: ClassVar[str] = "Training"

    epochs: Annotated[Count | None, info("Number of epochs (none: 6, or enough for 200 optimizer steps).")] = 20
    batch_size: Annotated[Count, info("Images per batch on each device.")] = 64
    learning_rate: Annotated[Positive | None, info("Peak learning rate (default: 1e-3).")] = None
    optimizer: Annotated[Literal["adam", "adamw", "sgd"], info("Optimizer.")] = "adamw"
    weight_decay: Annotated[NotNegative, info("Weight decay, except for biases and norms.")] = 1e-2
    betas: Annotated[
        tuple[Fraction, Fraction], info("Decay rates of the moments of Adam and AdamW (betas).", is_flag=False)
    ] = (
        0.9,
        0.999,
    )
    schedule: Annotated[Literal["one_cycle", "cosine", "constant"], info("Learning rate schedule.", is_flag=False)] = (
        "one_cycle"
    )
    warmup: Annotated[Fraction, info("Fraction of all steps used for learning rate warmup.")] = 0.2
    accumulate: Annotated[Count, info("Batches per optimizer step (gradient accumulation).")] = 1
    clip_gradients: Annotated[Positive | None, info("Maximum gradient norm (default: no clipping).", is_flag=False)] = (
        None
    )
    ema_decay: Annotated[Fraction, info("Decay of the exponential moving average of the weights; 0 disables it.")] = (
        0.9997
    )
    patience: Annotated[
        Count | None, info("Stop after this many epochs without a better validation mAP (default: never).")
    ] = None
    keep: Annotated[
        Literal["last", "best"],
        info("Weights to save: those of the last epoch, or of the epoch with the best validation mAP."),
    ] = "last"
    tune: Annotated[
        bool, info("Fit thresholds and calibration to the validation set, if it has at least 50 images.")
    ] = True
    seed: Annotated[Whole, info("Random seed for initialisation, shuffling, augmentation and dropout.")] = 0
    precision: Annotated[
        Literal["auto", "float32", "bfloat16", "float16"],
        info("Floating-point precision; auto: mixed precision on CUDA, else float32."),
    ] = "auto"
    device: Annotated[Literal["auto", "cpu", "cuda", "mps"], info("Torch device; auto: a GPU if available.")] = "auto"
    devices: Annotated[Count, info("Number of GPUs, or of CPU processes, for data-parallel training.")] = 1
    workers: Annotated[
        Whole | None,
        info("Image-decoding processes (default: half of the cores, or all with a GPU; at most 8).", may_change=True),
    ] = None
    checkpoint_minutes: Annotated[
        Positive, info("Minutes between checkpoints within an epoch.", may_change=True, is_flag=False)
    ] = 5.0
    logger: Annotated[
        Literal["auto", "none", "tensorboard", "wandb"],
        info("Logger in addition to metrics.csv; auto: TensorBoard if installed.", may_change=True),
    ] = "auto"

    def __post_init__(self) -> None:
        check(self)

    @property
    def peak_learning_rate(self) -> float:
        """Peak learning rate of the schedule."""
        return 1e-3 if self.learning_rate is None else self.learning_rate

    def num_epochs(self, steps_per_epoch: int) -> int:
        """Return the number of epochs for a number of optimizer steps per epoch.

        Examples:
            >>> LoopSettings(epochs=3).num_epochs(5)
            3
            >>> LoopSettings(epochs=None).num_epochs(100), LoopSettings(epochs=None).num_epochs(5)
            (6, 40)
        """
        return self.epochs or max(FEWEST_EPOCHS, -(-FEWEST_STEPS // steps_per_epoch))


@dataclass(frozen=True, kw_only=True)
class RecipeSettings(LoopSettings, ModelSettings, DataSettings):
    """Settings common to all recipes; each recipe adds its own and overrides defaults."""

    def num_views(self, num_images: int) -> int:  # noqa: ARG002 (used by recipes that cache views)
        """Return the number of cached views per training image."""
        return 1
