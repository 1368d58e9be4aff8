"""Lightning tasks, optimizers, callbacks, checkpoints and run folders."""

from manylabel.training.callbacks import FreezeFirst, RunProgress, ValidationScores, reached, read_metrics
from manylabel.training.fit import Loaders, fit
from manylabel.training.loaders import Share, shared_sampler
from manylabel.training.run_folder import RunFolder, is_first_process
from manylabel.training.task import ClassificationTask, DistillationTerm

__all__ = [
    "ClassificationTask",
    "DistillationTerm",
    "FreezeFirst",
    "Loaders",
    "RunFolder",
    "RunProgress",
    "Share",
    "ValidationScores",
    "fit",
    "is_first_process",
    "reached",
    "read_metrics",
    "shared_sampler",
]
