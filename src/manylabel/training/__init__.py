"""Lightning tasks, optimizers, callbacks, checkpoints and run folders."""

from manylabel.settings import LoopSettings
from manylabel.training.callbacks import (
    FreezeFirst,
    MetricsFile,
    MovingAverage,
    RunProgress,
    ValidationScores,
    reached,
    read_metrics,
)
from manylabel.training.checkpoints import Checkpoints
from manylabel.training.fit import Loaders, fit
from manylabel.training.loaders import ResumableLoader, SeededLoader, Share, shared_sampler
from manylabel.training.optimizers import constant, cosine, make_optimizer, make_schedule, one_cycle, parameter_groups
from manylabel.training.query_augmentation import AugmentedQueries, ZeroShotTask
from manylabel.training.run_folder import RunFolder, is_first_process
from manylabel.training.task import ClassificationTask, DistillationTerm

__all__ = [
    "AugmentedQueries",
    "Checkpoints",
    "ClassificationTask",
    "DistillationTerm",
    "FreezeFirst",
    "Loaders",
    "LoopSettings",
    "MetricsFile",
    "MovingAverage",
    "ResumableLoader",
    "RunFolder",
    "RunProgress",
    "SeededLoader",
    "Share",
    "ValidationScores",
    "ZeroShotTask",
    "constant",
    "cosine",
    "fit",
    "is_first_process",
    "make_optimizer",
    "make_schedule",
    "one_cycle",
    "parameter_groups",
    "reached",
    "read_metrics",
    "shared_sampler",
]
