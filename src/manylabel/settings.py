"""Settings of all recipes, composed of data, model and training loop, and presets of the papers."""

from collections.abc import Mapping
from dataclasses import MISSING, dataclass
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, TypeAlias

from msgspec import Meta

from manylabel.errors import ConfigError
from manylabel.schema import Count, Fraction, NotNegative, Positive, Whole, check, setting

FEWEST_STEPS = 100
# Small sets of many labels need more steps, but more than 20 epochs of them overfit: docs/results.md, Few images
STEPS_PER_LABEL, MOST_LABELS, MOST_EPOCHS = 3, 100, 20
MOST_VIEWS, VIEWS_IN_ALL = 4, 25_000

LossName: TypeAlias = Literal[
    "auto",
    "asymmetric",
    "binary_cross_entropy",
    "cross_entropy",
    "distribution_balanced",
    "entropy_maximization",
    "focal",
    "hill",
    "large_loss",
    "selective",
    "soft_margin",
    "splc",
    "two_way",
]
OptimizerName: TypeAlias = Literal["adam", "adamw", "sgd"]
ScheduleName: TypeAlias = Literal["one_cycle", "cosine", "constant"]


@dataclass(frozen=True, kw_only=True)
class DataSettings:
    """Training and validation set, and the run folder."""

    GROUP: ClassVar[str] = "Data and output"

    data: str = setting(MISSING, "Training set, such as labels.csv or voc:VOCdevkit/VOC2012.")
    out: Path = setting(Path("run"), "Run folder: settings, metrics, checkpoints and the model.", may_change=True)
    val: str | None = setting(None, "Validation set (default: the validation split of DATA, or a held-out fraction).")
    val_fraction: Annotated[float, Meta(gt=0, lt=1)] = setting(
        0.2, "Fraction held out for validation if DATA has no validation split; independent of --seed."
    )
    limit: Count | None = setting(None, "Maximum number of images per split, for quick tests.")


