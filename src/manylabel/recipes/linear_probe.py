"""Linear probe and beyond: train a head on the features of a frozen backbone, which sees each picture once.

    manylabel train linear_probe --data voc:VOCdevkit/VOC2012 --out runs/probe

Any head will do; the name comes from the simplest one, a linear layer (``--head linear``).
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Annotated, Any

from torch import nn

from manylabel.features import dropped_channels
from manylabel.heads import HEADS
from manylabel.heads.traits import ProbeDefaults, probe_defaults
from manylabel.recipes.building import build_classifier, build_loss, name_head
from manylabel.recipes.loading import cache_sets, feature_loaders, picture_loaders
from manylabel.recipes.reporting import Reporter
from manylabel.recipes.sets import TrainAndVal, sets_of_run
from manylabel.recipes.settings import RecipeSettings
from manylabel.training.fit import fit
from manylabel.training.run_folder import RunFolder
from manylabel.training.settings import AtLeastOne, NotNegative, Positive, Share
from manylabel.training.task import ClassificationTask

__all__ = ["LinearProbe", "linear_probe"]

MOST_VIEWS, VIEWS_IN_ALL = 4, 25_000


class _Filled(dict[str, Any]):
    """Settings of a head, what was not given filled in; it remembers what was, which `dataclasses.replace` needs."""

    def __init__(self, values: Mapping[str, Any], *, given: Mapping[str, Any]) -> None:
        super().__init__(values)
        self.given = given


def _filled(head: str, given: Mapping[str, Any]) -> tuple[dict[str, Any], float]:
    """Return a head's settings and learning rate on frozen features, its own defaults where none are given."""
    defaults = probe_defaults(HEADS[head]) if head in HEADS else ProbeDefaults()
    settings, rate = {**defaults.settings, **given}, defaults.learning_rate
    if top := settings.get("top"):  # a head inside the head
        name, inner = (top, {}) if isinstance(top, str) else (top["name"], top.get("settings", {}))
        inner, rate = _filled(name, inner)
        settings["top"] = {"name": name, "settings": inner}
    return settings, rate


@dataclass(frozen=True, kw_only=True)
class LinearProbe(RecipeSettings):
    """Settings of `linear_probe`.

    Examples:
        >>> probe = LinearProbe(data="scenes:100")
        >>> probe.head, probe.head_settings, probe.num_views(5_000), probe.num_views(100_000)
        ('ml_decoder', {'width': 256, 'feedforward': 512}, 4, 1)
        >>> probe.learning_rate, LinearProbe(data="scenes:100", head="hsq").learning_rate
        (0.002, 0.0005)
    """

    out: Path = Path("runs/linear_probe")
    """The run's folder: settings, numbers, state and the finished model."""

    head_settings: Mapping[str, Any] = field(default_factory=dict)
    """Arguments of the head; as a flag: --head.NAME VALUE. Query heads are smaller here than in their papers: a width
    of 256, 512 in feed-forward layers, one layer of the token encoder, unless asked for others."""

    epochs: Annotated[int | None, AtLeastOne] = None
    """How often every picture is seen; when left out, 6 times, or more often where that were less than 200 steps."""

    learning_rate: Annotated[float | None, Positive] = None  # type: ignore[assignment]  # a number once it is made
    """The largest step size of the schedule; when left out 2e-3, or 5e-4 for hsq, which more breaks."""

    weight_decay: Annotated[float, NotNegative] = 0.3
    """How strongly weights are drawn to zero; biases and norms never are."""

    cache: bool = True
    """Whether to keep features on disk and train on them, instead of passing pictures through the backbone each
    epoch."""

    views: Annotated[int | None, AtLeastOne] = None
    """How many views of each training picture to cache; the first is the picture as it is, the others are random crops
    and mirror images. Each costs a pass of all pictures through the backbone. When left out: up to 4, as long as there
    are no more than 25,000 views in all, because few pictures gain most."""

    feature_dropout: Annotated[float, Share] = 0.3
    """The share of the backbone's channels that a head does not see in training, other ones for each picture each
    time."""

    def __post_init__(self) -> None:
        super().__post_init__()
        given = self.given_head_settings
        filled, rate = _filled(self.head, given)
        object.__setattr__(self, "head_settings", _Filled(filled, given=given))
        if self.learning_rate is None:
            object.__setattr__(self, "learning_rate", rate)

    @property
    def given_head_settings(self) -> Mapping[str, Any]:
        """Arguments of the head as they were given, without its size where that was filled in."""
        return self.head_settings.given if isinstance(self.head_settings, _Filled) else self.head_settings

    @property
    def caches_features(self) -> bool:
        """Whether pictures pass through the backbone once, and training works on what is kept of them."""
        return self.cache

    def num_views(self, num_pictures: int) -> int:
        """Return how many views of each training picture are kept, where there are so many pictures."""
        if self.views is not None:
            return self.views
        return max(1, min(MOST_VIEWS, VIEWS_IN_ALL // num_pictures))


def linear_probe(
    settings: LinearProbe,
    *,
    sets: TrainAndVal | None = None,
    head: type[nn.Module] | None = None,
    resume: bool = False,
    overwrite: bool = False,
    reporter: Reporter | None = None,
) -> RunFolder:
    """Train a head on a frozen backbone.

    Args:
        settings: What to train on what.
        sets: The pictures, instead of those that the settings name.
        head: The head's class, when it is one of your own.
        resume: Whether to go on with the run in the folder, if there is one.
        overwrite: Whether to throw away a run that is there.
        reporter: Told what happens; nothing is shown when left out.

    Returns:
        The run's folder, with the model in it.
    """
    reporter = reporter or Reporter()
    settings = name_head(settings, head)
    run = RunFolder.open(settings.out, resume=resume, overwrite=overwrite)
    run.describe(settings, command=reporter.command, resume=resume)
    if run.is_finished:
        return reporter.finished(run)

    sets = sets_of_run(settings, sets, run)
    model = build_classifier(settings, sets, frozen=True, head=head)
    loss = build_loss(settings, single_label=model.single_label)
    reporter.start(model, sets)

    if settings.cache:
        cached = cache_sets(model, sets, settings, progress=reporter.features)
        loaders = partial(feature_loaders, cached, settings)
    else:
        loaders = partial(picture_loaders, model, sets, settings, augment=settings.num_views(len(sets.train)) > 1)
    task = ClassificationTask(
        model.head if settings.cache else model, loss, settings=settings, single_label=model.single_label
    )
    with dropped_channels(model.head, share=settings.feature_dropout):
        fit(task, loaders, run=run, callbacks=reporter.callbacks)

    run.save(model)
    return reporter.finished(run)
