"""The parts that settings of recipes are composed of: the data, the model and the training loop."""

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
    """Images to train on and to validate on, and the folder of the run."""

    GROUP: ClassVar[str] = "Data and output"

    data: Annotated[str, info("Training images, as a data spec such as voc:PATH or csv:labels.csv.")]
    out: Annotated[Path, info("Folder of the run: settings, metrics, state and the model.", may_change=True)] = Path(
        "run"
    )
    val: Annotated[
        str | None, info("Validation images, as a data spec (default: the data's own split, or a held-out part).")
    ] = None
    val_fraction: Annotated[
        Annotated[float, Meta(gt=0, lt=1)],
        info("Fraction to hold out where the data have no validation split; the same images for any seed."),
    ] = 0.2
    limit: Annotated[Count | None, info("Maximum number of images of each split, for a quick try.")] = None


@dataclass(frozen=True, kw_only=True)
class ModelSettings:
    """Backbone, head and loss."""

    GROUP: ClassVar[str] = "Model"

    head: Annotated[str, info("Head; 'manylabel list heads' shows all.")] = "ml_decoder"
    head_settings: Annotated[Mapping[str, Any], info("Arguments of the head; as a flag: --head.NAME VALUE.")] = field(
        default_factory=dict
    )
    backbone: Annotated[str, info("timm model, or one of the extra 'offline'; see 'manylabel list backbones'.")] = (
        "offline:efficientnet_lite0"
    )
    pretrained: Annotated[bool, info("Initialise the backbone from pretrained weights.")] = True
    image_size: Annotated[Count | None, info("Height and width of images in pixels (default: the backbone's own).")] = (
        None
    )
    loss: Annotated[LossName, info("Loss; auto is asymmetric, or cross_entropy where every image has one label.")] = (
        "auto"
    )
    loss_settings: Annotated[Mapping[str, Any], info("Arguments of the loss; as a flag: --loss.NAME VALUE.")] = field(
        default_factory=dict
    )
    single_label: Annotated[
        bool | None, info("Every image has exactly one label: softmax scores (default: as the data say).")
    ] = None


@dataclass(frozen=True, kw_only=True)
class LoopSettings:
    """Training loop: optimizer, schedule, averaging, checkpoints and the machine.

    Raises:
        ConfigError: A setting is wrong; the message lists all that are.

    Examples:
        >>> LoopSettings(epochs=3).schedule
        'one_cycle'
    """

    GROUP: ClassVar[str] = "Training"

    epochs: Annotated[Count | None, info("Number of epochs (none: 6, or enough for 200 optimizer steps).")] = 20
    batch_size: Annotated[Count, info("Images per step, on each device.")] = 64
    learning_rate: Annotated[Positive | None, info("Peak learning rate (default: that of the head, or 1e-3).")] = None
    optimizer: Annotated[Literal["adam", "adamw", "sgd"], info("Optimizer.")] = "adamw"
    weight_decay: Annotated[NotNegative, info("Weight decay; never on biases and norms.")] = 1e-2
    betas: Annotated[tuple[Fraction, Fraction], info("Decay rates of Adam's and AdamW's moments.", is_flag=False)] = (
        0.9,
        0.999,
    )
    schedule: Annotated[Literal["one_cycle", "cosine", "constant"], info("Schedule of the learning rate.")] = (
        "one_cycle"
    )
    warmup: Annotated[Fraction, info("Fraction of all steps in which the learning rate rises.")] = 0.2
    accumulate: Annotated[Count, info("Batches whose gradients are accumulated before a step.")] = 1
    clip_gradients: Annotated[Positive | None, info("Maximum norm of the gradient (none: no limit).")] = None
    ema_decay: Annotated[
        Fraction, info("Decay of the moving average of the weights, which is saved; 0 does not average.")
    ] = 0.9997
    patience: Annotated[
        Count | None, info("Stop after this many epochs without a better validation mAP (none: never).")
    ] = None
    keep: Annotated[
        Literal["last", "best"], info("Epoch whose weights become the model; the best is chosen on the validation set.")
    ] = "last"
    seed: Annotated[Whole, info("Seed of initialisation, order of images, augmentation and dropout.")] = 0
    precision: Annotated[
        Literal["auto", "float32", "bfloat16", "float16"],
        info("Precision; auto takes half precision where the device is fast in it."),
    ] = "auto"
    device: Annotated[Literal["auto", "cpu", "cuda", "mps"], info("Device; auto takes a GPU if there is one.")] = "auto"
    devices: Annotated[Count, info("Number of GPUs, or of processes on a CPU, that train together.")] = 1
    workers: Annotated[
        Whole | None, info("Processes that decode images (default: one per core, up to 8).", may_change=True)
    ] = None
    checkpoint_minutes: Annotated[
        Positive, info("Save the state this often within an epoch, besides at its end.", may_change=True)
    ] = 5.0
    logger: Annotated[
        Literal["auto", "none", "tensorboard", "wandb"],
        info("Curves besides metrics.csv; auto takes TensorBoard if it is installed.", may_change=True),
    ] = "auto"

    def __post_init__(self) -> None:
        check(self)

    @property
    def peak_learning_rate(self) -> float:
        """Peak of the schedule."""
        return 1e-3 if self.learning_rate is None else self.learning_rate

    def num_epochs(self, steps_per_epoch: int) -> int:
        """Return the number of epochs, where one takes so many steps of the optimizer.

        Examples:
            >>> LoopSettings(epochs=3).num_epochs(5)
            3
            >>> LoopSettings(epochs=None).num_epochs(100), LoopSettings(epochs=None).num_epochs(5)
            (6, 40)
        """
        return self.epochs or max(FEWEST_EPOCHS, -(-FEWEST_STEPS // steps_per_epoch))


@dataclass(frozen=True, kw_only=True)
class RecipeSettings(LoopSettings, ModelSettings, DataSettings):
    """Settings that all recipes share; each adds its own and has its own defaults."""

    def num_views(self, num_images: int) -> int:  # noqa: ARG002 (recipes that cache views look at it)
        """Return the number of views of each training image that are cached."""
        return 1
