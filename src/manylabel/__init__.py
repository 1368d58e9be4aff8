"""Multi-label image classification: train, explain and serve models that name everything in an image."""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from manylabel import (
        data,
        errors,
        evaluation,
        explain,
        heads,
        inference,
        label_issues,
        labelgraph,
        losses,
        metrics,
        recipes,
        runs,
        tuning,
    )
    from manylabel.backbone import Backbone
    from manylabel.classifier import Classifier
    from manylabel.data import ImageDataset
    from manylabel.predictions import Predictions
    from manylabel.recipes import train
    from manylabel.suggestion import suggest
    from manylabel.targets import Targets
    from manylabel.types import Batch, LabelSpace

__all__ = [
    "Backbone",
    "Batch",
    "Classifier",
    "ImageDataset",
    "LabelSpace",
    "Predictions",
    "Targets",
    "data",
    "errors",
    "evaluation",
    "explain",
    "heads",
    "inference",
    "label_issues",
    "labelgraph",
    "losses",
    "metrics",
    "recipes",
    "runs",
    "suggest",
    "train",
    "tuning",
]

__version__ = "1.0.0"

# Names are imported when first used: the shell's completion runs `manylabel` on every TAB and cannot wait for torch.
_HOMES = {
    "Backbone": "backbone",
    "Batch": "types",
    "Classifier": "classifier",
    "ImageDataset": "data",
    "LabelSpace": "types",
    "Predictions": "predictions",
    "Targets": "targets",
    "suggest": "suggestion",
    "train": "recipes",
}


def __getattr__(name: str) -> object:
    if name not in __all__:
        raise AttributeError(f"module 'manylabel' has no attribute {name!r}")
    from manylabel.system import naming_extras

    with naming_extras():
        module = import_module(f"manylabel.{_HOMES.get(name, name)}")
    return getattr(module, name) if name in _HOMES else module


def __dir__() -> list[str]:
    return sorted([*__all__, "__version__"])
