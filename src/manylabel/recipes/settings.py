"""What every recipe can be set to: data, backbone, head, loss and the loop."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

from manylabel.data import ImageDataset
from manylabel.heads import HEADS
from manylabel.losses import LOSSES
from manylabel.training.fields import OneOf
from manylabel.training.settings import AtLeastOne, LoopSettings, Positive, Share
from manylabel.types import LabelSpace

__all__ = ["RecipeSettings"]


@dataclass(frozen=True, kw_only=True)
class RecipeSettings(LoopSettings):
    """Settings that all recipes share; each recipe adds its own and has its own defaults.

    Raises:
        ConfigError: A setting is wrong; the message lists all that are.
    """

    data: str
    """The pictures to train on, as a data spec such as voc:PATH or csv:labels.csv,images=photos/."""

    val: str | None = None
    """The pictures to judge by, as a data spec. When left out: the data's own validation split, or else a held-out
    part."""

    val_fraction: Annotated[float, Share, Positive] = 0.2
    """The share of the pictures to hold out where nothing else says which; always the same ones, whatever the seed."""

    limit: Annotated[int | None, AtLeastOne] = None
    """Use at most this many pictures of each part, for a quick try."""

    out: Path = Path("run")
    """The run's folder: settings, numbers, state and the finished model."""

    backbone: str = "offline:efficientnet_lite0"
    """A timm model, or one that comes with the extra 'offline' and needs no hub; see 'manylabel list backbones'."""

    pretrained: bool = True
    """Whether the backbone starts from its pretrained weights."""

    image_size: Annotated[int | None, AtLeastOne] = None
    """Height and width of the pictures in pixels; the backbone's own when left out."""

    head: Annotated[str, OneOf(HEADS, own=True)] = "ml_decoder"
    """From feature maps to labels; see 'manylabel list heads'."""

    head_settings: Mapping[str, Any] = field(default_factory=dict)
    """Arguments of the head; as a flag: --head.NAME VALUE."""

    loss: Annotated[str, OneOf(("auto", *LOSSES))] = "auto"
    """What is made small; auto is the asymmetric loss, or cross-entropy where every picture has exactly one label."""

    loss_settings: Mapping[str, Any] = field(default_factory=dict)
    """Arguments of the loss; as a flag: --loss.NAME VALUE."""

    single_label: bool | None = None
    """Whether every picture has exactly one label, so that scores are a softmax; the data say when left out."""

    @property
    def trains_backbone(self) -> bool:
        """Whether the backbone learns."""
        return False

    @property
    def caches_features(self) -> bool:
        """Whether pictures pass through the backbone once, and training works on what is kept of them."""
        return False

    @property
    def trained_model(self) -> str | None:
        """The trained model to start from, if any."""
        return None

    @property
    def given_head_settings(self) -> Mapping[str, Any]:
        """Arguments of the head as they were given, without those that a recipe fills in."""
        return self.head_settings

    def num_views(self, num_pictures: int) -> int:  # noqa: ARG002 (recipes that cache views look at it)
        """Return how many views of each training picture are kept, where there are so many pictures."""
        return 1

    def total_epochs(self, train: ImageDataset) -> float:
        """Return how many epochs' worth of pictures all that is trained sees."""
        return self.num_epochs(-(-len(train) // (self.batch_size * self.accumulate * self.devices)))

    def train_part(self, dataset: ImageDataset) -> ImageDataset:
        """Return what of the training pictures and their labels is trained on."""
        return dataset

    def head_arguments(self, labels: LabelSpace) -> Mapping[str, Any]:  # noqa: ARG002 (recipes with text need them)
        """Return all arguments of a head for these labels."""
        return self.head_settings
