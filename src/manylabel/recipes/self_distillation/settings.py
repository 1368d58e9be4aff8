"""What `self_distillation` can be set to, and the five variants of the paper by name."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

from manylabel.data import ImageDataset
from manylabel.errors import ConfigError
from manylabel.recipes.self_distillation.lessons import Lesson, count_pictures, divide, plan_lessons
from manylabel.recipes.settings import RecipeSettings
from manylabel.training.fields import Rule
from manylabel.training.settings import AtLeastOne, NotNegative, Positive

__all__ = ["VARIANTS", "SelfDistillation"]

_Part = Rule(lambda value: 0 <= value <= 1, "from 0 to 1")

_PAPER: Mapping[str, Any] = {
    "k": 5,
    "teacher_epochs": 20,
    "epochs": 80,
    "batch_size": 32,
    "optimizer": "adam",
    "weight_decay": 1e-4,
    "warmup": 0.1,
    "loss": "asymmetric",
}

VARIANTS: dict[str, Mapping[str, Any]] = {
    # Xu et al., "Complementary Parallel Self-Distillation", 2022, and their code
    "cpsd": {**_PAPER, "partition": "both"},
    "cgpd": {**_PAPER, "partition": "co"},
    "dgpd": {**_PAPER, "partition": "dis"},
    "sd": {**_PAPER, "partition": "whole"},
    "random": {**_PAPER, "partition": "random"},
}


@dataclass(frozen=True, kw_only=True)
class SelfDistillation(RecipeSettings):
    """Settings of `self_distillation`; `VARIANTS` has those of the paper.

    Raises:
        ConfigError: A setting is wrong; the message lists all that are.

    Examples:
        >>> SelfDistillation(data="scenes:100", **VARIANTS["cpsd"]).teacher_epochs
        20
    """

    out: Path = Path("runs/self_distillation")
    """The run's folder: settings, partitions, teachers, baseline, numbers, state and the finished student."""

    training: Literal["linear_probe", "finetune"] = "linear_probe"
    """What teachers and student train on: features of a frozen backbone, which sees each picture once, or pictures,
    the backbone learning too."""

    partition: Literal["both", "co", "dis", "random", "whole"] = "both"
    """How labels are divided among teachers: those that come together (co), those that stay apart (dis), both ways,
    at random, or not at all (whole: plain self-distillation)."""

    k: Annotated[int, AtLeastOne] = 5
    """Into how many subsets labels are divided; each has a teacher."""

    tau: Annotated[float, Positive] = 2.0
    """The root that is taken of how often labels come together; more lifts rare pairs."""

    teacher_pictures: Literal["own", "all"] = "own"
    """What a teacher trains on: pictures that show one of its labels, or all pictures. A teacher of a single label
    always gets all, as it would never see the label missing."""

    ask_about: Literal["own", "all"] = "own"
    """The pictures on which the student listens to a teacher: those that it was trained on, or all, of which it may
    know nothing."""

    epochs: Annotated[int, AtLeastOne] = 20
    """How often the student sees every picture."""

    teacher_epochs: Annotated[int | None, AtLeastOne] = None
    """How often a teacher sees each of its pictures; as often as the student when left out."""

    distillation: Literal["mse", "kl"] = "mse"
    """How far the student is from its teachers: squared distance of logits as in the paper, or divergence of scores."""

    temperature: Annotated[float, Positive] = 4.0
    """What logits are divided by before the divergence (kl) is taken."""

    distillation_weight: Annotated[float, NotNegative] = 1.0
    """What the distance to the teachers is multiplied by before it is added to the loss."""

    co_share: Annotated[float, _Part] = 0.5
    """With partition both: the share of the teachers of labels that come together; the others have the rest."""

    logits: Literal["auto", "cached", "online"] = "auto"
    """Whether teachers are asked once, and their answers kept on disk, or again for each batch. Only views of pictures
    that stay the same can be cached; auto caches those."""

    baseline: bool = True
    """Whether to train a plain model beside it, on as many pictures as all teachers and the student together see."""

    executor: Literal["processes", "sequential", "ray"] = "processes"
    """Who trains the teachers: several processes on this machine, this process, or Ray."""

    processes: Annotated[int | None, AtLeastOne] = None
    """How many teachers train at once; when left out one per GPU, or one per core up to 8. Cores are shared out."""

    ray_address: str | None = None
    """The address of a Ray cluster, all of whose machines must see the run's folder and the features under the same
    paths; Ray on this machine alone when left out."""

    teacher_gpus: Annotated[float, NotNegative] = 0.0
    """How many GPUs Ray sets aside for each teacher; 0.5 lets two share one."""

    retries: Annotated[int, NotNegative] = 1
    """How often a teacher that fails is tried again, from where it was saved last."""

    views: Annotated[int, AtLeastOne] = 1
    """On features: how many views of each training picture to cache; the first is the picture as it is."""

    backbone_scale: Annotated[float, Positive] = 0.1
    """With finetune: what the learning rate is multiplied by for the backbone."""

    freeze_epochs: Annotated[int, NotNegative] = 0
    """With finetune: for how many epochs the backbone stays as it is."""

    augment: bool = True
    """With finetune: whether training pictures are changed at random."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.devices > 1:
            raise ConfigError(f"devices must be 1, got {self.devices}: here teachers train in parallel (--processes)")
        if self.logits == "cached" and not self.has_fixed_views:
            raise ConfigError("logits of pictures that are changed at random cannot be cached; set logits to online")

    @property
    def trains_backbone(self) -> bool:
        """Whether the backbone learns."""
        return self.training == "finetune"

    @property
    def caches_features(self) -> bool:
        """Whether pictures pass through the backbone once, and training works on what is kept of them."""
        return self.training == "linear_probe"

    def num_views(self, num_pictures: int) -> int:  # noqa: ARG002 (here it does not matter)
        """Return how many views of each training picture are kept, where there are so many pictures."""
        return self.views

    @property
    def has_fixed_views(self) -> bool:
        """Whether a picture looks the same each time, or like one of few views."""
        return self.caches_features or not self.augment

    @property
    def caches_logits(self) -> bool:
        """Whether teachers are asked once."""
        return self.logits == "cached" or (self.logits == "auto" and self.has_fixed_views)

    def budget(self, train: ImageDataset, lessons: Sequence[Lesson]) -> float:
        """Return how many epochs' worth of pictures all teachers and the student see.

        Args:
            train: The pictures to train on.
            lessons: What the teachers learn.

        Examples:
            >>> from manylabel.data import scenes
            >>> pictures = scenes(50)
            >>> lesson = Lesson("whole-01", "whole", pictures.labels.names, 0)
            >>> SelfDistillation(data="scenes:50", epochs=8, teacher_epochs=2).budget(pictures, [lesson])
            10.0
        """
        seen = sum(count_pictures(train.targets, train.labels, each, which=self.teacher_pictures) for each in lessons)
        return self.epochs + (self.teacher_epochs or self.epochs) * seen / len(train)

    def total_epochs(self, train: ImageDataset) -> float:
        """Return how many epochs' worth of pictures all that is trained sees, the baseline included."""
        sides = divide(train, partition=self.partition, k=self.k, tau=self.tau, seed=self.seed)
        budget = self.budget(train, plan_lessons(sides))
        return budget + round(budget) if self.baseline else budget