@dataclass(frozen=True, kw_only=True)
class ModelSettings:
    """Backbone, head and loss."""

    GROUP: ClassVar[str] = "Model"

    head: str = setting("ml_decoder", "Classification head; see 'manylabel models list heads'.")
    head_settings: Mapping[str, Any] = setting({}, "Arguments of the head; as flags: --head.NAME VALUE.", is_flag=False)
    backbone: str = setting(
        "offline:everyday",
        "Backbone: a timm model or torchvision:NAME; auto: everyday or ImageNet weights, by a quick comparison.",
    )
    pretrained: bool = setting(True, "Initialise the backbone with pretrained weights.")
    image_size: Count | None = setting(None, "Input height and width in pixels (default: that of the backbone).")
    loss: LossName = setting(
        "auto",
        "Loss; auto: asymmetric (clip 0), cross_entropy for single labels, entropy_maximization for incomplete tags.",
        is_object=True,
    )
    loss_settings: Mapping[str, Any] = setting({}, "Arguments of the loss; as flags: --loss.NAME VALUE.", is_flag=False)
    transform: str | None = setting(None, "Training transform from Python (default: the recipe's).", is_flag=False)
    single_label: bool | None = setting(None, "One label per image: softmax scores (default: inferred from the data).")


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
    FEWEST_EPOCHS: ClassVar[int] = 6

    epochs: Count | None = setting(20, "Number of epochs (none: 6, or enough for 100 to 300 optimizer steps).")
    batch_size: Count = setting(64, "Images per batch on each device; learning rates are tuned for 64.")
    learning_rate: Positive | None = setting(None, "Peak learning rate (default: 1e-3).")
    sampler: Literal["shuffle", "class_aware"] = setting(
        "shuffle", "Order of images: each once per epoch, or drawn label by label for rare labels (class_aware)."
    )
    positive_weights: bool = setting(False, "Weight positives by the ratio of negatives to positives of their label.")
    optimizer: OptimizerName = setting("adamw", "Optimizer.")
    weight_decay: NotNegative = setting(1e-2, "Weight decay, except for biases and norms.")
    betas: tuple[Fraction, Fraction] = setting((0.9, 0.999), "Betas of Adam and AdamW.", is_flag=False)
    schedule: ScheduleName = setting("one_cycle", "Learning rate schedule.", is_flag=False)
    warmup: Fraction = setting(0.2, "Fraction of all steps used for learning rate warmup.", is_flag=False)
    accumulate: Count = setting(1, "Batches per optimizer step (gradient accumulation).")
    clip_gradients: Positive | None = setting(None, "Maximum gradient norm (default: no clipping).", is_flag=False)
    ema_decay: Fraction = setting(0.9997, "Decay of the exponential moving average of the weights; 0 disables it.")
    patience: Count | None = setting(None, "Stop after this many epochs without a better mAP (default: never).")
    keep: Literal["last", "best"] = setting("last", "Weights to save: those of the last epoch, or of the best by mAP.")
    tune: bool = setting(True, "Fit thresholds and calibration to the validation set, if it has at least 30 images.")
    seed: Whole = setting(0, "Random seed for initialisation, shuffling, augmentation and dropout.")
    precision: Literal["auto", "float32", "bfloat16", "float16"] = setting(
        "auto", "Floating-point precision; auto: mixed precision on CUDA, else float32."
    )
    compile: bool = setting(False, "Compile the trained part with torch.compile, for long runs.", is_flag=False)
    device: Literal["auto", "cpu", "cuda", "mps"] = setting("auto", "Torch device; auto: a GPU if available.")
    devices: Count = setting(1, "Number of GPUs, or of CPU processes, for data-parallel training.")
    workers: Whole | None = setting(
        None, "Image-decoding processes (default: half of the cores, or all if the CPU runs no model).", may_change=True
    )
    checkpoint_minutes: Positive = setting(5.0, "Minutes between checkpoints.", may_change=True, is_flag=False)
    logger: Literal["auto", "mlflow", "none", "tensorboard", "wandb"] = setting(
        "auto", "Logger in addition to metrics.csv; auto: TensorBoard if installed.", may_change=True
    )

    def __post_init__(self) -> None:
        check(self)

    @property
    def peak_learning_rate(self) -> float:
        """Peak learning rate of the schedule."""
        return 1e-3 if self.learning_rate is None else self.learning_rate

    def num_epochs(self, steps_per_epoch: int, *, num_labels: int) -> int:
        """Return the number of epochs for a number of optimizer steps per epoch.

        Examples:
            >>> LoopSettings(epochs=3).num_epochs(5, num_labels=20)
            3
            >>> [LoopSettings(epochs=None).num_epochs(16, num_labels=labels) for labels in (20, 80, 1_000)]
            [7, 15, 19]
            >>> [LoopSettings(epochs=None).num_epochs(steps, num_labels=80) for steps in (2, 5, 100)]
            [50, 20, 6]
        """
        fewest = max(self.FEWEST_EPOCHS, -(-FEWEST_STEPS // steps_per_epoch))
        enough = -(-STEPS_PER_LABEL * min(num_labels, MOST_LABELS) // steps_per_epoch)
        return self.epochs or max(fewest, min(MOST_EPOCHS, enough))


@dataclass(frozen=True, kw_only=True)
class RecipeSettings(LoopSettings, ModelSettings, DataSettings):
    """Settings common to all recipes; each recipe adds its own and overrides defaults."""

    def num_views(self, num_images: int) -> int:
        """Return the number of cached views per training image: `views`, for recipes that have it."""
        return getattr(self, "views", 1) or max(1, min(MOST_VIEWS, VIEWS_IN_ALL // num_images))

    @property
    def on_features(self) -> bool:
        """True if heads train on features of a frozen backbone, with the sizes and learning rates for that."""
        return isinstance(self, Probe)


@dataclass(frozen=True, kw_only=True)
class Probe(RecipeSettings):
    """Train a head on cached features of a frozen backbone, in minutes on a CPU. Start here.

    Examples:
        >>> probe = Probe(data="scenes:100")
        >>> probe.head, probe.num_views(5_000), probe.num_views(100_000)
        ('ml_decoder', 4, 1)
    """

    GROUP = "Recipe"

    out: Path = Path("runs/probe")
    epochs: Count | None = setting(None, "Number of epochs (default: 6, or enough for 100 to 300 optimizer steps).")
    learning_rate: Positive | None = setting(
        None, "Peak learning rate (default: 2e-3; 5e-4 for hsq, which diverges above that)."
    )
    weight_decay: NotNegative = 0.3
    cache: bool = setting(True, "Cache features on disk (default), or run the backbone in every epoch.", is_flag=False)
    views: Count | None = setting(None, "Cached crops per training image (default: up to 4, at most 25,000 in total).")
    feature_dropout: Fraction = setting(0.3, "Dropout rate of feature channels.", is_flag=False)


@dataclass(frozen=True, kw_only=True)
class Finetune(RecipeSettings):
    """Train the top of the backbone and the head on cached maps, or the whole network on images.

    Examples:
        >>> Finetune(data="scenes:100", **PRESETS["finetune"]["ml_decoder"]).epochs
        40
    """

    GROUP = "Recipe"

    FEWEST_EPOCHS: ClassVar[int] = 4  # more overfit: docs/results.md, Training the top

    out: Path = Path("runs/finetune")
    epochs: Count | None = setting(None, "Number of epochs (default: 4, or enough for 100 to 300 optimizer steps).")
    train_from: str = setting(
        "auto", "Stage or module after which the backbone is trained (3, blocks.4); auto: by cost; all: all of it."
    )
    views: Count = setting(1, "Cached crops per training image.")
    learning_rate: Positive = setting(1e-3, "Peak learning rate of the head.")
    backbone_scale: Positive | None = setting(
        None, "Learning rate of the backbone relative to the head (default: 0.25; 0.05 for --train-from all)."
    )
    ema_decay: Fraction = 0.999
    start_from: str | None = setting(
        None, "Trained model to start from, such as a run folder; sets the backbone and head."
    )
    start_fraction: Fraction | None = setting(
        None,
        "Weight of --start-from in its average with the result (default: 0, 0.25, 0.5 or 0.75, by mAP).",
    )
    freeze_epochs: Whole = setting(0, "Number of initial epochs with a frozen backbone.", is_flag=False)
    keep_statistics: bool | None = setting(
        None, "Freeze the batch-norm statistics of the backbone (default: if it is pretrained).", is_flag=False
    )
    augment: bool = setting(True, "Augment training images: flip, Cutout, RandAugment; mirror and crop cached maps.")

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.start_fraction and self.start_from is None:
            raise ConfigError(f"start_fraction is {self.start_fraction}, but start_from is not set; name a model")
        if self.train_from == "all" and self.views > 1:
            raise ConfigError(f"views is {self.views}, but train_from=all trains on images, not on crops; remove views")

    @property
    def keeps_statistics(self) -> bool:
        """True if the batch-norm statistics of the backbone stay frozen."""
        if self.keep_statistics is not None:
            return self.keep_statistics
        return self.pretrained or self.start_from is not None


@dataclass(frozen=True, kw_only=True)
class RepresentationMixup(Probe):
    """Train a head on a mixture of earlier and final features of a frozen backbone (RM), and report its gain.

    Examples:
        >>> RepresentationMixup(data="scenes:100", **PRESETS["representation_mixup"]["paper"]).optimizer
        'sgd'
    """

    out: Path = Path("runs/representation_mixup")
    head: Literal["rm"] = setting("rm", "Head.", is_flag=False)
    views: Count | None = setting(1, "Cached crops per training image.")
    baseline: bool = setting(True, "Also train the head without the mixture, and report the gain over it.")


@dataclass(frozen=True, kw_only=True)
class SelfDistillation(RecipeSettings):
    """Train teachers on subsets of the labels in parallel, then distil them into a student (CPSD).

    Examples:
        >>> SelfDistillation(data="scenes:100", **PRESETS["self_distillation"]["cpsd"]).epochs
        80
    """

    GROUP = "Recipe"

    out: Path = Path("runs/self_distillation")
    loss: LossName = "asymmetric"
    training: Literal["probe", "finetune"] = setting(
        "probe", "Train heads only, on cached features of a frozen backbone (probe), or backbones as well (finetune)."
    )
    partition: Literal["both", "co", "dis", "random", "whole", "ensemble"] = setting(
        "both", "Label subsets: co-occurring (co), dis-occurring (dis), both, random; or all labels: whole, ensemble."
    )
    k: Count = setting(5, "Number of subsets per partition; each has one teacher.")
    tau: Positive = setting(
        2.0, "Temperature of co-occurrence rates (tau in CPSD); larger values favour rare pairs.", is_flag=False
    )
    teacher_images: Literal["all", "own"] = setting(
        "all", "Training images of a teacher: all, or only those with one of its labels (own), which lowers its mAP."
    )
    epochs: Count | None = setting(
        None, "Number of epochs of the student (default: --teacher-epochs; twice as many on cached features)."
    )
    teacher_epochs: Count | None = setting(
        None, "Number of epochs of each teacher and of the baseline (default: --epochs, or that of the recipe probe)."
    )
    weight_decay: NotNegative = 0.3
    distillation_weight: Annotated[float, Meta(ge=0, le=1)] = setting(
        0.5, "Weight of the distillation term in the loss; the label loss has weight 1 minus this."
    )
    baseline: bool = setting(True, "Also train a baseline without distillation, and report the gain over it.")
    executor: Literal["processes", "sequential", "ray"] = setting(
        "processes", "Train teachers in parallel processes, sequentially, or on Ray.", may_change=True
    )
    processes: Count | None = setting(
        None, "Number of teachers trained in parallel (default: one per GPU, or per core up to 8).", may_change=True
    )
    ray_address: str | None = setting(
        None, "Address of a Ray cluster, such as auto (default: start one on this machine).", may_change=True
    )
    views: Count | None = setting(None, "With probe: cached crops per training image (default: as in probe).")
    feature_dropout: Fraction = setting(0.3, "With probe: dropout rate of feature channels.", is_flag=False)
    train_from: str = setting("auto", "With finetune: as in the recipe finetune; all trains whole networks on images.")
    backbone_scale: Positive | None = setting(
        None, "With finetune: learning rate of the backbone relative to the head (default: as in finetune)."
    )
    freeze_epochs: Whole = setting(0, "With finetune: number of initial epochs with a frozen backbone.", is_flag=False)
    augment: bool = setting(True, "With finetune: augment training images.")

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.devices > 1:
            raise ConfigError(f"devices must be 1, got {self.devices}; teachers train in parallel (--processes)")

    def num_views(self, num_images: int) -> int:
        """Return the number of cached views per training image: one if backbones are trained, too."""
        return super().num_views(num_images) if self.on_features else 1

    @property
    def on_features(self) -> bool:
        """True unless backbones are trained, too."""
        return self.training == "probe"


@dataclass(frozen=True, kw_only=True)
class ZeroShot(RecipeSettings):
    """Train with labels as text queries, to predict labels unseen in training.

    Examples:
        >>> ZeroShot(data="scenes:100").encoder
        'offline:minilm'
    """

    GROUP = "Recipe"

    out: Path = Path("runs/zero_shot")
    head: Literal["ml_decoder", "text_map", "conse"] = setting(
        "ml_decoder", "Head: ML-Decoder with text queries, or a baseline (linear map into text space, or ConSE)."
    )
    unseen: str = setting(
        "none", "Labels to hold out for testing: none, random:15, random:0.2, coco_65_15, nus_wide, FILE or 'cat|dog'."
    )
    split_seed: Whole = setting(0, "Random seed for --unseen random:N.")
    training_images: Literal["with_seen", "without_unseen", "all"] = setting(
        "with_seen", "Training images: those with a seen label, those without unseen labels, or all."
    )
    encoder: str = setting(
        "offline:minilm", "Text encoder: offline:minilm, sentence:MODEL, glove:FILE, word2vec:FILE or npz:FILE."
    )
    templates: str | None = setting(
        None, "Prompts separated by |, such as 'a photo of a {label}' (default: depends on the encoder)."
    )
    random_queries: Whole = setting(0, "Random queries per batch (query augmentation of the paper).", is_flag=False)
    query_noise: NotNegative = setting(0.0, "Noise on text vectors (query augmentation; try 0.1).", is_flag=False)
    pseudo_labels: Whole = setting(
        0, "Names of the backbone's own classes per batch, trained with its probabilities; try 256.", is_flag=False
    )
    views: Count = setting(1, "Cached views per training image.")
    tune: bool = setting(False, "Not supported by this recipe.", is_flag=False)
    single_label: bool | None = setting(False, "Not supported by this recipe.", is_flag=False)
    loss: LossName = setting(
        "binary_cross_entropy", "Loss; asymmetric converges much more slowly with text queries.", is_object=True
    )
    epochs: Count | None = setting(None, "Number of epochs (default: 6, or enough for 100 to 300 optimizer steps).")
    batch_size: Count = setting(32, "Images per batch on each device; the learning rate is tuned for 32.")
    learning_rate: Positive = setting(1e-3, "Peak learning rate.")
    ema_decay: Fraction = 0.997

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.single_label:
            raise ConfigError("the recipe zero_shot does not support single_label=True; remove the setting")


RECIPE_SETTINGS: dict[str, type[RecipeSettings]] = {
    "probe": Probe,
    "finetune": Finetune,
    "representation_mixup": RepresentationMixup,
    "self_distillation": SelfDistillation,
    "zero_shot": ZeroShot,
}
"""Settings class of each recipe, by name."""

# What ML-Decoder, HSQ and Query2Label have in common
_WHOLE_NETWORK: dict[str, Any] = {"train_from": "all", "backbone_scale": 1.0, "keep_statistics": False}
_WHOLE_NETWORK |= {"loss": "asymmetric", "learning_rate": 1e-4, "warmup": 0.2, "ema_decay": 0.9997}

# Ridnik et al., "ML-Decoder", WACV 2023, and their code
_ML_DECODER = {"head": "ml_decoder", "epochs": 40, "batch_size": 56, "image_size": 448, **_WHOLE_NETWORK}
_ML_DECODER |= {"loss_settings": {"gamma_negative": 4, "gamma_positive": 0, "clip": 0.05}}
_ML_DECODER |= {"optimizer": "adam", "weight_decay": 1e-4}

# Yin et al., "Hybrid Sharing for Multi-Label Image Classification"
_HSQ = {"head": "hsq", "epochs": 100, "batch_size": 32, "image_size": 576, **_WHOLE_NETWORK}
_HSQ |= {"optimizer": "adam", "weight_decay": 1e-2, "betas": (0.9, 0.9999)}

# Liu et al., "Query2Label", and their code
_Q2L = {"head": "q2l", "epochs": 80, "batch_size": 32, "image_size": 448, **_WHOLE_NETWORK}
_Q2L |= {"loss_settings": {"gamma_negative": 2, "gamma_positive": 0, "clip": 0.0}}
_Q2L |= {"optimizer": "adamw", "weight_decay": 1e-2}

# Eom et al., "Layover Intermediate Layer for Multi-Label Classification in Efficient Transfer Learning"
_RM: dict[str, Any] = {"head_settings": {"form": "paper", "stages": [0, -1]}, "loss": "soft_margin", "epochs": 30}
_RM |= {"optimizer": "sgd", "learning_rate": 0.1, "weight_decay": 0.0, "warmup": 0.3, "ema_decay": 0.0}
_RM |= {"feature_dropout": 0.0}

# Xu et al., "Complementary Parallel Self-Distillation", 2022, and their code
_CPSD: dict[str, Any] = {"k": 5, "epochs": 80, "batch_size": 32, "loss": "asymmetric"}
_CPSD |= {"optimizer": "adam", "weight_decay": 1e-4, "warmup": 0.1, "feature_dropout": 0.0, "train_from": "all"}

PRESETS: dict[str, dict[str, Mapping[str, Any]]] = {
    "probe": {},
    "finetune": {"ml_decoder": _ML_DECODER, "hsq": _HSQ, "q2l": _Q2L},
    "representation_mixup": {"paper": _RM},
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
