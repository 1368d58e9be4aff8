"""Settings of each recipe, and presets of the papers."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal

from msgspec import Meta

from manylabel.errors import ConfigError
from manylabel.settings.parts import LossName, RecipeSettings
from manylabel.settings.schema import Count, Fraction, NotNegative, Positive, Whole, info

__all__ = ["PRESETS", "RECIPE_SETTINGS", "Finetune", "Probe", "RepresentationMixup", "SelfDistillation", "ZeroShot"]

MOST_VIEWS, VIEWS_IN_ALL = 4, 25_000

_Out = Annotated[Path, info("Run folder: settings, metrics, checkpoints and the model.", may_change=True)]
_Epochs = Annotated[Count | None, info("Number of epochs (default: 6, or enough for 200 optimizer steps).")]


@dataclass(frozen=True, kw_only=True)
class Probe(RecipeSettings):
    """Train a head on cached features of a frozen backbone, in minutes on a CPU. Start here.

    Examples:
        >>> probe = Probe(data="scenes:100")
        >>> probe.head, probe.num_views(5_000), probe.num_views(100_000)
        ('ml_decoder', 4, 1)
    """

    GROUP = "Recipe"

    out: _Out = Path("runs/probe")
    epochs: _Epochs = None
    learning_rate: Annotated[
        Positive | None, info("Peak learning rate (default: 2e-3; 5e-4 for hsq, which diverges above that).")
    ] = None
    weight_decay: Annotated[NotNegative, info("Weight decay, except for biases and norms.")] = 0.3
    cache: Annotated[
        bool, info("Cache features on disk (default), or run the backbone in every epoch.", is_flag=False)
    ] = True
    views: Annotated[
        Count | None, info("Cached random crops per training image (default: up to 4, at most 25,000 in total).")
    ] = None
    feature_dropout: Annotated[Fraction, info("Dropout rate of feature channels.", is_flag=False)] = 0.3

    def num_views(self, num_images: int) -> int:
        """Return the number of cached views per training image."""
        return self.views or max(1, min(MOST_VIEWS, VIEWS_IN_ALL // num_images))


@dataclass(frozen=True, kw_only=True)
class Finetune(RecipeSettings):
    """Train the top of the backbone and the head on cached maps, or the whole network on images.

    Examples:
        >>> Finetune(data="scenes:100", **PRESETS["finetune"]["ml_decoder"]).epochs
        40
    """

    GROUP = "Recipe"

    out: _Out = Path("runs/finetune")
    epochs: Annotated[Count, info("Number of epochs.")] = 10
    train_from: Annotated[
        str,
        info("Stage or module after which the backbone is trained (3, blocks.4); auto: by cost; all: all of it."),
    ] = "auto"
    learning_rate: Annotated[Positive, info("Peak learning rate of the head.")] = 1e-3
    backbone_scale: Annotated[
        Positive | None,
        info("Learning rate of the backbone relative to the head (default: 0.25; 0.05 for --train-from all)."),
    ] = None
    ema_decay: Annotated[Fraction, info("Decay of the exponential moving average of the weights; 0 disables it.")] = (
        0.999
    )
    start_from: Annotated[
        str | None, info("Trained model to start from, such as a run folder; sets the backbone, head and image size.")
    ] = None
    start_fraction: Annotated[
        Fraction,
        info("Weight of --start-from in its average with the fine-tuned model; 0.5 often beats both."),
    ] = 0.0
    freeze_epochs: Annotated[Whole, info("Number of initial epochs with a frozen backbone.", is_flag=False)] = 0
    keep_statistics: Annotated[
        bool | None,
        info("Freeze the batch-norm statistics of the backbone (default: if it is pretrained).", is_flag=False),
    ] = None
    augment: Annotated[bool, info("Augment training images: flip, Cutout, RandAugment; mirror cached maps.")] = True

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.start_fraction and self.start_from is None:
            raise ConfigError(
                f"start_fraction is {self.start_fraction}, but start_from is not set; set it to a trained model"
            )

    @property
    def keeps_statistics(self) -> bool:
        """True if the batch-norm statistics of the backbone stay frozen."""
        if self.keep_statistics is not None:
            return self.keep_statistics
        return self.pretrained or self.start_from is not None


@dataclass(frozen=True, kw_only=True)
class RepresentationMixup(RecipeSettings):
    """Train a linear head on a mixture of early and final features of a frozen backbone (RM).

    Examples:
        >>> RepresentationMixup(data="scenes:100").head_settings
        {'stages': [0, -1]}
    """

    GROUP = "Recipe"

    out: _Out = Path("runs/representation_mixup")
    head: Annotated[Literal["rm"], info("Head.", is_flag=False)] = "rm"
    head_settings: Annotated[
        Mapping[str, Any], info("Arguments of the head; as flags: --head.stages [1,-1] for RM@2.")
    ] = field(default_factory=lambda: {"stages": [0, -1]})
    loss: Annotated[LossName, info("Loss.", is_object=True)] = "soft_margin"
    epochs: Annotated[Count, info("Number of epochs.")] = 30
    optimizer: Annotated[Literal["adam", "adamw", "sgd"], info("Optimizer.")] = "sgd"
    learning_rate: Annotated[Positive, info("Peak learning rate.")] = 0.1
    weight_decay: Annotated[NotNegative, info("Weight decay, except for biases and norms.")] = 0.0
    warmup: Annotated[Fraction, info("Fraction of all steps used for learning rate warmup.")] = 0.3
    ema_decay: Annotated[
        Fraction, info("Decay of the exponential moving average of the weights; 0 disables it, as in the paper.")
    ] = 0.0


@dataclass(frozen=True, kw_only=True)
class SelfDistillation(RecipeSettings):
    """Train teachers on subsets of the labels in parallel, then distil them into a student (CPSD).

    Examples:
        >>> SelfDistillation(data="scenes:100", **PRESETS["self_distillation"]["cpsd"]).epochs
        80
    """

    GROUP = "Recipe"

    out: _Out = Path("runs/self_distillation")
    training: Annotated[
        Literal["probe", "finetune"],
        info("Train on cached features of a frozen backbone (probe), or on images (finetune)."),
    ] = "probe"
    partition: Annotated[
        Literal["both", "co", "dis", "random", "whole"],
        info("Partition labels by co-occurrence (co), by its opposite (dis), both, at random, or not at all (whole)."),
    ] = "both"
    k: Annotated[Count, info("Number of subsets per partition; each has one teacher.")] = 5
    tau: Annotated[
        Positive, info("Temperature of the co-occurrence rates (tau in CPSD); larger values favour rare pairs.")
    ] = 2.0
    teacher_images: Annotated[
        Literal["all", "own"],
        info("Training images of a teacher: all, or own: only those with one of its labels, which lowers its mAP."),
    ] = "all"
    epochs: Annotated[Count, info("Number of epochs of the student.")] = 20
    teacher_epochs: Annotated[Count | None, info("Number of epochs of each teacher (default: --epochs).")] = None
    distillation_weight: Annotated[
        Annotated[float, Meta(ge=0, le=1)],
        info("Weight of the distillation term in the loss; the label loss has weight 1 minus this."),
    ] = 0.5
    baseline: Annotated[bool, info("Also train a baseline without distillation, and report the gain over it.")] = True
    executor: Annotated[
        Literal["processes", "sequential", "ray"],
        info("Train teachers in parallel processes, sequentially, or on Ray.", may_change=True),
    ] = "processes"
    processes: Annotated[
        Count | None,
        info("Number of teachers trained in parallel (default: one per GPU, or per core up to 8).", may_change=True),
    ] = None
    ray_address: Annotated[
        str | None,
        info(
            "Address of a Ray cluster with access to the same paths (default: start one on this machine).",
            may_change=True,
        ),
    ] = None
    views: Annotated[Count, info("With probe: cached views per training image.")] = 1
    backbone_scale: Annotated[Positive, info("With finetune: learning rate of the backbone relative to the head.")] = (
        0.1
    )
    freeze_epochs: Annotated[
        Whole, info("With finetune: number of initial epochs with a frozen backbone.", is_flag=False)
    ] = 0
    augment: Annotated[bool, info("With finetune: augment training images.")] = True

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.devices > 1:
            raise ConfigError(
                f"devices must be 1, got {self.devices}; teachers train in parallel instead (--processes)"
            )

    @property
    def on_features(self) -> bool:
        """True if training uses cached features."""
        return self.training == "probe"

    def num_views(self, num_images: int) -> int:  # noqa: ARG002 (independent of it here)
        """Return the number of cached views per training image."""
        return self.views


@dataclass(frozen=True, kw_only=True)
class ZeroShot(RecipeSettings):
    """Train with labels as text queries, to predict labels unseen in training.

    Examples:
        >>> ZeroShot(data="scenes:100").encoder
        'offline:minilm'
    """

    GROUP = "Recipe"

    out: _Out = Path("runs/zero_shot")
    head: Annotated[
        Literal["ml_decoder", "text_map", "conse"],
        info("Head: ML-Decoder with text queries, or a baseline (linear map into text space, or ConSE)."),
    ] = "ml_decoder"
    unseen: Annotated[
        str,
        info("Labels to hold out for testing: none, random:15, random:0.2, coco_65_15, nus_wide, FILE or 'cat|dog'."),
    ] = "none"
    split_seed: Annotated[Whole, info("Random seed for --unseen random:N.")] = 0
    images: Annotated[
        Literal["with_seen", "without_unseen", "all"],
        info("Training images: those with a seen label, those without unseen labels, or all."),
    ] = "with_seen"
    encoder: Annotated[
        str, info("Text encoder: offline:minilm, sentence:MODEL, glove:FILE, word2vec:FILE or npz:FILE.")
    ] = "offline:minilm"
    templates: Annotated[
        str | None, info("Prompts separated by |, such as 'a photo of a {label}' (default: depends on the encoder).")
    ] = None
    random_queries: Annotated[
        Whole, info("Random queries per batch (query augmentation of the paper; did not pay off here).", is_flag=False)
    ] = 0
    query_noise: Annotated[
        NotNegative,
        info("Standard deviation of noise on text vectors (query augmentation of the paper; try 0.1).", is_flag=False),
    ] = 0.0
    views: Annotated[Count, info("Cached views per training image.")] = 1
    tune: Annotated[bool, info("Not supported by this recipe.", is_flag=False)] = False
    single_label: Annotated[bool | None, info("Not supported by this recipe.", is_flag=False)] = False
    loss: Annotated[
        LossName, info("Loss; asymmetric converges much more slowly with text queries.", is_object=True)
    ] = "binary_cross_entropy"
    epochs: _Epochs = None
    batch_size: Annotated[Count, info("Images per batch on each device.")] = 32
    learning_rate: Annotated[Positive, info("Peak learning rate.")] = 1e-3
    ema_decay: Annotated[Fraction, info("Decay of the exponential moving average of the weights; 0 disables it.")] = (
        0.997
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.single_label:
            raise ConfigError("the recipe zero_shot does not support single_label=True; remove the setting")

    def num_views(self, num_images: int) -> int:  # noqa: ARG002 (independent of it here)
        """Return the number of cached views per training image."""
        return self.views


RECIPE_SETTINGS: dict[str, type[RecipeSettings]] = {
    "probe": Probe,
    "finetune": Finetune,
    "representation_mixup": RepresentationMixup,
    "self_distillation": SelfDistillation,
    "zero_shot": ZeroShot,
}
"""Settings class of each recipe, by name."""

_CPSD: Mapping[str, Any] = {  # Xu et al., "Complementary Parallel Self-Distillation", 2022, and their code
    "k": 5,
    "epochs": 80,
    "batch_size": 32,
    "optimizer": "adam",
    "weight_decay": 1e-4,
    "warmup": 0.1,
    "loss": "asymmetric",
}

PRESETS: dict[str, dict[str, Mapping[str, Any]]] = {
    "probe": {},
    "finetune": {
        # Ridnik et al., "ML-Decoder", WACV 2023, and their code
        "ml_decoder": {
            "head": "ml_decoder",
            "loss": "asymmetric",
            "loss_settings": {"gamma_negative": 4, "gamma_positive": 0, "clip": 0.05},
            "optimizer": "adam",
            "learning_rate": 1e-4,
            "train_from": "all",
            "backbone_scale": 1.0,
            "weight_decay": 1e-4,
            "warmup": 0.2,
            "epochs": 40,
            "batch_size": 56,
            "keep_statistics": False,
            "image_size": 448,
            "ema_decay": 0.9997,
        },
        # Yin et al., "Hybrid Sharing for Multi-Label Image Classification"
        "hsq": {
            "head": "hsq",
            "loss": "asymmetric",
            "optimizer": "adam",
            "learning_rate": 1e-4,
            "train_from": "all",
            "backbone_scale": 1.0,
            "weight_decay": 1e-2,
            "betas": (0.9, 0.9999),
            "warmup": 0.2,
            "epochs": 100,
            "batch_size": 32,
            "keep_statistics": False,
            "image_size": 576,
            "ema_decay": 0.9997,
        },
        # Liu et al., "Query2Label", and their code
        "q2l": {
            "head": "q2l",
            "loss": "asymmetric",
            "loss_settings": {"gamma_negative": 2, "gamma_positive": 0, "clip": 0.0},
            "optimizer": "adamw",
            "learning_rate": 1e-4,
            "train_from": "all",
            "backbone_scale": 1.0,
            "weight_decay": 1e-2,
            "warmup": 0.2,
            "epochs": 80,
            "batch_size": 32,
            "keep_statistics": False,
            "image_size": 448,
            "ema_decay": 0.9997,
        },
    },
    "representation_mixup": {},
    "self_distillation": {
        "cpsd": {**_CPSD, "partition": "both"},
        "cgpd": {**_CPSD, "partition": "co"},
        "dgpd": {**_CPSD, "partition": "dis"},
        "sd": {**_CPSD, "partition": "whole"},
        "random": {**_CPSD, "partition": "random"},
    },
    "zero_shot": {},
}
"""Settings of the papers, by recipe and name; where paper and code leave a value open, that of ML-Decoder's code."""
