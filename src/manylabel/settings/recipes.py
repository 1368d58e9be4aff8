"""Settings of each recipe, and the papers' by name."""

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

_Out = Annotated[Path, info("Folder of the run: settings, metrics, state and the model.", may_change=True)]
_Epochs = Annotated[Count | None, info("Number of epochs (default: 6, or enough for 200 optimizer steps).")]


@dataclass(frozen=True, kw_only=True)
class Probe(RecipeSettings):
    """Train any head on cached features of a frozen backbone: minutes on a CPU. Start here.

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
    weight_decay: Annotated[NotNegative, info("Weight decay; never on biases and norms.")] = 0.3
    cache: Annotated[bool, info("Cache features on disk, instead of a pass each epoch.")] = True
    views: Annotated[
        Count | None, info("Cached views of each training image, random crops (default: up to 4, 25,000 in all).")
    ] = None
    feature_dropout: Annotated[Fraction, info("Fraction of the backbone's channels that are dropped in training.")] = (
        0.3
    )

    def num_views(self, num_images: int) -> int:
        """Return the number of views of each training image that are cached."""
        return self.views or max(1, min(MOST_VIEWS, VIEWS_IN_ALL // num_images))


@dataclass(frozen=True, kw_only=True)
class Finetune(RecipeSettings):
    """Train backbone and head together, the backbone at a lower rate.

    Examples:
        >>> Finetune(data="scenes:100", **PRESETS["finetune"]["ml_decoder"]).epochs
        40
    """

    GROUP = "Recipe"

    out: _Out = Path("runs/finetune")
    epochs: Annotated[Count, info("Number of epochs.")] = 10
    batch_size: Annotated[Count, info("Images per step, on each device.")] = 32
    learning_rate: Annotated[Positive, info("Peak learning rate of the head.")] = 5e-4
    backbone_scale: Annotated[Positive, info("Factor of the learning rate for the backbone.")] = 0.1
    start_from: Annotated[
        str | None, info("Trained model to start from, such as RUN/model; its backbone, head and size are kept.")
    ] = None
    start_fraction: Annotated[
        Fraction,
        info(
            "Weight of the starting point (start_from) in the finished model; 0.5 often beats both "
            "(Wortsman et al., CVPR 2022)."
        ),
    ] = 0.0
    freeze_epochs: Annotated[Whole, info("Epochs in which the backbone stays frozen.")] = 0
    keep_statistics: Annotated[
        bool | None, info("Keep batch-norm statistics of the backbone (default: if it starts from trained weights).")
    ] = None
    augment: Annotated[bool, info("Augment training images: flip, Cutout, RandAugment.")] = True

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.start_fraction and self.start_from is None:
            raise ConfigError(f"start_fraction is {self.start_fraction}, but there is no trained model; set start_from")

    @property
    def keeps_statistics(self) -> bool:
        """True where batch norms of the backbone keep the means and variances they have."""
        if self.keep_statistics is not None:
            return self.keep_statistics
        return self.pretrained or self.start_from is not None


@dataclass(frozen=True, kw_only=True)
class RepresentationMixup(RecipeSettings):
    """Train a linear head that takes a hint from an early layer of a frozen backbone (RM).

    Examples:
        >>> RepresentationMixup(data="scenes:100").head_settings
        {'stages': [0, -1]}
    """

    GROUP = "Recipe"

    out: _Out = Path("runs/representation_mixup")
    head: Annotated[Literal["rm"], info("Head.", is_flag=False)] = "rm"
    head_settings: Annotated[
        Mapping[str, Any], info("Arguments of the head; as a flag: --head.stages [1,-1] for RM@2.")
    ] = field(default_factory=lambda: {"stages": [0, -1]})
    loss: Annotated[LossName, info("Loss.")] = "soft_margin"
    epochs: Annotated[Count, info("Number of epochs.")] = 30
    optimizer: Annotated[Literal["adam", "adamw", "sgd"], info("Optimizer.")] = "sgd"
    learning_rate: Annotated[Positive, info("Peak learning rate.")] = 0.1
    weight_decay: Annotated[NotNegative, info("Weight decay; never on biases and norms.")] = 0.0
    warmup: Annotated[Fraction, info("Fraction of all steps in which the learning rate rises.")] = 0.3
    ema_decay: Annotated[
        Fraction, info("Decay of the moving average of the weights; 0, as in the paper, does not average.")
    ] = 0.0


@dataclass(frozen=True, kw_only=True)
class SelfDistillation(RecipeSettings):
    """Train teachers of parts of the labels in parallel, and a student that distils them (CPSD).

    Examples:
        >>> SelfDistillation(data="scenes:100", **PRESETS["self_distillation"]["cpsd"]).epochs
        80
    """

    GROUP = "Recipe"

    out: _Out = Path("runs/self_distillation")
    training: Annotated[
        Literal["probe", "finetune"],
        info("Train teachers and student on cached features of a frozen backbone, or on images."),
    ] = "probe"
    partition: Annotated[
        Literal["both", "co", "dis", "random", "whole"],
        info("Partition of the labels: co-occurring, dissimilar, both (CPSD), random, or none (SD)."),
    ] = "both"
    k: Annotated[Count, info("Number of subsets of a partition; each has a teacher.")] = 5
    tau: Annotated[Positive, info("Root that is taken of co-occurrences; more lifts rare pairs.")] = 2.0
    teacher_images: Annotated[
        Literal["all", "own"],
        info(
            "Images a teacher is trained on and asked about: all, as in the released code, or those with "
            "one of its labels (X_C of the paper's text), which costs teachers up to 10 mAP."
        ),
    ] = "all"
    epochs: Annotated[Count, info("Number of epochs of the student.")] = 20
    teacher_epochs: Annotated[Count | None, info("Number of epochs of a teacher (default: epochs).")] = None
    distillation_weight: Annotated[
        Annotated[float, Meta(ge=0, le=1)],
        info("Weight of the distance to the teachers in the loss; the labels' own loss has the rest."),
    ] = 0.5
    baseline: Annotated[bool, info("Train a plain model for as many epochs, and report the gain over it.")] = True
    executor: Annotated[
        Literal["processes", "sequential", "ray"],
        info("Train teachers in several processes, one after the other, or on Ray.", may_change=True),
    ] = "processes"
    processes: Annotated[
        Count | None, info("Teachers that train at once (default: one per GPU, or per core up to 8).", may_change=True)
    ] = None
    ray_address: Annotated[
        str | None,
        info("Address of a Ray cluster that sees the same paths (default: this machine).", may_change=True),
    ] = None
    views: Annotated[Count, info("With probe: cached views of each training image.")] = 1
    backbone_scale: Annotated[Positive, info("With finetune: factor of the learning rate for the backbone.")] = 0.1
    freeze_epochs: Annotated[Whole, info("With finetune: epochs in which the backbone stays frozen.")] = 0
    augment: Annotated[bool, info("With finetune: augment training images.")] = True

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.devices > 1:
            raise ConfigError(f"devices must be 1, got {self.devices}: here teachers train in parallel (--processes)")

    @property
    def on_features(self) -> bool:
        """True where training works on cached features."""
        return self.training == "probe"

    def num_views(self, num_images: int) -> int:  # noqa: ARG002 (here it does not matter)
        """Return the number of views of each training image that are cached."""
        return self.views


@dataclass(frozen=True, kw_only=True)
class ZeroShot(RecipeSettings):
    """Train on labels as text: the model then answers for labels that it never saw.

    Examples:
        >>> ZeroShot(data="scenes:100").encoder
        'offline:minilm'
    """

    GROUP = "Recipe"

    out: _Out = Path("runs/zero_shot")
    head: Annotated[
        Literal["ml_decoder", "text_map", "conse"],
        info("ML-Decoder with text queries, or a baseline: a linear map into text space, ConSE."),
    ] = "ml_decoder"
    unseen: Annotated[
        str,
        info(
            "Labels to hold out for the final test: none, random:15, random:0.2, coco_65_15, nus_wide, "
            "a file, or names joined by |."
        ),
    ] = "none"
    split_seed: Annotated[Whole, info("Seed of the draw of random: labels.")] = 0
    images: Annotated[
        Literal["with_seen", "without_unseen", "all"],
        info("Training images: with a seen label, without any unseen one, or all."),
    ] = "with_seen"
    encoder: Annotated[
        str, info("Text encoder: offline:minilm, sentence:MODEL, glove:FILE, word2vec:FILE or npz:FILE.")
    ] = "offline:minilm"
    templates: Annotated[
        str | None, info("Prompts joined by |, such as 'a photo of a {label}' (default: what suits the encoder).")
    ] = None
    random_queries: Annotated[
        Whole, info("Random queries of the paper's query augmentation; they cost more than they gave.")
    ] = 0
    query_noise: Annotated[
        NotNegative, info("Standard deviation of noise on text vectors; the paper's augmentation, try 0.1.")
    ] = 0.0
    views: Annotated[Count, info("Cached views of each training image.")] = 1
    single_label: Annotated[bool | None, info("Must be false here.", is_flag=False)] = False
    loss: Annotated[LossName, info("Loss; the asymmetric one converges much later with text queries.")] = (
        "binary_cross_entropy"
    )
    epochs: _Epochs = None
    batch_size: Annotated[Count, info("Images per step, on each device.")] = 32
    learning_rate: Annotated[Positive, info("Peak learning rate.")] = 1e-3
    ema_decay: Annotated[
        Fraction, info("Decay of the moving average of the weights, which is saved; 0 does not average.")
    ] = 0.997

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.single_label:
            raise ConfigError("the recipe zero_shot trains with any number of labels an image; leave single_label out")

    def num_views(self, num_images: int) -> int:  # noqa: ARG002 (here it does not matter)
        """Return the number of views of each training image that are cached."""
        return self.views


RECIPE_SETTINGS: dict[str, type[RecipeSettings]] = {
    "probe": Probe,
    "finetune": Finetune,
    "representation_mixup": RepresentationMixup,
    "self_distillation": SelfDistillation,
    "zero_shot": ZeroShot,
}
"""Settings of each recipe, by its name."""

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
            "backbone_scale": 1.0,
            "weight_decay": 1e-2,
            "betas": (0.9, 0.9999),
            "warmup": 0.2,
            "epochs": 100,
            "keep_statistics": False,
            "image_size": 576,
        },
        # Liu et al., "Query2Label", and their code
        "q2l": {
            "head": "q2l",
            "loss": "asymmetric",
            "loss_settings": {"gamma_negative": 2, "gamma_positive": 0, "clip": 0.0},
            "optimizer": "adamw",
            "learning_rate": 1e-4,
            "backbone_scale": 1.0,
            "weight_decay": 1e-2,
            "warmup": 0.2,
            "epochs": 80,
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
"""Settings of the papers, by recipe and name. What papers and code leave open is as in ML-Decoder's code."""
