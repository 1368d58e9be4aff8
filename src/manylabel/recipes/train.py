"""`manylabel.train`: from images and tags to a classifier in one call."""

from itertools import chain, count
from pathlib import Path
from typing import Any

from torch import nn

from manylabel.classifier import Classifier
from manylabel.errors import ConfigError, DataError, list_choices
from manylabel.recipes.finetune import finetune
from manylabel.recipes.probe import probe, representation_mixup
from manylabel.recipes.recipe import Recipe
from manylabel.recipes.reporter import Reporter
from manylabel.recipes.self_distillation import self_distillation
from manylabel.recipes.setup import Loss, Parts, Transform, open_sets
from manylabel.recipes.zero_shot import zero_shot
from manylabel.schema import read_settings, settings_fields
from manylabel.settings import PRESETS

RECIPES: dict[str, Recipe[Any]] = {
    "probe": probe,
    "finetune": finetune,
    "representation_mixup": representation_mixup,
    "self_distillation": self_distillation,
    "zero_shot": zero_shot,
}


def train(
    data: object,
    *,
    recipe: str = "probe",
    out: str | Path | None = None,
    val: object = None,
    head: str | type[nn.Module] | nn.Module | None = None,
    backbone: str | nn.Module | None = None,
    loss: str | Loss | None = None,
    transform: Transform | None = None,
    preset: str | None = None,
    resume: bool = False,
    overwrite: bool = False,
    progress: bool = True,
    **settings: Any,  # noqa: ANN401 (the settings of any recipe)
) -> Classifier:
    """Train a classifier.

    Args:
        data: Training images with labels, in any form that `manylabel.data.load` takes: a list of ``(path, tags)``, a
            path, a spec, a DataFrame or an `ImageDataset`.
        recipe: ``"probe"``, ``"finetune"``, ``"representation_mixup"``, ``"self_distillation"`` or ``"zero_shot"``.
        out: Run folder (default: the first unused of ``runs/probe``, ``runs/probe-2``, ...).
        val: Validation set, as `data` (default: its validation split, or a held-out fraction).
        head: Name of a head, its class, or a ready module; modules are copied.
        backbone: Name of a backbone, a `Backbone`, or a timm model; modules are copied.
        loss: Name of a loss, or a function ``(logits, targets, known) -> scalar``; `known` is optional.
        transform: Training transform from a PIL image to a tensor ``[3, H, W]`` (default: that of the recipe).
        preset: Settings of a paper; see `manylabel.recipes.PRESETS`.
        resume: Resume the run in `out`, if it exists.
        overwrite: Replace an existing run in `out`.
        progress: Show progress: a bar in a terminal or notebook, else a line at least every ten seconds.
        settings: Further settings of the recipe, such as ``epochs=10`` or ``head_settings={"num_groups": 20}``.

    Returns:
        The trained classifier; its attribute `run_folder` is the folder with settings, metrics and checkpoints.

    Raises:
        ConfigError: A setting is invalid; nothing was written.
        DataError: The data cannot be read.
        TrainingError: Training failed; the message states the cause and a fix.

    Examples:
        >>> import tempfile
        >>> model = train(
        ...     "scenes:20", backbone="resnet10t", pretrained=False, image_size=64, head="linear", epochs=1, views=1,
        ...     workers=0, out=tempfile.mkdtemp(), progress=False,
        ... )
        >>> len(model.labels), (model.run_folder / "metrics.csv").is_file()
        (24, True)
    """
    if recipe not in RECIPES:
        raise ConfigError(f"no recipe {recipe!r}; {list_choices(recipe, RECIPES)}")
    if data is None:
        raise DataError("there is no training set: data is None; pass images with tags, such as a table")
    if resume and out is None:
        raise ConfigError("resume needs the folder of the run; pass out=")
    chosen = RECIPES[recipe]
    given: dict[str, Any] = {"head": head, "backbone": backbone, "loss": loss, "transform": transform}
    names = {name: value for name, value in given.items() if isinstance(value, str)}
    objects = {name: value for name, value in given.items() if name not in names}
    values = {"data": _name(data), "val": None if val is None else _name(val), **names, **settings}
    values["out"] = _unused(settings_fields(chosen.settings)["out"].default) if out is None else out
    resolved = read_settings(chosen.settings, values, presets=PRESETS[recipe], preset=preset)
    run = chosen(
        resolved,
        sets=open_sets(resolved, data=data, val=val),
        resume=resume,
        overwrite=overwrite,
        reporter=None if progress else Reporter(),
        **objects,
    )
    model = Classifier.from_pretrained(run.model, head=Parts(**objects).head_class)
    model.run_folder = run.path
    return model


def _name(data: object) -> str:
    """Return a spec or path as text; the type of other data, which settings cannot hold."""
    return str(data) if isinstance(data, str | Path) else f"<{type(data).__name__}>"


def _unused(folder: object) -> Path:
    """Return the first of ``folder``, ``folder-2``, ... that does not exist."""
    first = Path(str(folder))
    others = (first.with_name(f"{first.name}-{number}") for number in count(2))
    return next(path for path in chain([first], others) if not path.exists())
