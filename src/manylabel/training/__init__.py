"""Lightning tasks, optimizers, callbacks and checkpoints."""

from manylabel.training.averaging import MovingAverage
from manylabel.training.checkpoints import Checkpoints
from manylabel.training.fit import Loaders, fit
from manylabel.training.freezing import FreezeFirst
from manylabel.training.loaders import ResumableLoader, SeededLoader, Share, shared_sampler
from manylabel.training.metrics_file import MetricsFile
from manylabel.training.optimizers import make_optimizer, parameter_groups
from manylabel.training.progress import RunProgress
from manylabel.training.query_augmentation import AugmentedQueries, ZeroShotTask
from manylabel.training.run_folder import RunFolder
from manylabel.training.schedules import constant, cosine, make_schedule, one_cycle
from manylabel.training.settings import LoopSettings
from manylabel.training.task import ClassificationTask, Guide

__all__ = [
    "AugmentedQueries",
    "Checkpoints",
    "ClassificationTask",
    "FreezeFirst",
    "Guide",
    "Loaders",
    "LoopSettings",
    "MetricsFile",
    "MovingAverage",
    "ResumableLoader",
    "RunFolder",
    "RunProgress",
    "SeededLoader",
    "Share",
    "ZeroShotTask",
    "constant",
    "cosine",
    "fit",
    "make_optimizer",
    "make_schedule",
    "one_cycle",
    "parameter_groups",
    "shared_sampler",
]
